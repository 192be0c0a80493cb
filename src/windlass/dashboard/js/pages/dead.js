// What has been given up, and why? Grouped by type and error, so that a thousand deaths are one line.

import { actOnMany } from "../actions.js";
import * as api from "../api.js";
import { sparkline } from "../chart.js";
import { el } from "../dom.js";
import { now, number, plural } from "../format.js";
import { quoted } from "../query.js";
import { button, empty, jobLink, table, time, typeLink } from "../ui.js";

const A_FEW = 5;
const HOURS = 24;

export default function dead(context) {
  const only = context.query.get("type");
  const state = { groups: null, capped: false };
  // Every few seconds, and not with every job that dies: to group them is to read thousands.
  const look = context.refresh(async () => {
    const told = await api.maybe("/dlq/groups", only ? { type: only } : {}, context.signal);
    const { groups, capped = false } = told ?? (await grouped(context.signal));
    Object.assign(state, { groups: groups.filter((each) => !only || each.type === only), capped });
    draw();
  }, 3);
  // What finds exactly the jobs of a group, for actions and as a line for the list.
  const filterOf = (group) => ({ state: ["dead"], type: [group.type], ...(group.error && { error: group.match ?? group.error }) });
  const lineOf = (group) => `state:dead type:${group.type}${group.error ? ` error:${quoted(group.match ?? group.error)}` : ""}`;

  function act(group, verb, more = {}) {
    actOnMany({ verb, filter: filterOf(group), then: look, ...more });
  }
  function draw() {
    const count = state.groups.reduce((sum, group) => sum + group.count, 0);
    context.show(
      el.h1("Dead letters", only && [" of ", typeLink(only)]),
      only && el.p(el.a({ href: "#/dead" }, "All types")),
      state.groups.length
        ? [el.p({ class: "muted" }, `${plural(count, "job")} in ${plural(state.groups.length, "group")}${state.capped ? ", of the newest ones" : ""}. Replay a few first; if they complete, replay the rest at a rate that the dependency can take.`), list()]
        : empty("No dead letters. A job lands here when its attempts are used up, or when it says that no attempt can help."),
    );
  }
  const list = () =>
    table(
      "Dead letters by type and error",
      [
        { name: "Type", cell: (group) => typeLink(group.type) },
        { name: "Error", cell: (group) => el.div(el.div({ class: "error-text", title: group.error }, group.error.split(".").pop() || "by hand"), group.message && el.div({ class: "muted clip" }, group.message)) },
        { name: "Jobs", class: "number", cell: (group) => el.a({ href: `#/jobs?q=${encodeURIComponent(lineOf(group))}` }, number(group.count)) },
        { name: "Seen", cell: (group) => el.div({ class: "nowrap" }, el.div("last ", time(group.last)), el.div({ class: "muted" }, "first ", time(group.first))) },
        { name: "Over time", cell: (group) => sparkline(group.spark, `Deaths over time: ${group.spark.join(", ")}`) },
        { name: "Sample", cell: (group) => jobLink(sampleOf(group), `${sampleOf(group).slice(0, 8)}…`) },
        api.may("operate") && {
          name: "Actions", class: "row-actions",
          cell: (group) => [
            button(`Replay ${Math.min(A_FEW, group.count)}`, () => act(group, "replay", { limit: A_FEW, title: "Replay a few first?" }), { kind: "small", "aria-label": `Replay a few of ${group.type}, ${group.error}` }),
            button("Replay all", () => act(group, "replay", { rate: 10, title: "Replay the whole group?" }), { kind: "small primary", "aria-label": `Replay all of ${group.type}, ${group.error}` }),
            button("Discard", () => act(group, "discard", { title: "Discard the whole group?" }), { kind: "small danger", "aria-label": `Discard all of ${group.type}, ${group.error}` }),
          ],
        },
      ].filter(Boolean),
      state.groups,
      { key: (group) => `${group.type} ${group.error}` },
    );
}

const sampleOf = ({ sample }) => (typeof sample === "string" ? sample : sample.id);

// Where the server does not group them: the newest thousand, grouped here.
async function grouped(signal) {
  const groups = new Map();
  let cursor = null;
  let left = 1000;
  do {
    const page = await api.get("/jobs", { state: "dead", limit: Math.min(200, left), cursor }, signal);
    page.jobs.forEach((job) => add(groups, job));
    left -= page.jobs.length;
    cursor = page.next;
  } while (cursor && left > 0);
  return { groups: [...groups.values()].sort((a, b) => b.count - a.count), capped: cursor !== null };
}

function add(groups, job) {
  const error = job.error?.class ?? job.error?.reason ?? "";
  const at = job.finished_at ?? job.updated_at;
  const group = groups.get(`${job.type} ${error}`) ?? { type: job.type, error, count: 0, first: at, last: at, sample: job.id, message: job.error?.message ?? "", spark: Array(HOURS).fill(0) };
  group.count += 1;
  if (at < group.first) group.first = at;
  if (at > group.last) group.last = at;
  const hours = Math.floor((now() - Date.parse(at)) / 3600e3);
  if (hours >= 0 && hours < HOURS) group.spark[HOURS - 1 - hours] += 1;
  groups.set(`${job.type} ${error}`, group);
}
