// What has been given up, and why? Grouped by type and error, so that a thousand deaths are one line.

import { actOnMany } from "../actions.js";
import * as api from "../api.js";
import { sparkline } from "../chart.js";
import { el } from "../dom.js";
import { number, plural } from "../format.js";
import { quoted } from "../search.js";
import { button, empty, explainError, jobLink, note, table, time, typeLink } from "../ui.js";

const A_FEW = 5;

export default function dead(context) {
  const only = context.query.get("type");
  const state = { groups: null, capped: false, tracebacks: {} };
  // Every few seconds, and not with every job that dies: to group them is to read thousands.
  const look = context.refresh(async () => {
    Object.assign(state, await api.get("/dlq/groups", only ? { type: only } : {}, context.signal));
    draw();
  }, 3);
  // What finds exactly the jobs of a group, for actions and as a line for the list.
  const filterOf = (group) => ({ state: ["dead"], type: [group.type], error: group.match });
  const lineOf = (group) => `state:dead type:${group.type} error:${quoted(group.match)}`;

  // Of the newest one, when somebody wants to see it.
  async function readTraceback({ sample }) {
    if (sample in state.tracebacks) return;
    state.tracebacks[sample] = "Loading…";
    try {
      const { history } = await api.get(api.at("jobs", sample), {}, context.signal);
      state.tracebacks[sample] = history?.findLast((attempt) => attempt.error)?.error.traceback || "It has none";
    } catch (error) {
      delete state.tracebacks[sample];
      note(explainError(error), "bad");
    }
    draw();
  }
  const traceback = (group) =>
    el.details(
      { ontoggle: (event) => event.target.open && readTraceback(group) },
      el.summary(el.span({ class: "error-text", title: group.error }, group.error.split(".").pop()), group.message && el.span({ class: "muted said" }, group.message)),
      group.sample in state.tracebacks && el.pre({ class: "traceback", tabindex: "0", "aria-label": "Traceback" }, state.tracebacks[group.sample]),
    );

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
        { name: "Error", class: "story-of", cell: traceback },
        { name: "Jobs", class: "number", cell: (group) => el.a({ href: `#/jobs?q=${encodeURIComponent(lineOf(group))}` }, number(group.count)) },
        { name: "Seen", cell: (group) => el.div({ class: "nowrap" }, el.div("last ", time(group.last)), el.div({ class: "muted" }, "first ", time(group.first))) },
        { name: "Over time", cell: (group) => sparkline(group.spark, `Deaths over time: ${group.spark.join(", ")}`) },
        { name: "Sample", cell: (group) => jobLink(group.sample, `${group.sample.slice(0, 8)}…`) },
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
