// Who did what, when and why?

import * as api from "../api.js";
import { el } from "../dom.js";
import { moment } from "../format.js";
import { badge, empty, jobLink, table, tree, typeLink } from "../ui.js";

const FIELDS = [["who", "Who"], ["verb", "Verb"], ["target", "Of what"]];

export default function audit(context) {
  const asked = Object.fromEntries(FIELDS.map(([name]) => [name, context.query.get(name) ?? ""]));
  const cursor = context.query.get("cursor");
  const to = (more = {}) => `#/audit?${new URLSearchParams(Object.entries({ ...asked, ...more }).filter(([, value]) => value))}`;
  function search(event) {
    event.preventDefault();
    location.hash = to(Object.fromEntries(new FormData(event.target)));
  }
  context.refresh(async () => {
    const page = await api.get("/audit", { ...asked, limit: 50, cursor }, context.signal);
    context.show(
      el.h1("Audit"),
      el.form(
        { class: "filters", onsubmit: search, role: "search", "aria-label": "Search the audit log" },
        FIELDS.map(([name, label]) => el.div({ class: "field" }, el.label({ for: `audit-${name}` }, label), el.input({ id: `audit-${name}`, name, value: asked[name], autocomplete: "off" }))),
        el.button({ type: "submit", class: "primary" }, "Search"),
      ),
      page.entries.length ? list(page.entries) : empty("Nobody has done anything yet, or nothing matches"),
      el.p({ class: "paging" }, cursor && el.a({ class: "button", href: to() }, "← Newest"), page.next && el.a({ class: "button", href: to({ cursor: page.next }) }, "Older →")),
    );
  }, cursor ? 0 : 5);
}

function target(entry) {
  if (entry.kind === "job") return jobLink(entry.target);
  if (entry.kind === "type") return typeLink(entry.target);
  return entry.target;
}

function list(entries) {
  return table(
    "What people did, newest first",
    [
      { name: "At", cell: (entry) => el.time({ datetime: entry.at }, moment(entry.at)) },
      { name: "Who", cell: (entry) => entry.who },
      { name: "Did", cell: (entry) => badge(entry.verb, "calm") },
      { name: "To", cell: (entry) => el.span(el.span({ class: "muted" }, `${entry.kind} `), target(entry)) },
      { name: "Why", cell: (entry) => entry.why },
      { name: "Before and after", cell: (entry) => (entry.before || entry.after) && el.details(el.summary("show"), entry.before && tree(entry.before, "before", 1), entry.after && tree(entry.after, "after", 1)) },
    ],
    entries,
    { key: (entry) => entry.seq },
  );
}
