// What does a line in the search box mean? The same filter for the list, for actions, and in a link.
//
//   type:send_email state:dead tenant:acme key:order-7 error:Timeout payload.user.id:42 older:1h
//
// A word without a name is an id or a key. Text with blanks stands in quotes.

import { Exact, parse, write } from "./exact.js";

export const NAMES = ["type", "state", "tenant", "key", "error", "older", "payload."];
export const STATES = ["due", "scheduled", "retrying", "waiting", "unreadable", "processing", "stuck", "dead", "pending", "completed", "cancelled", "discarded"];

const WORD = /(?:[^\s":]+:)?(?:"(?:[^"\\]|\\.)*"|[^\s"]+)/g;

export function read(text) {
  const filter = { type: [], state: [], where: {} };
  const problems = [];
  let name = null;
  for (const word of text.match(WORD) ?? []) {
    const colon = word.indexOf(":");
    const field = colon > 0 ? word.slice(0, colon) : "";
    const value = unquoted(word.slice(colon + 1));
    if (field.startsWith("payload.")) filter.where[field.slice(8)] = plain(value, word.slice(colon + 1));
    else if (field === "type") filter.type.push(...value.split(",").filter(Boolean));
    else if (field === "state") filter.state.push(...value.split(",").filter(Boolean));
    else if (field === "older" || field === "older_than") filter.older_than = value;
    else if (["tenant", "key", "error"].includes(field)) filter[field] = value;
    else if (field === "id") name = value;
    else if (name === null) name = unquoted(word);
    else problems.push(word);
  }
  return { filter, name, problems };
}

// What an action takes in its body: without what was not said.
export function asForm(filter) {
  return Object.fromEntries(
    Object.entries(filter).filter(([, value]) => (Array.isArray(value) ? value.length : typeof value === "object" ? Object.keys(value).length : value)),
  );
}

export const isAnything = (filter) => !Object.keys(asForm(filter)).length;
export const quoted = (text) => (/[\s"]/.test(text) ? JSON.stringify(text) : text);

function unquoted(text) {
  if (!text.startsWith('"')) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text.replaceAll('"', "");
  }
}

// A value of a payload: a number or a truth value if it reads like one and does not stand in quotes.
function plain(value, written) {
  if (written.startsWith('"')) return value;
  try {
    const read = parse(value);
    return read !== null && typeof read === "object" && !(read instanceof Exact) ? value : read;
  } catch {
    return value;
  }
}

// What may come next at the end of a line: [{text, label}]
export function completions(text, { types = [], fields = [] }) {
  const word = text.slice(text.search(/\S*$/));
  const colon = word.indexOf(":");
  if (colon < 0) {
    const names = [...NAMES.filter((name) => name !== "payload.").map((name) => `${name}:`), ...fields.map((field) => `payload.${field}:`)];
    return names.filter((name) => name.startsWith(word) && name !== word).slice(0, 12);
  }
  const field = word.slice(0, colon);
  const values = { type: types, state: STATES, older: ["5m", "1h", "6h", "1d", "7d"] }[field] ?? [];
  return values.map((value) => `${field}:${value}`).filter((each) => each.startsWith(word) && each !== word).slice(0, 12);
}
