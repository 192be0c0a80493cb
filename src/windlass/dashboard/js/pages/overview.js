// Is all well, and if not: what is wrong, and for how long?

import * as api from "../api.js";
import { gauge, lineChart, sparkline } from "../chart.js";
import { el } from "../dom.js";
import { ageOf, number, percent, serverSays, short, span } from "../format.js";
import { live } from "../live.js";
import { badge, command, empty, jobLink, oldest, panel, table, time, typeLink } from "../ui.js";

const RANGES = [["1h", 3600, "minute"], ["6h", 6 * 3600, "minute"], ["24h", 86400, "hour"], ["7d", 7 * 86400, "hour"]];

export default function overview(context) {
  const state = { stats: null, workers: [], history: null, range: context.query.get("range") ?? "1h" };
  const draw = () => state.stats && context.show(view(state, choose));
  function choose(range) {
    state.range = range;
    history.replaceState(null, "", `#/overview?range=${range}`);
    look();
  }
  async function readHistory() {
    const [, seconds, step] = RANGES.find(([name]) => name === state.range) ?? RANGES[0];
    const from = new Date(Date.now() - seconds * 1000).toISOString();
    state.history = await api.get("/stats/history", { from, step }, context.signal);
  }
  const look = context.refresh(async () => {
    const [stats, { workers }] = await Promise.all([api.get("/stats", {}, context.signal), api.get("/workers", {}, context.signal), readHistory()]);
    serverSays(stats.now);
    Object.assign(state, { stats, workers });
    draw();
  }, 5);
  // Counts change at once; ages and history with the next look.
  context.on("stats", (told) => {
    if (!state.stats) return;
    const types = state.stats.types.map((each) => ({ ...each, ...told.types?.[each.name] }));
    state.stats = { ...state.stats, ...told, types, oldest_due: state.stats.oldest_due };
    draw();
  });
  // A hundred of them may come at once.
  let drawing = null;
  context.on("failure", () => {
    drawing ??= requestAnimationFrame(() => {
      drawing = null;
      draw();
    });
  });
}

function view(state, choose) {
  const { stats } = state;
  return [
    el.h1({ class: "hidden" }, "Overview"),
    verdict(stats),
    tiles(stats),
    charts(state, choose),
    panel(["Types", el.a({ href: "#/types" }, "All about types")], types(state)),
    el.div({ class: "columns" }, panel("Priority bands", bands(stats)), panel(["Workers", el.a({ href: "#/workers" }, "All workers")], workers(state.workers)), panel("Newest failures", failures())),
  ];
}

// --- the verdict --------------------------------------------------------------------------------

const CAUSES = {
  no_worker: "no worker", unserved: "not served", dependency: "dependency down", poison: "failing jobs", paused: "paused", held: "limit",
  stopped: "stopped", not_promoted: "not let in", mismatch: "not done", unverified: "not verified", starved: "starved",
  too_few_workers: "too few workers", idle: "workers idle", stuck: "stuck", backlog: "backlog", silent: "worker silent", dead: "dead letters",
};

function verdict({ verdict: told, warnings }) {
  if (!told) return el.div({ class: "verdict notice" }, warnings[0] ?? "Healthy");
  // The worst is the headline; the others stand below it.
  const [first, ...others] = told.state === "trouble" ? told.findings : [null, ...told.findings];
  const title = { healthy: "Healthy", notice: "Healthy", trouble: "Trouble" }[told.state];
  return el.section(
    { class: `verdict ${told.state}`, "aria-label": "Verdict", "data-state": told.state, "data-cause": first?.cause },
    el.p(
      { class: "sentence", role: "status" },
      el.span({ class: "mark", "aria-hidden": "true" }),
      el.span(el.span({ class: "hidden" }, `${title}. `), el.strong(told.sentence), told.since && el.span({ class: "since" }, " for ", el.time({ datetime: told.since }, lasting(told.since)))),
    ),
    first && el.p({ class: "remedy" }, badge(CAUSES[first.cause] ?? first.cause, "bad"), remedy(first)),
    others.length > 0 &&
      el.ul(
        others.slice(0, 8).map((each) =>
          el.li(
            { "data-cause": each.cause },
            badge(CAUSES[each.cause] ?? each.cause, each.grave ? "bad" : "calm"),
            el.span({ class: "found" }, each.sentence, each.since ? el.span({ class: "muted" }, ` · for ${lasting(each.since)}`) : null),
            remedy(each),
          ),
        ),
      ),
  );
}

const lasting = (since) => span(Math.max(1, Math.round(ageOf(since))));
const remedy = (each) => el.span({ class: "mend" }, each.type ? el.a({ href: place(each) }, "look") : null, each.mend ? command(each.mend) : null);

function place({ cause, type }) {
  if (cause === "dead" || cause === "poison") return `#/dead?type=${encodeURIComponent(type)}`;
  if (cause === "dependency") return `#/jobs?q=${encodeURIComponent(`type:${type} state:retrying`)}`;
  return `#/types/${encodeURIComponent(type)}`;
}

// --- numbers ------------------------------------------------------------------------------------

function tiles(stats) {
  const { counts, fleet } = stats;
  const jobs = (state) => `#/jobs?q=${encodeURIComponent(`state:${state}`)}`;
  const shown = [
    ["Due", short(counts.due), jobs("due"), "due", counts.due],
    ["Oldest wait", span(stats.oldest_due), jobs("due"), "oldest", null, stats.oldest_due > 60],
    ["Running", short(counts.processing), jobs("processing"), "processing", counts.processing],
    ["Slots busy", `${short(fleet.busy)} / ${short(fleet.slots)}`, "#/workers", "slots"],
    ["Retrying", short(counts.retrying), jobs("retrying"), "retrying", counts.retrying],
    ["Scheduled", short(counts.scheduled + counts.waiting), jobs("scheduled"), "scheduled", counts.scheduled],
    ["Dead", short(counts.dead), "#/dead", "dead", counts.dead, counts.dead > 0],
    ["Completed", `${short(counts.completed)}${stats.capped ? "+" : ""}`, jobs("completed"), "completed", counts.completed],
  ];
  return el.div(
    { class: "tiles" },
    shown.map(([name, value, href, id, exact, bad]) =>
      el.a({ href, class: `tile${bad ? " bad" : ""}`, title: exact === null || exact === undefined ? null : number(exact) }, el.span({ class: "tile-name" }, name), el.span({ class: "tile-value", "data-live": id }, value)),
    ),
  );
}

function types({ stats, history }) {
  if (!stats.types.length) return empty("No jobs and no types yet. A first one:", "windlass run -- echo hello");
  const recent = recentByType(history);
  const rows = [...stats.types].sort((a, b) => weight(b) - weight(a) || a.name.localeCompare(b.name)).slice(0, 50);
  return table(
    "Types",
    [
      { name: "Type", cell: (each) => typeLink(each.name) },
      { name: "State", cell: (each) => stateOfType(each) },
      { name: "Due", class: "number", cell: (each) => number(each.counts.due) },
      { name: "Oldest", class: "number", cell: (each) => (each.oldest_due === null ? "–" : oldest(new Date(Date.parse(stats.now) - each.oldest_due * 1000).toISOString())) },
      { name: "Running", class: "number", cell: (each) => number(each.counts.processing) },
      { name: "Retrying", class: "number", cell: (each) => number(each.counts.retrying) },
      { name: "Dead", class: "number", cell: (each) => (each.counts.dead ? el.a({ href: `#/dead?type=${encodeURIComponent(each.name)}`, class: "late" }, number(each.counts.dead)) : "0") },
      { name: "Errors", class: "number", cell: (each) => percent(recent[each.name]?.errors ?? null) },
      { name: "Completed", cell: (each) => (recent[each.name] ? sparkline(recent[each.name].completed, `Completed jobs of ${each.name} over time`) : "–") },
      { name: "Workers", class: "number", cell: (each) => number(each.workers) },
    ],
    rows,
    { key: (each) => each.name },
  );
}

const weight = ({ counts }) => counts.due + counts.processing * 10 + counts.retrying * 5 + counts.dead * 5;

export function stateOfType(each) {
  if (each.paused) return badge("paused");
  if (each.breaker?.open) return badge("breaker open", "bad");
  if (!each.workers && each.counts.due) return badge("no worker", "bad");
  return badge(each.workers ? "open" : "no worker", each.workers ? "good" : "calm");
}

export function recentByType(history) {
  return Object.fromEntries(
    history.series.map(({ type, points }) => {
      const sum = (name) => points.reduce((total, point) => total + (point[name] ?? 0), 0);
      const ended = sum("completed") + sum("failed");
      return [type, { completed: squeeze(points.map((point) => point.completed ?? 0), 24), errors: ended ? sum("failed") / ended : null }];
    }),
  );
}

function squeeze(values, count) {
  if (values.length <= count) return values;
  const size = values.length / count;
  return Array.from({ length: count }, (_, index) => values.slice(Math.floor(index * size), Math.floor((index + 1) * size)).reduce((sum, value) => sum + value, 0));
}

function bands(stats) {
  const shown = stats.bands ?? [];
  if (!shown.length) return empty("No job is due");
  const most = Math.max(1, ...shown.map((each) => each.due));
  return table(
    "Due jobs by priority",
    [
      { name: "Priority", class: "number", cell: (each) => each.priority },
      { name: "Due", class: "number", cell: (each) => el.a({ href: "#/jobs?q=state%3Adue" }, number(each.due)) },
      { name: "", cell: (each) => gauge(each.due / most, `${each.due} due`) },
      { name: "Oldest", class: "number", cell: (each) => [el.span({ class: each.oldest > 60 ? "late" : "" }, span(each.oldest)), each.starved && [" ", badge("starved", "warn")]] },
    ],
    shown,
    { key: (each) => each.priority },
  );
}

function workers(all) {
  const alive = all.filter((each) => each.alive);
  if (!alive.length) return empty("No worker is running", "windlass worker start");
  return table(
    "Workers",
    [
      { name: "Worker", cell: (each) => el.span({ title: each.id }, `${each.host} · ${each.pid}`) },
      { name: "Busy", cell: (each) => gauge(each.busy / each.slots, `${each.busy} of ${each.slots} slots busy`) },
      { name: "Slots", class: "number", cell: (each) => `${number(each.busy)} / ${number(each.slots)}` },
      { name: "Beat", class: "number", cell: (each) => time(each.beat_at) },
    ],
    alive.slice(0, 8),
  );
}

function failures() {
  if (!live.failures.length) return empty("None since this page was opened");
  return el.ul(
    { class: "failures" },
    live.failures.slice(0, 8).map((each) =>
      el.li({ key: `${each.id}${each.attempts}${each.state}` }, jobLink(each.id), " ", el.span(each.type), " ", el.span({ class: "muted clip" }, `${each.error?.class ?? each.error?.reason}: ${each.error?.message ?? ""}`)),
    ),
  );
}

// --- over time ----------------------------------------------------------------------------------

function charts({ history, range }, choose) {
  const told = fromHistory(history);
  const note = "Nothing in this time";
  return el.section(
    { class: "panel", "aria-label": "Over time" },
    el.div(
      { class: "panel-head" },
      el.h2("Over time"),
      el.div({ class: "choice", role: "group", "aria-label": "How far back" }, RANGES.map(([name]) => el.button({ type: "button", class: "small", "aria-pressed": String(name === range), onclick: () => choose(name) }, name))),
    ),
    el.div(
      { class: "charts" },
      lineChart({ title: `Throughput${told.per}`, times: told.times, note, series: [{ name: "completed", kind: "a", values: told.completed }, { name: "enqueued", kind: "b", values: told.enqueued }] }),
      lineChart({ title: `Failures${told.per}`, times: told.times, note, series: [{ name: "failed", kind: "c", values: told.failed }, { name: "dead", kind: "d", values: told.dead }] }),
      lineChart({ title: "Wait of the oldest due job", unit: "seconds", times: told.times, note, series: [{ name: "oldest", kind: "a", values: told.oldest }] }),
      lineChart({ title: "Depth", times: told.times, note, series: [{ name: "due", kind: "a", values: told.depth }] }),
    ),
  );
}

// All types together, moment by moment.
function fromHistory({ step, series, from, to }) {
  const moments = new Map();
  for (const { points } of series) {
    for (const point of points) {
      const sum = moments.get(point.at) ?? { completed: 0, enqueued: 0, failed: 0, dead: 0, depth: null, oldest: null };
      for (const name of ["completed", "enqueued", "failed", "dead"]) sum[name] += point[name] ?? 0;
      if (point.depth !== null && point.depth !== undefined) sum.depth = (sum.depth ?? 0) + point.depth;
      if (point.oldest_due_age !== null && point.oldest_due_age !== undefined) sum.oldest = Math.max(sum.oldest ?? 0, point.oldest_due_age);
      moments.set(point.at, sum);
    }
  }
  const length = { minute: 60e3, hour: 3600e3, day: 86400e3 }[step];
  const nothing = { completed: 0, enqueued: 0, failed: 0, dead: 0, depth: null, oldest: null };
  const known = new Map([...moments].map(([at, sum]) => [Math.floor(Date.parse(at) / length), sum]));
  const first = Math.ceil(Date.parse(from) / length);
  const end = Math.floor(Date.parse(to) / length);
  // Without the one of which only a part is meant, and the one that is not over yet: they would look like a fall.
  const slots = Array.from({ length: Math.min(2000, Math.max(0, end - first)) }, (_, index) => first + index);
  const column = (name) => slots.map((slot) => (known.get(slot) ?? nothing)[name]);
  return {
    per: ` per ${step}`, times: slots.map((slot) => new Date(slot * length).toISOString()),
    completed: column("completed"), enqueued: column("enqueued"), failed: column("failed"), dead: column("dead"), depth: column("depth"), oldest: column("oldest"),
  };
}
