// What holds for a type: may it run, how much at once, how often again?

import * as api from "../api.js";
import { lineChart } from "../chart.js";
import { el } from "../dom.js";
import { pauseButton, setBreaker, setLimits, stateOfType } from "../flow.js";
import { number, span, titled } from "../format.js";
import { badge, button, code, count, empty, facts, panel, table, time, tree, typeLink } from "../ui.js";

export default function types(context) {
  const state = { types: [], catalogue: {}, history: null };
  const look = context.refresh(async () => {
    state.types = (await api.get("/types", {}, context.signal)).types;
    if (context.name) {
      const since = new Date(Date.now() - 6 * 3600e3).toISOString();
      const [{ types: known }, past] = await Promise.all([
        api.get("/catalogue", {}, context.signal),
        api.get("/stats/history", { type: context.name, from: since, step: "minute" }, context.signal),
      ]);
      Object.assign(state, { catalogue: Object.fromEntries(known.map((each) => [each.name, each])), history: past });
    }
    draw();
  }, 5);
  context.on("stats", (told) => {
    state.types = state.types.map((each) => ({ ...each, ...told.types?.[each.name] }));
    if (state.types.length) draw();
  });
  function draw() {
    if (!context.name) return context.show(el.h1("Types"), list(state.types, look));
    const found = state.types.find((each) => each.name === context.name);
    if (!found) return context.show(el.h1(context.name), empty("No such type is registered, and no job has it"));
    return context.show(one(found, state, look));
  }
}

const ANY = () => el.span({ class: "zero" }, "any");
const UNITS = { 1: "second", 60: "minute", 3600: "hour", 86400: "day" };
const rate = ({ rate: told }) => (told ? `${number(told.count)} per ${UNITS[told.seconds] ?? span(told.seconds)}${told.burst ? `, ${told.burst} at once` : ""}` : null);

function list(all, look) {
  if (!all.length) return empty("No types yet. They come with the first job, or with a worker:", "windlass worker start myapp:queue");
  return table(
    "Types",
    [
      { name: "Type", cell: (each) => typeLink(each.name) },
      { name: "State", cell: stateOfType },
      { name: "Due", class: "number", cell: (each) => count(each.counts.due) },
      { name: "Oldest", class: "number", cell: (each) => el.span({ class: each.oldest_due > 60 ? "late" : "" }, span(each.oldest_due)) },
      { name: "Running", class: "number", cell: (each) => count(each.counts.processing) },
      { name: "At once", class: "number", cell: (each) => each.limit.concurrency ?? ANY() },
      { name: "Rate", class: "number", cell: (each) => rate(each.limit) ?? ANY() },
      { name: "Attempts", class: "number", cell: (each) => each.effective.max_attempts },
      { name: "Timeout", class: "number", cell: (each) => span(each.effective.timeout) },
      { name: "Dead", class: "number", cell: (each) => (each.counts.dead ? el.a({ href: `#/dead?type=${encodeURIComponent(each.name)}`, class: "late" }, number(each.counts.dead)) : count(0)) },
      { name: "Workers", class: "number", cell: (each) => count(each.workers) },
      api.may("operate") && { name: "Actions", class: "row-actions", cell: (each) => pauseButton(each, look, "small") },
    ].filter(Boolean),
    all,
    { key: (each) => each.name },
  );
}

function one(each, { catalogue, history }, look) {
  const jobs = (state) => `#/jobs?q=${encodeURIComponent(`type:${each.name} state:${state}`)}`;
  return [
    el.div({ class: "title" }, el.h1(each.name, " ", stateOfType(each)), !each.known && el.p({ class: "muted" }, "No code has registered it")),
    api.may("operate") &&
      el.div({ class: "actions", role: "toolbar", "aria-label": "Actions" }, pauseButton(each, look), button("Limits and retries", () => setLimits(each, look)), button("Circuit breaker", () => setBreaker(each, look))),
    each.paused && el.div({ class: "banner warn" }, `Paused by ${each.paused.by}${each.paused.why ? ` (${each.paused.why})` : ""}, `, time(each.paused.at)),
    each.breaker?.open &&
      el.div({ class: "banner bad" }, `The circuit breaker is open${each.breaker.by ? `, by ${each.breaker.by}` : ""}${each.breaker.why ? `: ${each.breaker.why}` : ""}, `, time(each.breaker.at), each.breaker.probe_at && [". The next job is let through ", time(each.breaker.probe_at)]),
    el.div({ class: "tiles" }, ["due", "processing", "retrying", "scheduled", "waiting", each.counts.unreadable && "unreadable", "stuck", "dead", "completed"].filter(Boolean).map((state) => el.a({ class: `tile${each.counts[state] ? (BAD.includes(state) ? " bad" : "") : " zero"}`, href: jobs(state) }, el.span({ class: "tile-name" }, titled(state)), el.span({ class: "tile-value" }, number(each.counts[state]))))),
    durations(each.name, history),
    el.div(
      { class: "columns" },
      panel(
        "What holds for it",
        facts([
          ["Attempts", each.effective.max_attempts],
          ["Timeout", span(each.effective.timeout)],
          ["After a failure", retry(each.effective.retry)],
          ["At once", each.limit.concurrency ?? "any number"],
          ["Rate", rate(each.limit) ?? "as fast as possible"],
          ["At once per tenant", each.limit.per_tenant ?? "any number"],
          each.limit_key && ["Shares its limits under", code(`key:${each.limit_key}`)],
          ["Circuit breaker", each.breaker ? badge(each.breaker.open ? "open" : "closed") : "closed"],
          ["Workers that serve it", number(each.workers)],
          ["Oldest due", span(each.oldest_due)],
          ["Schema version", each.schema_version],
          each.options.executor && ["Runs in", each.options.executor],
          each.options.sensitive && ["Sensitive", "replay needs a confirmation"],
        ]),
      ),
      panel("Schema of its payload", catalogue[each.name]?.schema ? tree(catalogue[each.name].schema) : empty("Not registered by code")),
    ),
  ];
}

const BAD = ["unreadable", "stuck", "dead"];

function retry(told) {
  if (told.kind === "never") return "no second attempt";
  if (told.kind === "list") return `after ${told.delays.map(span).join(", ")}`;
  const base = `${told.kind ?? "exponential"} from ${span(told.base)}`;
  return `${base}${told.cap ? `, at most ${span(told.cap)}` : ""}${told.jitter ? `, jitter ${span(told.jitter)}` : ""}`;
}

function durations(name, history) {
  // Without the minute that is not over yet: it would look like a fall.
  const points = (history.series.find((each) => each.type === name)?.points ?? []).slice(0, -1);
  const seconds = (field) => points.map((point) => (point[field] === null || point[field] === undefined ? null : point[field] / 1000));
  const times = points.map((point) => point.at);
  return panel(
    "Last six hours",
    el.div(
      { class: "charts two" },
      lineChart({ title: "Duration and wait, on average", unit: "seconds", times, series: [{ name: "run", kind: "a", values: seconds("run_ms") }, { name: "wait", kind: "b", values: seconds("wait_ms") }] }),
      lineChart({ title: "Ended", times, series: [{ name: "completed", kind: "a", values: points.map((point) => point.completed) }, { name: "failed", kind: "c", values: points.map((point) => point.failed) }, { name: "dead", kind: "d", values: points.map((point) => point.dead) }] }),
    ),
  );
}
