// What are pages made of? Badges, tables, trees, dialogs and notes.

import { el, patch } from "./dom.js";
import { Exact } from "./api.js";
import { ago, ageOf, moment, number } from "./format.js";

// --- small parts --------------------------------------------------------------------------------

const TONES = {
  due: "wait", scheduled: "calm", retrying: "warn", waiting: "calm", unreadable: "bad", pending: "wait", processing: "run", stuck: "bad",
  dead: "bad", completed: "good", cancelled: "calm", discarded: "calm",
  running: "good", draining: "warn", silent: "bad", gone: "calm", dead_worker: "bad", stopped: "calm",
  active: "good", paused: "warn", withdrawn: "calm", orphaned: "warn", open: "bad", closed: "good",
};

export const badge = (word, tone = TONES[word] ?? "calm") => el.span({ class: `badge ${tone}` }, word);
export const stateOf = (job) => badge(job.view ?? job.state);
export const time = (iso) => (iso ? el.time({ datetime: iso, title: moment(iso) }, ago(iso)) : "–");
// A number of a table: what is not there stands back.
export const count = (value) => (value ? number(value) : el.span({ class: "zero" }, number(value)));
export const code = (text) => el.code(text);
export const jobLink = (id, text = id.slice(0, 8) + "…" + id.slice(-4)) => el.a({ href: `#/jobs/${encodeURIComponent(id)}`, class: "mono", title: id }, text);
export const typeLink = (name) => el.a({ href: `#/types/${encodeURIComponent(name)}` }, name);

export function button(text, onclick, { kind = "", disabled = false, title, ...more } = {}) {
  return el.button({ type: "button", class: kind, disabled, title, onclick, ...more }, text);
}

// A command to type, with a button that copies it.
export function command(text) {
  return el.span(
    { class: "command" },
    el.code(text),
    el.button(
      {
        type: "button", class: "quiet small", title: "Copy", "aria-label": `Copy ${text}`,
        onclick: async () => {
          try {
            await navigator.clipboard.writeText(text);
            note("Copied");
          } catch {
            note("The browser does not let the page copy", "bad");
          }
        },
      },
      "copy",
    ),
  );
}

export function empty(text, hint) {
  return el.div({ class: "empty" }, el.p(text), hint && el.p(command(hint)));
}

export const loading = () => el.p({ class: "loading", role: "status" }, "Loading…");

export function panel(title, ...content) {
  const [heading, more] = Array.isArray(title) ? title : [title, null];
  return el.section({ class: "panel" }, el.div({ class: "panel-head" }, el.h2(heading), more), content);
}

export const facts = (pairs) =>
  el.dl({ class: "facts" }, pairs.filter(Boolean).map(([name, value]) => el.div(el.dt(name), el.dd(value ?? "–"))));

// columns: [{name, class, cell: row => content}]
export function table(caption, columns, rows, { key = (row) => row.id, mark = () => "" } = {}) {
  return el.div(
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el.table(
      el.caption({ class: "hidden" }, caption),
      el.thead(el.tr(columns.map((column) => el.th({ scope: "col", class: column.class }, column.head ?? column.name)))),
      el.tbody(
        rows.map((row) =>
          el.tr(
            { key: key(row), class: mark(row) },
            columns.map((column) => el.td({ class: column.class, "data-name": column.name || null }, column.cell(row))),
          ),
        ),
      ),
    ),
  );
}

export function oldest(iso, limit = 60) {
  if (!iso) return "–";
  return el.span({ class: ageOf(iso) > limit ? "late" : "" }, time(iso));
}

// --- JSON as a tree -----------------------------------------------------------------------------

export function tree(value, name = null, depth = 0) {
  const label = name === null ? null : [el.span({ class: "json-name" }, name), ": "];
  if (value === null || typeof value !== "object" || value instanceof Exact) return el.div({ class: "json-leaf" }, label, leaf(value));
  const entries = Array.isArray(value) ? value.map((each, index) => [String(index), each]) : Object.entries(value);
  if (!entries.length) return el.div({ class: "json-leaf" }, label, Array.isArray(value) ? "[ ]" : "{ }");
  const size = Array.isArray(value) ? `[${number(entries.length)}]` : `{${number(entries.length)}}`;
  const shown = entries.slice(0, MOST_SHOWN);
  return el.details(
    { class: "json", open: depth < 2 },
    el.summary(label, el.span({ class: "json-size" }, size)),
    shown.map(([field, each]) => tree(each, field, depth + 1)),
    entries.length > shown.length && el.div({ class: "json-leaf muted" }, `and ${number(entries.length - shown.length)} more`),
  );
}

function leaf(value) {
  if (value instanceof Exact) return el.span({ class: "json-number" }, value.source);
  if (typeof value === "string") return el.span({ class: "json-text" }, JSON.stringify(value));
  return el.span({ class: `json-${value === null ? "null" : typeof value}` }, String(value));
}

const MOST_SHOWN = 200;

// --- notes --------------------------------------------------------------------------------------

export function note(text, tone = "good") {
  const place = document.getElementById("notes");
  const shown = el.div({ class: `note ${tone}` }, el.span(text), button("×", () => shown.remove(), { kind: "quiet small", "aria-label": "Close" }));
  place.append(shown);
  setTimeout(() => shown.remove(), tone === "bad" ? 15000 : 6000);
}

export function explainError(error) {
  const fields = (error.problem?.errors ?? []).map((each) => `${each.field} must be ${each.allowed}`);
  return [error.message, ...fields.filter((each) => !error.message.includes(each.split(" must ")[1]))].join("; ");
}

const TYPED = 300;

// --- dialogs ------------------------------------------------------------------------------------

// Ask before something is done, do it, and tell what became of it.
//   fields   [{name, label, type, value, hint, options, required}]
//   preview  async values => content, shown before and whenever a field changes
//   leave    what closing it means while it works
//   run      async (values, {signal, progress}) => what to say; a refusal is shown and the dialog stays
export function ask({ title, text, fields = [], preview, run, yes = "Do it", leave = "Stop", danger = false, wide = false }) {
  const before = document.activeElement;
  const abort = new AbortController();
  const state = { busy: false, error: null, shown: null, progress: null };
  const dialog = el.dialog({ class: wide ? "wide" : "", "aria-labelledby": "dialog-title" });
  const values = () =>
    Object.fromEntries(fields.map((field) => [field.name, read(dialog.querySelector(`[name="${field.name}"]`), field)]));

  function draw() {
    patch(
      dialog,
      el.form(
        { method: "dialog", onsubmit: submit },
        el.h2({ id: "dialog-title" }, title),
        text && el.p(text),
        fields.map((field) => row(field, lookSoon)),
        state.shown && el.div({ class: "preview", role: "status" }, state.shown),
        state.progress && el.div({ class: "preview", role: "status" }, state.progress),
        state.error && el.p({ class: "error", role: "alert" }, state.error),
        el.div(
          { class: "dialog-end" },
          button(state.busy ? leave : "Cancel", () => dialog.close(), { kind: "quiet" }),
          el.button({ type: "submit", class: danger ? "danger" : "primary", disabled: state.busy }, state.busy ? "Working…" : yes),
        ),
      ),
    );
  }

  // Whoever types has not finished: a count may have to look at many jobs.
  let typing = null;
  function lookSoon() {
    clearTimeout(typing);
    typing = setTimeout(look, TYPED);
  }

  let asked = 0;
  async function look() {
    if (!preview || !dialog.isConnected || state.busy) return;
    const turn = ++asked;
    let shown;
    try {
      shown = await preview(values());
    } catch (error) {
      shown = el.span({ class: "error" }, explainError(error));
    }
    if (turn !== asked || state.busy) return;
    state.shown = shown;
    draw();
  }

  async function submit(event) {
    event.preventDefault();
    Object.assign(state, { busy: true, error: null });
    const given = values();
    draw();
    try {
      const progress = (content) => {
        state.progress = content;
        draw();
      };
      const said = await run(given, { signal: abort.signal, progress });
      dialog.close();
      if (said) note(said);
    } catch (error) {
      if (error.name === "AbortError") return;
      Object.assign(state, { busy: false, progress: null, error: explainError(error) });
      draw();
    }
  }

  dialog.addEventListener("close", () => {
    clearTimeout(typing);
    abort.abort();
    dialog.remove();
    before?.focus?.();
  });
  document.body.append(dialog);
  draw();
  dialog.showModal();
  const first = dialog.querySelector("[name]");
  (first ?? dialog.querySelector("[type=submit]")).focus();
  look();
  return dialog;
}

function row(field, changed) {
  const id = `field-${field.name}`;
  const common = { id, name: field.name, required: field.required, placeholder: field.hint ?? null, oninput: changed, "data-own": "" };
  if (field.idle) delete common.oninput;
  let input;
  if (field.type === "select") {
    input = el.select(common, field.options.map(([value, label]) => el.option({ value, selected: value === field.value }, label)));
  } else if (field.type === "text-area") {
    input = el.textarea({ ...common, rows: field.rows ?? 8, spellcheck: "false", class: "mono" }, field.value ?? "");
  } else if (field.type === "checkbox") {
    return el.div({ class: "field check" }, el.input({ ...common, type: "checkbox", checked: field.value ?? false }), el.label({ for: id }, field.label));
  } else {
    input = el.input({ ...common, type: field.type ?? "text", value: field.value ?? "", autocomplete: "off", min: field.min, max: field.max, step: field.step });
  }
  return el.div({ class: "field" }, el.label({ for: id }, field.label), input, field.help && el.small(field.help));
}

function read(input, field) {
  if (!input) return field.value ?? "";
  if (field.type === "checkbox") return input.checked;
  return field.type === "text-area" ? input.value : input.value.trim();
}

// What is `idle` changes nothing about what is done, and is not looked at before.
export const WHY = { name: "why", label: "Why (for the audit log)", hint: "optional", idle: true };
