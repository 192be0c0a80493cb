// How is the store: how large, how old, and who holds it up?

import * as api from "../api.js";
import { el } from "../dom.js";
import { bytes, moment, number, span } from "../format.js";
import { badge, command, facts, panel, table } from "../ui.js";

export default function database(context) {
  context.refresh(async () => {
    context.show(el.h1("Database"), view(await api.get("/database", {}, context.signal)));
  }, 10);
}

// What the store tells differs between SQLite and PostgreSQL: plain values first, then lists as tables.
function view(told) {
  const plain = Object.entries(told).filter(([, value]) => value !== null && typeof value !== "object");
  const lists = Object.entries(told).filter(([, value]) => Array.isArray(value) && value.length);
  const objects = Object.entries(told).filter(([, value]) => value !== null && typeof value === "object" && !Array.isArray(value));
  return [
    lists.filter(([name]) => WORRIES.includes(name)).map(([, values]) => values.map((text) => el.div({ class: "banner warn" }, shown("", text)))),
    el.div({ class: "columns" }, panel("Store", facts(plain.map(pair))), objects.map(([name, value]) => panel(title(name), facts(Object.entries(value).map(pair))))),
    lists.filter(([name]) => !WORRIES.includes(name)).map(([name, values]) => panel(title(name), isRows(values) ? rows(title(name), values) : el.ul(values.map((value) => el.li(shown(name, value)))))),
  ];
}

const WORRIES = ["notes", "warnings", "problems"];
const pair = ([name, value]) => [title(name), shown(name, value)];
const title = (name) => name.replace(/_bytes$/, "").replaceAll("_", " ").replace(/^./, (letter) => letter.toUpperCase());
const isRows = (values) => values.every((value) => value !== null && typeof value === "object");

function shown(name, value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return badge(value ? "yes" : "no", "calm");
  if (typeof value === "object") return value.mend ? [value.sentence ?? "", " ", command(value.mend)] : JSON.stringify(value);
  if (/bytes|size/.test(name) && typeof value === "number") return bytes(value);
  if (/age|seconds|_for$/.test(name) && typeof value === "number") return span(value);
  if (/(_at|since|^last_|vacuum)/.test(name) && /^\d{4}-\d\d-\d\dT/.test(value)) return moment(value);
  return typeof value === "number" ? number(value) : String(value);
}

function rows(caption, values) {
  const names = [...new Set(values.flatMap((value) => Object.keys(value)))];
  return table(
    caption,
    names.map((name) => ({ name: title(name), class: values.every((value) => typeof value[name] === "number") ? "number" : "", cell: (value) => shown(name, value[name]) })),
    values.map((value, index) => ({ ...value, $index: index })),
    { key: (value) => value.$index },
  );
}
