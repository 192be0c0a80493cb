// What can be done to jobs? Each verb is asked for, done, and told of; many at once with a count before.

import * as api from "./api.js";
import { el } from "./dom.js";
import { number, plural, span } from "./format.js";
import { runOperation } from "./operations.js";
import { ask, WHY } from "./ui.js";

// Every action by its command, as the server declares it: where it is done, who may, in which states, in which words.
const declared = {};
export async function load() {
  for (const each of (await api.get("/actions")).actions) declared[each.command] = each;
}
export const known = (name) => declared[name];
export const titleOf = (name) => name[0].toUpperCase() + name.slice(1);
// What can be done to many jobs; most of it needs no more than a reason.
const ASKED = ["why", "confirm", "payload"];
export const bulkActions = () => Object.values(declared).filter((each) => each.bulk);
const own = (name) => declared[name].fields.filter((field) => !ASKED.includes(field.name));
const ownValues = (name, values) => Object.fromEntries(own(name).filter((field) => values[field.name]).map((field) => [field.name, field.kind === "number" ? Number(values[field.name]) : values[field.name]]));
const pastOf = (name, values) => declared[name].past.replace(/{(\w+)}/g, (_, field) => values[field]);
// Actions on one job that need no more than a reason, besides those that are named.
export const others = (named) => Object.values(declared).filter((each) => each.path.startsWith("jobs/{") && !named.includes(each.name) && each.fields.every((field) => ASKED.includes(field.name))).map((each) => each.name);
// Whether the one who looks may do it to a job as it is now.
export const applies = (name, job) => Boolean(declared[name]?.states.includes(job.state) && api.may(declared[name].need));

// Do it. A text goes out as it was written, so that no number in it is rounded on its way.
export function perform(name, target, given = {}) {
  const { method, path } = declared[name];
  const parts = path.split("/").map((part) => (part.startsWith("{") ? target : part));
  return api.send(method, api.at(...parts), given);
}

const explained = (name) => declared[name].explained.split("\n\n")[0].replaceAll("\n", " ");
const takes = (name, field) => declared[name].fields.some((each) => each.name === field);
const CONFIRM = { name: "confirm", label: "I have looked at them (needed for types marked as sensitive)", type: "checkbox", idle: true };
// Beside the dialog's own "Cancel".
const yesOf = (name) => (name === "cancel" ? "Cancel the job" : titleOf(name));

// One verb for one job.
export function actOn(job, verb, then) {
  ask({
    title: `${titleOf(verb)} this job of ${job.type}?`,
    text: explained(verb),
    fields: takes(verb, "confirm") ? [WHY, CONFIRM] : [WHY],
    yes: yesOf(verb),
    danger: declared[verb].danger,
    async run(given) {
      const acted = await perform(verb, job.id, given);
      then?.();
      return acted.done ? `The job is ${acted.state}` : "Its worker was asked to stop it";
    },
  });
}

// One verb for all jobs of a filter: an operation, which goes on though the page is closed.
export function actOnMany({ verb, filter, title, limit = null, rate = "", then }) {
  const form = ({ limit: most, rate: pace, why, confirm, ...values }) => ({
    action: verb,
    filter,
    why,
    ...ownValues(verb, values),
    ...(takes(verb, "confirm") && { confirm }),
    ...(most && { limit: Number(most) }),
    ...(pace && { rate: Number(pace) }),
  });
  const isBlank = (values) => own(verb).length > 0 && !own(verb).some((field) => values[field.name]);
  const count = (values) => api.post("/jobs/actions", { ...form(values), rate: undefined, dry_run: true });
  ask({
    title: title ?? `${titleOf(verb)} all of these?`,
    text: explained(verb),
    fields: [
      ...own(verb).map(({ name, kind, label, required, minimum: min, maximum: max }) => ({ name, label, type: kind === "number" ? kind : "text", value: "", required, min, max })),
      { name: "limit", label: "How many, oldest first", type: "number", value: limit ?? "", hint: "all of them", min: 1 },
      { name: "rate", label: "Jobs per second", type: "number", value: rate, hint: "as fast as possible", min: 0.01, step: "any" },
      WHY,
      ...(takes(verb, "confirm") ? [CONFIRM] : []),
    ],
    yes: yesOf(verb),
    danger: declared[verb].danger,
    async preview(values) {
      if (isBlank(values)) return null;
      const found = await count(values);
      const takes = values.rate && found.matched ? `, in ${found.at_least ? "more than" : "about"} ${span(found.matched / Number(values.rate))}` : "";
      return [el.b({ "data-count": found.matched }, many(found)), ` will be ${pastOf(verb, values)}${takes}`];
    },
    leave: "Close, and let it go on",
    async run(values, { signal, progress }) {
      if (isBlank(values)) throw new Error(`fill in ${own(verb).map((field) => field.name).join(" or ")}`);
      try {
        const { state, reached } = await runOperation(form(values), signal, progress);
        return `${state === "stopped" ? "Stopped: " : ""}${told(reached, pastOf(verb, values))}`;
      } finally {
        then?.();
      }
    },
  });
}

// A count that was not over in time says so.
const many = ({ matched, at_least: more }) => `${more ? "at least " : ""}${plural(matched, "job")}`;

function told(done, past) {
  const parts = [`${plural(done.done, "job")} ${past}`];
  if (done.asked) parts.push(`${number(done.asked)} asked of their workers`);
  if (done.moved_on) parts.push(`${number(done.moved_on)} had moved on by then`);
  if (done.refused) parts.push(`${number(done.refused)} refused: ${done.refusals[0]}`);
  return parts.join("; ");
}
