// How is a page drawn? Elements are made by calls, and text is only ever text: nothing here takes markup.
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
  else node.setAttribute(name, value === true ? "" : value);
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
    .map((part) => (part instanceof Node ? part : document.createTextNode(String(part))));
}

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
