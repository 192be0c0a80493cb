// Draw pages. Elements are made by calls, and text is only ever text: nothing here takes markup.
//
//   el.p({ class: "note" }, "Hello ", el.b(name))     makes an element
//   patch(place, tree, ...)                           makes a place look like that, changing what differs

const SVG = "http://www.w3.org/2000/svg";

export const el = factory((tag) => document.createElement(tag));
export const svg = factory((tag) => document.createElementNS(SVG, tag));

function factory(create) {
  return new Proxy({}, { get: (_, tag) => (...parts) => filled(create(tag), parts) });
}

function filled(node, parts) {
  const [first, ...rest] = parts;
  const named = first !== null && typeof first === "object" && !Array.isArray(first) && !(first instanceof Node);
  if (named) Object.entries(first).forEach(([name, value]) => set(node, name, value));
  node.append(...nodes(named ? rest : parts));
  return node;
}

function set(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "key") node.$key = String(value);
  else if (name === "vars") Object.entries(value).forEach(([each, text]) => node.style.setProperty(each, text));
  else if (name.startsWith("on")) listen(node, name.slice(2), value);
  else if (name === "value") node.$value = node.value = value;
  else if (name === "checked") node.$checked = node.checked = value;
  else node.setAttribute(name, value === true ? "" : name === "title" || name === "aria-label" ? legible(String(value)) : value);
}

// One listener for each event of a node; what it does may change with every drawing.
function listen(node, event, handler) {
  node.$on ??= {};
  if (!(event in node.$on)) node.addEventListener(event, dispatch);
  node.$on[event] = handler;
}

function dispatch(event) {
  event.currentTarget.$on[event.type]?.(event);
}

function nodes(parts) {
  return parts
    .flat(Infinity)
    .filter((part) => part !== null && part !== undefined && part !== false && part !== true)
    .map((part) => (part instanceof Node ? part : document.createTextNode(legible(String(part)))));
}

// Characters that reverse or reorder what comes after them are shown as \u202e, as the command line does.
const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const legible = (text) => text.replace(DIRECTIONS, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);

// Make `place` contain these, and leave alone what is there already: focus, scrolling and selections stay.
export function patch(place, ...fresh) {
  reconcile(place, nodes(fresh));
}

function reconcile(parent, fresh) {
  const keyed = new Map();
  for (const old of parent.childNodes) if (old.$key !== undefined) keyed.set(old.$key, old);
  let at = parent.firstChild;
  for (const node of fresh) {
    const old = node.$key === undefined ? at : keyed.get(node.$key);
    if (old && old.$key === node.$key && alike(old, node)) {
      if (old === at) at = at.nextSibling;
      else parent.insertBefore(old, at);
      morph(old, node);
    } else {
      parent.insertBefore(node, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function alike(old, node) {
  return old.nodeType === node.nodeType && old.nodeName === node.nodeName;
}

function morph(old, node) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== node.data) old.data = node.data;
    return;
  }
  // What minds itself, such as a field with completions, is made once.
  if (old.hasAttribute("data-own") && node.hasAttribute("data-own")) return;
  for (const { name, value } of node.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) {
    // Who has opened something keeps it open.
    if (!node.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  Object.entries(node.$on ?? {}).forEach(([event, handler]) => listen(old, event, handler));
  for (const event of Object.keys(old.$on ?? {})) if (!node.$on?.[event]) old.$on[event] = undefined;
  reconcile(old, [...node.childNodes]);
  if (node.$value !== undefined && old !== document.activeElement && old.value !== node.$value) old.value = node.$value;
  if (node.$checked !== undefined || "$checked" in old) old.checked = node.$checked ?? false;
}

// --- icons: lines on a field of sixteen by sixteen, in the colour of the text ---

const LINES = {
  overview: "M2 13.5h12M3.5 10.5V8M6.5 10.5V4M9.5 10.5V6.5M12.5 10.5V2.5",
  jobs: "M6 4h7.5M6 8h7.5M6 12h7.5M2.5 4h.01M2.5 8h.01M2.5 12h.01",
  dead: "M2 3.5h12v9H2zM2 4l6 5 6-5",
  types: "M2.5 2.5h5.5l5.5 5.5-5.5 5.5L2.5 8zM5.5 5.5h.01",
  workers: "M4.5 4.5h7v7h-7zM6.5 2v2.5M9.5 2v2.5M6.5 11.5V14M9.5 11.5V14M2 6.5h2.5M2 9.5h2.5M11.5 6.5H14M11.5 9.5H14",
  schedules: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 4.8V8l2.3 1.5",
  database: "M3 4c0-1.1 2.2-2 5-2s5 .9 5 2-2.2 2-5 2-5-.9-5-2zM3 4v8c0 1.1 2.2 2 5 2s5-.9 5-2V4M3 8c0 1.1 2.2 2 5 2s5-.9 5-2",
  audit: "M3.5 2h9v12h-9zM6 5.5h4M6 8h4M6 10.5h2",
  settings: "M2 4.5h7M12 4.5h2M2 11.5h2M7 11.5h7M10.5 3v3M5.5 10v3",
  light: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1.2v1.3M8 13.5v1.3M1.2 8h1.3M13.5 8h1.3M3.2 3.2l.9.9M11.9 11.9l.9.9M3.2 12.8l.9-.9M11.9 4.1l.9-.9",
  dark: "M13.5 9.5a6 6 0 0 1-7-7 6 6 0 1 0 7 7z",
  keys: "M1.5 4.5h13v7h-13zM4 7h.01M6.6 7h.01M9.3 7h.01M12 7h.01M5 9.3h6",
  good: "M3.5 8.5l3 3 6-6.5",
  bad: "M8 3.5v5.5M8 12h.01",
};

export const icon = (name) =>
  svg.svg({ class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" }, svg.path({ d: LINES[name] }));
