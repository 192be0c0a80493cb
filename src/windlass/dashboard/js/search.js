// The search box: what a line in it means, and a combobox that completes it, by mouse or by keyboard.
// The same filter serves the list, actions and links.
//
//   type:send_email state:dead tenant:acme key:order-7 error:Timeout payload.user.id:42 older:1h
//
// A word without a name is an id or a key. Text with blanks is put in quotes.

import { Exact, parse } from "./api.js";
import { el, patch } from "./dom.js";

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

export function searchBox({ value, known, onsearch }) {
  let choices = [];
  let chosen = -1;
  const list = el.ul({ id: "completions", role: "listbox", "aria-label": "Completions", hidden: true });
  const input = el.input({
    id: "search", type: "text", value, autocomplete: "off", autocapitalize: "off", spellcheck: "false",
    placeholder: "type:  state:  payload.user.id:  error:  older:1h   or an id or key",
    role: "combobox", "aria-expanded": "false", "aria-controls": "completions", "aria-autocomplete": "list", "aria-label": "Search jobs",
    oninput: suggest, onfocus: suggest, onkeydown: press, onblur: () => setTimeout(hide, 150),
  });

  function suggest() {
    choices = completions(input.value, known());
    chosen = -1;
    show();
  }
  function show() {
    list.hidden = !choices.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
    if (chosen >= 0) input.setAttribute("aria-activedescendant", `completion-${chosen}`);
    else input.removeAttribute("aria-activedescendant");
    patch(
      list,
      choices.map((text, index) =>
        el.li(
          { id: `completion-${index}`, role: "option", "aria-selected": String(index === chosen), onmousedown: (event) => { event.preventDefault(); take(index); } },
          text,
        ),
      ),
    );
  }
  function hide() {
    choices = [];
    show();
  }
  function take(index) {
    const text = choices[index];
    input.value = input.value.replace(/\S*$/, "") + text + (text.endsWith(":") ? "" : " ");
    input.focus();
    suggest();
  }
  function press(event) {
    if (event.key === "ArrowDown" && choices.length) chosen = (chosen + 1) % choices.length;
    else if (event.key === "ArrowUp" && choices.length) chosen = chosen <= 0 ? choices.length - 1 : chosen - 1;
    else if (event.key === "Enter" && chosen >= 0) take(chosen);
    else if (event.key === "Tab" && choices.length && !event.shiftKey && input.value && chosen >= 0) take(chosen);
    else if (event.key === "Enter") {
      hide();
      onsearch(input.value.trim());
    } else if (event.key === "Escape" && choices.length) {
      hide();
      event.stopPropagation();
    } else return;
    event.preventDefault();
    if (event.key.startsWith("Arrow")) show();
  }
  return el.div({ class: "search", role: "search", key: "search", "data-own": "" }, input, list);
}
