// Is all well, and if not: what is wrong, and for how long?

import * as api from "../api.js";
import { gauge, lineChart, sparkline, trend } from "../chart.js";
import { el, icon } from "../dom.js";
import { pauseButton, setBreaker, setLimits, stateOfType } from "../flow.js";
import { ageOf, bytes, number, percent, serverSays, short, span } from "../format.js";
import { live } from "../live.js";
import { badge, button, command, count, empty, jobLink, oldest, panel, table, time, typeLink } from "../ui.js";

const RANGES = [["1h", 3600, "minute"], ["6h", 6 * 3600, "minute"], ["24h", 86400, "hour"], ["7d", 7 * 86400, "hour"]];

export default function overview(context) {
  const state = { stats: null, workers: [], failures: [], looked: "", history: null, range: context.query.get("range") ?? "1h" };
  const draw = () => state.stats && context.show(view(state, choose, look));
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
    const [stats, { workers }, { jobs }] = await Promise.all([api.get("/stats", {}, context.signal), api.get("/workers", {}, context.signal), api.get("/failures", { limit: MOST_FAILURES }, context.signal), readHistory()]);
    serverSays(stats.now);
    Object.assign(state, { stats, workers, failures: jobs, looked: new Date().toISOString() });
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

function view(state, choose, look) {
  const { stats } = state;
  const past = fromHistory(state.history);
  return [
    el.h1({ class: "hidden" }, "Overview"),
    verdict(stats, look),
    tiles(stats, past),
    charts(past, state.range, choose),
    panel(["Types", el.a({ href: "#/types" }, "All about types")], types(state)),
    el.div({ class: "columns" }, el.div(panel("Priority bands", bands(stats)), panel(["Workers", el.a({ href: "#/workers" }, "All workers")], workers(state.workers))), panel("Newest failures", failures(state))),
  ];
}

// --- the verdict --------------------------------------------------------------------------------

const CAUSES = {
  no_worker: "no worker", unserved: "not served", dependency: "dependency down", poison: "failing jobs", paused: "paused", held: "limit",
  stopped: "stopped", not_promoted: "not let in", mismatch: "not done", unverified: "not verified", starved: "starved",
  too_few_workers: "too few workers", idle: "workers idle", stuck: "stuck", backlog: "backlog", silent: "worker silent", missing: "worker missing", deaf: "not notified",
  schedule: "schedule", operation: "operation", dead: "dead letters", unreadable: "unreadable", version: "newer version", replayed: "replayed in vain",
};

function verdict({ verdict: told, types }, look) {
  // The worst is the headline; the others stand below it.
  const [first, ...others] = told.state === "trouble" ? told.findings : [null, ...told.findings];
  const title = { healthy: "Healthy", notice: "Healthy", trouble: "Trouble" }[told.state];
  return el.section(
    { class: `verdict ${told.state}`, "aria-label": "Verdict", "data-state": told.state, "data-cause": first?.cause },
    el.div(
      { class: "headline" },
      el.span({ class: "mark" }, icon(first ? "bad" : "good")),
      el.div(
        el.p({ class: "sentence", role: "status" }, el.span({ class: "hidden" }, `${title}. `), el.strong(told.sentence)),
        first && el.p({ class: "remedy" }, badge(CAUSES[first.cause] ?? first.cause, "bad"), told.since && el.span({ class: "since" }, "for ", el.time({ datetime: told.since }, lasting(told.since))), remedy(first, types, look)),
      ),
    ),
    others.length > 0 &&
      el.ul(
        others.slice(0, MOST_FOUND).map((each) =>
          el.li(
            { "data-cause": each.cause },
            badge(CAUSES[each.cause] ?? each.cause, each.grave ? "bad" : "calm"),
            el.span({ class: "found" }, each.sentence, each.since ? el.span({ class: "muted" }, ` · for ${lasting(each.since)}`) : null),
            remedy(each, types, look),
          ),
        ),
        others.length > MOST_FOUND && el.li(el.span({ class: "muted found" }, `and ${number(others.length - MOST_FOUND)} more: windlass status`)),
      ),
  );
}

const MOST_FOUND = 8;
const lasting = (since) => span(Math.max(1, Math.round(ageOf(since))));
const remedy = (each, types, look) => el.span({ class: "fix" }, deed(each, types, look), each.type || each.cause === "dead" ? el.a({ href: place(each), class: "button small" }, "Look") : null, each.fix ? command(each.fix) : null);

// The button that fixes it, or keeps it from becoming worse, where there is one.
function deed({ cause, type: name }, types, look) {
  const type = types.find((each) => each.name === name);
  if (!type || !api.may("operate")) return null;
  if (type.paused) return pauseButton(type, look, "small", true);
  if (type.breaker?.open) return button("Circuit breaker", () => setBreaker(type, look), { kind: "small primary" });
  if (cause === "dependency" || cause === "poison") return pauseButton(type, look, "small", true);
  if (cause === "held") return button("Limits", () => setLimits(type, look), { kind: "small primary" });
  return null;
}

// Where the command beside it would look: never a list with nothing in it.
function place({ cause, type, fix }) {
  if (cause === "dead" || fix?.startsWith("windlass dlq")) return type ? `#/dead?type=${encodeURIComponent(type)}` : "#/dead";
  const state = fix?.match(/ --state (\w+)/)?.[1];
  if (state) return `#/jobs?q=${encodeURIComponent(`type:${type} state:${state}`)}`;
  return `#/types/${encodeURIComponent(type)}`;
}

// --- numbers ------------------------------------------------------------------------------------

function tiles(stats, past) {
  const { counts, fleet } = stats;
  const jobs = (state) => `#/jobs?q=${encodeURIComponent(`state:${state}`)}`;
  const shown = [
    { id: "due", name: "Due", value: counts.due, href: jobs("due"), over: past.due },
    { id: "oldest", name: "Oldest wait", text: span(stats.oldest_due), href: jobs("due"), over: past.oldest, bad: stats.oldest_due > 60, value: stats.oldest_due },
    { id: "processing", name: "Running", value: counts.processing, href: jobs("processing") },
    { id: "slots", name: "Slots busy", text: `${short(fleet.busy)} / ${short(fleet.slots)}`, href: "#/workers", value: fleet.slots },
    { id: "retrying", name: "Retrying", value: counts.retrying, href: jobs("retrying") },
    { id: "scheduled", name: "Scheduled", value: counts.scheduled + counts.waiting, href: jobs("scheduled") },
    counts.unreadable && { id: "unreadable", name: "Unreadable", value: counts.unreadable, href: jobs("unreadable"), bad: true },
    { id: "dead", name: "Dead", value: counts.dead, href: "#/dead", bad: counts.dead > 0, over: past.dead },
    { id: "completed", name: "Completed", value: counts.completed, text: `${short(counts.completed)}${stats.capped ? "+" : ""}`, href: jobs("completed"), over: past.completed },
  ].filter(Boolean);
  return el.div(
    { class: "tiles" },
    shown.map(({ id, name, value, text, href, over, bad }) =>
      el.a(
        { href, class: `tile${bad ? " bad" : value ? "" : " zero"}`, title: text ? null : number(value) },
        over && trend(over),
        el.span({ class: "tile-name" }, name),
        el.span({ class: "tile-value", "data-live": id }, text ?? short(value)),
      ),
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
      { name: "Due", class: "number", cell: (each) => count(each.counts.due) },
      { name: "Oldest", class: "number", cell: (each) => (each.oldest_due === null ? "–" : oldest(new Date(Date.parse(stats.now) - each.oldest_due * 1000).toISOString())) },
      { name: "Running", class: "number", cell: (each) => count(each.counts.processing) },
      { name: "Retrying", class: "number", cell: (each) => count(each.counts.retrying) },
      { name: "Dead", class: "number", cell: (each) => (each.counts.dead ? el.a({ href: `#/dead?type=${encodeURIComponent(each.name)}`, class: "late" }, number(each.counts.dead)) : count(0)) },
      { name: "Errors", class: "number", cell: (each) => el.span({ class: recent[each.name]?.errors > MANY_ERRORS ? "late" : "" }, percent(recent[each.name]?.errors ?? null)) },
      { name: "Completed", cell: (each) => (recent[each.name] ? sparkline(recent[each.name].completed, `Completed jobs of ${each.name} over time`) : "–") },
      { name: "Workers", class: "number", cell: (each) => count(each.workers) },
    ],
    rows,
    { key: (each) => each.name },
  );
}

const MANY_ERRORS = 0.2;
const weight = ({ counts }) => counts.due + counts.processing * 10 + counts.retrying * 5 + counts.dead * 5;

function recentByType(history) {
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
  if (!alive.length) return empty("No worker is running", "windlass worker start myapp:queue");
  return table(
    "Workers",
    [
      { name: "Worker", cell: (each) => el.span({ title: each.id }, `${each.host} · ${each.pid}`) },
      { name: "Busy", cell: (each) => gauge(each.busy / each.slots, `${each.busy} of ${each.slots} slots busy`) },
      { name: "Slots", class: "number", cell: (each) => `${number(each.busy)} / ${number(each.slots)}` },
      { name: "Memory", class: "number", cell: (each) => bytes(each.resident_bytes) },
      { name: "Beat", class: "number", cell: (each) => time(each.beat_at) },
    ],
    alive.slice(0, 8),
  );
}

// Those of the last look, and those that came since.
function failures({ failures: seen, looked }) {
  const shown = new Map(seen.map((each) => [each.id, { ...each, at: each.updated_at }]));
  for (const each of live.failures.filter(({ at }) => at > looked)) shown.set(each.id, each);
  if (!shown.size) return empty("Nothing has failed");
  return el.ul(
    { class: "failures" },
    [...shown.values()].sort((a, b) => Date.parse(b.at) - Date.parse(a.at)).slice(0, MOST_FAILURES).map((each) =>
      el.li(
        { key: each.id },
        el.span({ class: "failed" }, badge(each.state === "dead" ? "dead" : "retrying"), " ", jobLink(each.id, each.type), el.span({ class: "muted" }, time(each.at))),
        el.span({ class: "muted clip" }, `${(each.error?.class ?? each.error?.reason ?? "").split(".").pop()}: ${each.error?.message ?? ""}`),
      ),
    ),
  );
}

const MOST_FAILURES = 6;

// --- over time ----------------------------------------------------------------------------------

function charts(told, range, choose) {
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
      lineChart({ title: "Depth", times: told.times, note, series: [{ name: "due", kind: "a", values: told.due }] }),
    ),
  );
}

// All types together, moment by moment.
function fromHistory({ step, series, from, to }) {
  const moments = new Map();
  for (const { points } of series) {
    for (const point of points) {
      const sum = moments.get(point.at) ?? { completed: 0, enqueued: 0, failed: 0, dead: 0, due: null, oldest: null };
      for (const name of ["completed", "enqueued", "failed", "dead"]) sum[name] += point[name] ?? 0;
      if (point.due !== null && point.due !== undefined) sum.due = (sum.due ?? 0) + point.due;
      if (point.oldest_due_age !== null && point.oldest_due_age !== undefined) sum.oldest = Math.max(sum.oldest ?? 0, point.oldest_due_age);
      moments.set(point.at, sum);
    }
  }
  const length = { minute: 60e3, hour: 3600e3, day: 86400e3 }[step];
  const nothing = { completed: 0, enqueued: 0, failed: 0, dead: 0, due: null, oldest: null };
  const known = new Map([...moments].map(([at, sum]) => [Math.floor(Date.parse(at) / length), sum]));
  const first = Math.ceil(Date.parse(from) / length);
  const end = Math.floor(Date.parse(to) / length);
  // Without the one of which only a part is meant, and the one that is not over yet: they would look like a fall.
  const slots = Array.from({ length: Math.min(2000, Math.max(0, end - first)) }, (_, index) => first + index);
  const column = (name) => slots.map((slot) => (known.get(slot) ?? nothing)[name]);
  return {
    per: ` per ${step}`, times: slots.map((slot) => new Date(slot * length).toISOString()),
    completed: column("completed"), enqueued: column("enqueued"), failed: column("failed"), dead: column("dead"), due: column("due"), oldest: column("oldest"),
  };
}
