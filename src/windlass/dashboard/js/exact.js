// How is JSON read without losing anything? Numbers that JavaScript would round are kept as they were written.

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
