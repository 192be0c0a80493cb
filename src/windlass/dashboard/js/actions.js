// What can be done to jobs? Each verb is asked for, done, and told of; many at once with a count before.

import * as api from "./api.js";
import { el } from "./dom.js";
import { number, plural, span } from "./format.js";
import { runOperation } from "./operations.js";
import { ask, WHY } from "./ui.js";

export const VERBS = {
  replay: { yes: "Replay", done: "replayed", states: ["dead"] },
  cancel: { yes: "Cancel the job", done: "cancelled", states: ["pending", "processing"], danger: true },
  bury: { yes: "Bury", done: "moved to the dead letters", states: ["pending", "processing"], danger: true },
  discard: { yes: "Discard", done: "discarded", states: ["dead"], danger: true },
};
export const TITLES = { replay: "Replay", cancel: "Cancel", bury: "Bury", discard: "Discard" };

const EXPLAINED = {
  replay: "The job runs again with its attempts anew; its history is kept.",
  cancel: "A waiting job ends as cancelled; a running one is stopped by its worker.",
  bury: "The job goes to the dead letters, from where it can be replayed.",
  discard: "The job is closed for good. Its record stays until its retention ends.",
};
const CONFIRM = { name: "confirm", label: "I have looked at them (needed for types marked as sensitive)", type: "checkbox", idle: true };

// One verb for one job.
export function actOn(job, verb, then) {
  ask({
    title: `${TITLES[verb]} this job of ${job.type}?`,
    text: EXPLAINED[verb],
    fields: verb === "replay" ? [WHY, CONFIRM] : [WHY],
    yes: VERBS[verb].yes,
    danger: VERBS[verb].danger,
    async run({ why, confirm }) {
      const acted = await api.post(api.at("jobs", job.id, verb), verb === "replay" ? { why, confirm } : { why });
      then?.();
      return acted.done ? `The job is ${acted.state}` : "Its worker was asked to stop it";
    },
  });
}

// One verb for all jobs of a filter: an operation, which goes on though the page is closed.
export function actOnMany({ verb, filter, title, limit = null, rate = "", then }) {
  const form = ({ limit: most, rate: pace, why, confirm }) => ({
    action: verb,
    filter,
    why,
    ...(verb === "replay" && { confirm }),
    ...(most && { limit: Number(most) }),
    ...(pace && { rate: Number(pace) }),
  });
  const count = (values) => api.post("/jobs/actions", { ...form(values), rate: undefined, dry_run: true });
  ask({
    title: title ?? `${TITLES[verb]} all of these?`,
    text: EXPLAINED[verb].replace("The job is", "Jobs are").replace("The job goes", "They go").replace("The job runs", "They run"),
    fields: [
      { name: "limit", label: "How many, oldest first", type: "number", value: limit ?? "", hint: "all of them", min: 1 },
      { name: "rate", label: "Jobs per second", type: "number", value: rate, hint: "as fast as possible", min: 0.01, step: "any" },
      WHY,
      ...(verb === "replay" ? [CONFIRM] : []),
    ],
    yes: VERBS[verb].yes,
    danger: VERBS[verb].danger,
    async preview(values) {
      const found = await count(values);
      const takes = values.rate && found.matched ? `, in ${found.at_least ? "more than" : "about"} ${span(found.matched / Number(values.rate))}` : "";
      return [el.b({ "data-count": found.matched }, many(found)), ` will be ${VERBS[verb].done}${takes}`];
    },
    leave: "Close, and let it go on",
    async run(values, { signal, progress }) {
      try {
        const { state, reached } = await runOperation(form(values), signal, progress);
        return `${state === "stopped" ? "Stopped: " : ""}${told(reached, verb)}`;
      } finally {
        then?.();
      }
    },
  });
}

// A count that was not over in time says so.
const many = ({ matched, at_least: more }) => `${more ? "at least " : ""}${plural(matched, "job")}`;

function told(done, verb) {
  const parts = [`${plural(done.done, "job")} ${VERBS[verb].done}`];
  if (done.asked) parts.push(`${number(done.asked)} asked of their workers`);
  if (done.moved_on) parts.push(`${number(done.moved_on)} had moved on by then`);
  if (done.refused) parts.push(`${number(done.refused)} refused: ${done.refusals[0]}`);
  return parts.join("; ");
}
