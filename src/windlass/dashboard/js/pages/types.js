// What holds for a type: may it run, how much at once, how often again?

import * as api from "../api.js";
import { lineChart } from "../chart.js";
import { el } from "../dom.js";
import { number, span } from "../format.js";
import { ask, badge, button, code, empty, facts, panel, table, time, tree, typeLink, WHY } from "../ui.js";
import { stateOfType } from "./overview.js";

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

const rate = ({ rate: told }) => (told ? `${told.count} per ${span(told.seconds)}${told.burst ? `, ${told.burst} at once` : ""}` : null);

function list(all, look) {
  if (!all.length) return empty("No types yet. They come with the first job, or with a worker:", "windlass worker start myapp:queue");
  return table(
    "Types",
    [
      { name: "Type", cell: (each) => typeLink(each.name) },
      { name: "State", cell: stateOfType },
      { name: "Due", class: "number", cell: (each) => number(each.counts.due) },
      { name: "Oldest", class: "number", cell: (each) => span(each.oldest_due) },
      { name: "Running", class: "number", cell: (each) => number(each.counts.processing) },
      { name: "At once", class: "number", cell: (each) => each.limit.concurrency ?? "any" },
      { name: "Rate", class: "number", cell: (each) => rate(each.limit) ?? "any" },
      { name: "Tries", class: "number", cell: (each) => each.effective.max_attempts },
      { name: "Timeout", class: "number", cell: (each) => span(each.effective.timeout) },
      { name: "Dead", class: "number", cell: (each) => number(each.counts.dead) },
      { name: "Workers", class: "number", cell: (each) => number(each.workers) },
      api.may("operate") && { name: "Actions", class: "row-actions", cell: (each) => pauseButton(each, look, "small") },
    ].filter(Boolean),
    all,
    { key: (each) => each.name },
  );
}

function pauseButton(each, then, kind = "") {
  const resume = Boolean(each.paused);
  return button(
    resume ? "Resume" : "Pause",
    () =>
      ask({
        title: `${resume ? "Resume" : "Pause"} ${each.name}?`,
        text: resume ? "Its jobs start again within a second." : "No more of its jobs start. They are still accepted, and those that run go on.",
        fields: [WHY],
        yes: resume ? "Resume" : "Pause",
        async run({ why }) {
          await api.post(api.at("types", each.name, resume ? "resume" : "pause"), { why });
          then();
          return `${each.name} is ${resume ? "resumed" : "paused"}`;
        },
      }),
    { kind: `${kind} ${resume ? "primary" : ""}`, "aria-label": `${resume ? "Resume" : "Pause"} ${each.name}` },
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
    el.div({ class: "tiles" }, ["due", "processing", "retrying", "scheduled", "waiting", "stuck", "dead", "completed"].map((state) => el.a({ class: "tile", href: jobs(state) }, el.span({ class: "tile-name" }, state), el.span({ class: "tile-value" }, number(each.counts[state]))))),
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

function retry(told) {
  const base = `${told.kind ?? "exponential"} from ${span(told.base)}`;
  return `${base}${told.cap ? `, at most ${span(told.cap)}` : ""}${told.jitter ? `, jitter ${span(told.jitter)}` : ""}`;
}

function durations(name, history) {
  const points = history.series.find((each) => each.type === name)?.points ?? [];
  const seconds = (field) => points.map((point) => (point[field] === null || point[field] === undefined ? null : point[field] / 1000));
  const times = points.map((point) => point.at);
  return panel(
    "Last six hours",
    el.div(
      { class: "charts" },
      lineChart({ title: "Duration and wait, on average", unit: "seconds", times, series: [{ name: "run", kind: "a", values: seconds("run_ms") }, { name: "wait", kind: "b", values: seconds("wait_ms") }] }),
      lineChart({ title: "Ended", times, series: [{ name: "completed", kind: "a", values: points.map((point) => point.completed) }, { name: "failed", kind: "c", values: points.map((point) => point.failed) }, { name: "dead", kind: "d", values: points.map((point) => point.dead) }] }),
    ),
  );
}

function setLimits(each, then) {
  const { limit, effective } = each;
  const told = limit.rate ? `${limit.rate.count}/${limit.rate.seconds}s` : "";
  const before = { concurrency: limit.concurrency ?? "", rate: told, tenant_concurrency: limit.per_tenant ?? "", max_attempts: effective.max_attempts, timeout: `${effective.timeout}s` };
  ask({
    title: `Limits and retries of ${each.name}`,
    text: "What is set here stands above the code until it is reset. `none` lifts a limit; an empty field is what code or default say.",
    fields: [
      { name: "concurrency", label: "At once, over all workers", value: before.concurrency, hint: "any number" },
      { name: "rate", label: "Rate, such as 100/m", value: before.rate, hint: "as fast as possible" },
      { name: "tenant_concurrency", label: "At once per tenant", value: before.tenant_concurrency, hint: "any number" },
      { name: "max_attempts", label: "Attempts, 1 to 20", value: before.max_attempts },
      { name: "timeout", label: "Timeout, such as 10m", value: before.timeout },
      WHY,
    ],
    yes: "Set",
    async run({ why, ...given }) {
      const changed = Object.entries(given).filter(([name, value]) => String(value) !== String(before[name]));
      if (!changed.length) return "Nothing was changed";
      await api.put(api.at("types", each.name), { settings: Object.fromEntries(changed.map(([name, value]) => [name, value === "" ? null : value])), why });
      then();
      return `Set for ${each.name}: ${changed.map(([name]) => name).join(", ")}`;
    },
  });
}

function setBreaker(each, then) {
  ask({
    title: `Circuit breaker of ${each.name}`,
    text: "Open, it lets no job through but a probe now and then; closed, it never opens by itself; left to outcomes, it opens when most runs fail.",
    fields: [{ name: "state", label: "State", type: "select", value: "auto", options: [["auto", "left to outcomes"], ["open", "open"], ["close", "closed"]] }, WHY],
    yes: "Set",
    async run(form) {
      const told = await api.post(api.at("types", each.name, "breaker"), form);
      then();
      return `The circuit breaker of ${told.name} is ${told.open ? "open" : "closed"}`;
    },
  });
}
