// Who works, on what, and how are they?

import { perform } from "../actions.js";
import * as api from "../api.js";
import { gauge } from "../chart.js";
import { el } from "../dom.js";
import { bytes, number, plural } from "../format.js";
import { ask, badge, button, count, empty, jobLink, panel, table, time, typeLink, WHY } from "../ui.js";

const MOST_JOBS = 200;

export default function workers(context) {
  const look = context.refresh(async () => {
    const [{ workers: all }, { jobs }] = await Promise.all([api.get("/workers", {}, context.signal), api.get("/jobs", { state: "processing", limit: MOST_JOBS }, context.signal)]);
    const shown = context.name ? all.filter((each) => each.id.startsWith(context.name)) : all;
    // Who has gone in order is no news.
    const [gone, here] = context.name ? [[], shown] : [shown.filter((each) => each.state === "stopped"), shown.filter((each) => each.state !== "stopped")];
    context.show(
      el.h1("Workers", context.name && [" · ", context.name]),
      context.name ? el.p(el.a({ href: "#/workers" }, "All workers")) : el.p({ class: "muted" }, summary(all)),
      here.length ? list("Workers, newest first", here, look) : empty(gone.length ? "No worker is running" : "No worker has been here yet", "windlass worker start myapp:queue"),
      pools(shown),
      panel("Running jobs", running(jobs.filter((job) => shown.some((each) => each.id === job.worker)), all)),
      gone.length > 0 && el.details({ class: "panel" }, el.summary(`${plural(gone.length, "worker")} stopped lately`), list("Workers that stopped", gone, look)),
    );
  }, 3);
}

const stateOf = (each) => badge(each.alive ? each.state : each.state === "running" ? "silent" : each.state, each.alive ? undefined : each.state === "running" ? "bad" : "calm");

function summary(all) {
  const alive = all.filter((each) => each.alive);
  const sum = (name) => alive.reduce((total, each) => total + (each[name] ?? 0), 0);
  return `${number(alive.length)} alive, ${number(sum("busy"))} of ${plural(sum("slots"), "slot")} busy${sum("resident_bytes") ? `, ${bytes(sum("resident_bytes"))} of memory` : ""}`;
}

function list(caption, all, look) {
  return table(
    caption,
    [
      { name: "Worker", cell: (each) => el.a({ href: `#/workers/${encodeURIComponent(each.id)}`, class: "mono" }, each.id) },
      { name: "State", cell: (each) => [stateOf(each), each.deaf && badge("not notified", "warn"), each.held > 0 && badge(`${each.held} held`, "warn")] },
      { name: "Busy", cell: (each) => gauge(each.busy / each.slots, `${each.busy} of ${each.slots} slots busy`) },
      { name: "Slots", class: "number", cell: (each) => `${number(each.busy)} / ${number(each.slots)}` },
      { name: "Memory", class: "number", cell: (each) => bytes(each.alive ? each.resident_bytes : null) },
      { name: "Done", class: "number", cell: (each) => count(each.done) },
      { name: "Failed", class: "number", cell: (each) => count(each.failed) },
      all.some((each) => each.late > 0) && { name: "Late", class: "number", cell: (each) => number(each.late) },
      { name: "Beat", class: "number", cell: (each) => time(each.beat_at) },
      { name: "Started", class: "number", cell: (each) => time(each.started_at) },
      { name: "Version", cell: (each) => each.version },
      { name: "Types", cell: (each) => el.span({ title: each.types.join(", ") }, each.types.length > 1 ? plural(each.types.length, "type") : each.types.join(", ")) },
      api.may("operate") && {
        name: "Actions", class: "row-actions",
        cell: (each) => each.alive && each.state !== "draining" && button("Drain", () => drain(each, look), { kind: "small", "aria-label": `Drain ${each.id}` }),
      },
    ].filter(Boolean),
    all,
  );
}

// How full each pool is, over all workers that have it; one alone says no more than the workers do.
function pools(all) {
  // By whatever name: as a property of an object some would be taken from the start.
  const found = new Map();
  for (const { pools: own } of all.filter((each) => each.alive)) {
    for (const [name, { slots, busy, held }] of Object.entries(own)) {
      const pool = found.get(name) ?? { name, workers: 0, slots: 0, busy: 0, held: 0 };
      found.set(name, pool);
      pool.workers += 1;
      pool.slots += slots;
      pool.busy += busy;
      pool.held += held;
    }
  }
  const rows = [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  return rows.length > 1 && panel("Pools", table(
    "Pools",
    [
      { name: "Pool", cell: (each) => [each.name, each.held > 0 && badge(`${each.held} held`, "warn")] },
      { name: "Workers", class: "number", cell: (each) => number(each.workers) },
      { name: "Busy", cell: (each) => gauge(each.busy / each.slots, `${each.busy} of ${each.slots} slots busy`) },
      { name: "Slots", class: "number", cell: (each) => `${number(each.busy)} / ${number(each.slots)}` },
    ],
    rows,
  ));
}

function drain(each, then) {
  ask({
    title: `Drain ${each.host} · ${each.pid}?`,
    text: "It takes no more jobs, finishes what it runs, and exits. Whoever started it may start another one.",
    fields: [WHY],
    yes: "Drain",
    async run({ why }) {
      const { worker } = await perform("worker drain", each.id, { why });
      then();
      return `${worker} was asked to finish and exit`;
    },
  });
}

function running(jobs, all) {
  if (!jobs.length) return empty("Nothing runs");
  const name = Object.fromEntries(all.map((each) => [each.id, `${each.host} · ${each.pid}`]));
  return table(
    "Running jobs",
    [
      { name: "Job", cell: (job) => jobLink(job.id) },
      { name: "Type", cell: (job) => typeLink(job.type) },
      { name: "Worker", cell: (job) => name[job.worker] ?? job.worker },
      { name: "Attempt", class: "number", cell: (job) => `${job.attempts}/${job.max_attempts}` },
      { name: "Since", class: "number", cell: (job) => time(job.started_at) },
      { name: "Lease until", class: "number", cell: (job) => time(job.lease_until) },
    ],
    jobs,
  );
}
