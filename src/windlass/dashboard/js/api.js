// Calls of the HTTP API, the same that other clients use; a refusal is an error with its reason.

const BASE = "/api/v1";
// A read is answered sooner than this, or given up.
const PATIENCE = 20_000;

// Who looks, and what they may do.
export const session = { locked: false, known: true, name: null, may: [], token: null, version: "" };
// A key of one tenant looks at that tenant's jobs, and at nothing that tells of all of them.
export const may = (need) => session.may.includes(need) && !(need === "see" && session.tenant);

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `the server answered ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

let whenLocked = () => {};
export function onLocked(handler) {
  whenLocked = handler;
}

export const get = (path, query, signal) => call("GET", BASE + path + asQuery(query), undefined, inTime(signal));
export const post = (path, body = {}, signal) => call("POST", BASE + path, write(body), signal);
// The answer comes at once; what is asked for goes on.
export const postAsync = (path, body, signal) => call("POST", BASE + path, write(body), signal, { Prefer: "respond-async" });
export const remove = (path, query) => call("DELETE", BASE + path + asQuery(query));
// Whatever changes something: a text is sent as it is, and what has no body goes into the query.
export const send = (method, path, given) => (method === "DELETE" ? remove(path, given) : call(method, BASE + path, typeof given === "string" ? given : write(given)));

const inTime = (signal) => AbortSignal.any([signal, AbortSignal.timeout(PATIENCE)].filter(Boolean));
export const at = (...parts) => "/" + parts.map(encodeURIComponent).join("/");

export async function openSession() {
  Object.assign(session, await call("GET", "/session"));
}
export async function logIn(key) {
  await call("POST", "/login", JSON.stringify({ key }));
  await openSession();
}
export async function logOut() {
  await call("POST", "/logout", "{}");
  await openSession();
}

function asQuery(query = {}) {
  const pairs = Object.entries(query ?? {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).filter((each) => each !== null && each !== undefined && each !== "").map((each) => [name, each]),
  );
  return pairs.length ? `?${new URLSearchParams(pairs)}` : "";
}

async function call(method, url, body, signal, headers = {}) {
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (session.token && method !== "GET") headers["X-Windlass-Token"] = session.token;
  let answer;
  try {
    answer = await fetch(url, { method, headers, body, signal, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { detail: "the server cannot be reached" });
  }
  const text = await answer.text();
  let told;
  try {
    told = text ? parse(text) : {};
  } catch {
    told = { detail: `the server answered ${answer.status}` };
  }
  if (answer.ok) return told;
  if (answer.status === 401 && url !== "/login") whenLocked();
  throw new Refused(answer.status, told);
}

// --- JSON without loss: numbers that JavaScript would round are kept as they were written ---

export class Exact {
  constructor(source) {
    this.source = source;
  }
}

const MARK = "\u0000exact";
// A text, which is left alone, or a number with more digits than JavaScript keeps.
const LONG = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]{15,}/g;

export function parse(text) {
  const marked = text.replace(LONG, (found) => (found.startsWith('"') ? found : JSON.stringify({ [MARK]: found })));
  return JSON.parse(marked, (_, value) => (value !== null && typeof value === "object" && MARK in value ? new Exact(value[MARK]) : value));
}

export function write(value, indent = "") {
  const deeper = indent + "  ";
  if (value instanceof Exact) return value.source;
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    return `[\n${value.map((each) => deeper + write(each, deeper)).join(",\n")}\n${indent}]`;
  }
  if (value !== null && typeof value === "object") {
    const fields = Object.entries(value).filter(([, each]) => each !== undefined).map(([name, each]) => `${deeper}${JSON.stringify(name)}: ${write(each, deeper)}`);
    return fields.length ? `{\n${fields.join(",\n")}\n${indent}}` : "{}";
  }
  return JSON.stringify(value);
}
