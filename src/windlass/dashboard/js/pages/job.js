// What happened to this job, and why is it not running?

import { actOn, applies, known, others, perform, titleOf } from "../actions.js";
import * as api from "../api.js";
import { el } from "../dom.js";
import { parse, write } from "../api.js";
import { ago, ageOf, moment, number, plural, span, titled } from "../format.js";
import { ask, badge, button, code, explainError, facts, jobLink, note, panel, stateOf, time, tree, typeLink, WHY } from "../ui.js";

const NEVER = "9999";

export default function job(context) {
  const state = { job: null, why: null };
  const look = context.refresh(async () => {
    state.job = await api.get(api.at("jobs", context.name), {}, context.signal);
    if (api.may("see")) state.why = await api.get(api.at("jobs", context.name, "explain"), {}, context.signal);
    draw();
  }, 2);
  const draw = () => context.show(view(state.job, state.why, look));
}

function view(job, why, look) {
  return [
    el.div(
      { class: "title" },
      el.h1(typeLink(job.type), " ", stateOf(job), job.request && badge(`${job.request} asked for`, "warn")),
      el.p({ class: "mono muted" }, job.id, job.key && [" · key ", job.key]),
    ),
    buttons(job, look),
    because(job, why),
    el.div(
      { class: "columns wide-left" },
      el.div(panel("Story", story(job)), job.progress && panel("Progress", progress(job.progress))),
      el.div(
        panel("Payload", tree(job.payload)),
        job.result !== null && job.result !== undefined && panel("Result", tree(job.result)),
        job.result_missing && panel("Result", el.p("Not kept: ", job.result_missing)),
        panel(
          "Facts",
          facts([
            ["Priority", job.priority],
            ["Attempts", `${job.attempts} of ${job.max_attempts}`],
            ["Enqueued", time(job.enqueued_at)],
            job.run_at && !job.run_at.startsWith(NEVER) && ["Run at", time(job.run_at)],
            job.started_at && ["Started", time(job.started_at)],
            job.finished_at && ["Finished", time(job.finished_at)],
            job.started_at && job.finished_at && ["Took", span((Date.parse(job.finished_at) - Date.parse(job.started_at)) / 1000)],
            job.worker && ["Worker", el.a({ href: "#/workers", class: "mono" }, job.worker)],
            job.lease_until && ["Lease until", time(job.lease_until)],
            job.tenant && ["Tenant", job.tenant],
            job.caller && ["Enqueued by", job.caller],
            job.batch && ["Batch", code(job.batch)],
            job.waits_for?.length && ["Waits for", job.waits_for.map((id) => el.div(jobLink(id)))],
            job.rerun_of && ["New run of", jobLink(job.rerun_of)],
            job.replay_count && ["Replayed", plural(job.replay_count, "time")],
            job.snoozes && ["Snoozes", job.snoozes],
            job.interruptions && ["Interrupted", job.interruptions],
            job.losses && ["Workers lost", job.losses],
            ["Schema version", job.schema_version],
            job.traceparent && ["Trace", code(job.traceparent)],
          ]),
        ),
      ),
    ),
  ];
}

// --- how far ---

function progress({ done, total, message, noted_at: at }) {
  const share = total ? Math.floor((done * 100) / total) : null;
  const told = total === null ? number(done) : `${number(done)} of ${number(total)}${share === null ? "" : ` (${share} %)`}`;
  return el.div(
    { class: "progress" },
    message && el.p(message),
    total && el.progress({ value: done, max: total, "aria-label": "Progress" }),
    el.p({ class: "muted" }, told, " · ", time(at)),
  );
}

// --- why ----------------------------------------------------------------------------------------

const PLACES = { type: "types", job: "jobs", worker: "workers", schedule: "schedules", limit: "types", breaker: "types" };

function because(job, told) {
  if (!told || ["completed", "cancelled", "discarded"].includes(job.state)) return null;
  const to = told.link && told.link.name !== job.id && PLACES[told.link.kind];
  return el.section(
    { class: `because ${job.state}`, "aria-label": "Why is it not running?" },
    el.p(
      el.strong(job.state === "processing" ? "It runs. " : "Why is it not running? "),
      el.span({ "data-explained": told.cause }, told.sentence),
      to && [" ", el.a({ href: `#/${to}/${encodeURIComponent(told.link.name)}` }, told.link.name)],
      told.until && el.span({ class: "muted" }, ` · ${ago(told.until)}`),
    ),
    told.blockers?.length > 0 && el.p("Held by: ", told.blockers.slice(0, 10).map((id) => [jobLink(id), " "])),
    told.also?.length > 0 && el.ul(told.also.map((each) => el.li({ class: "muted" }, each))),
  );
}

// --- what can be done ---------------------------------------------------------------------------

// Those that have a place of their own.
const PLACED = ["replay", "cancel", "discard", "rerun"];

function buttons(job, look) {
  const plain = (name, kind) => applies(name, job) && button(titleOf(name), () => actOn(job, name, look), { kind });
  const shown = [
    applies("replay", job) && button("Replay", () => replay(job, look), { kind: "primary" }),
    applies("replay", job) && button("Edit and replay", () => editAndReplay(job, look)),
    applies("rerun", job) && button("Run again", () => runAgain(job)),
    applies("edit", job) && button("Edit payload", () => editPayload(job, look)),
    applies("priority", job) && button("Priority", () => setPriority(job, look)),
    ["scheduled", "retrying"].includes(job.view) && applies("reschedule", job) && button("Run now", () => runNow(job, look)),
    others(PLACED).map((name) => plain(name)),
    plain("cancel", "danger"),
    plain("discard", "danger"),
  ].filter(Boolean);
  return shown.length ? el.div({ class: "actions", role: "toolbar", "aria-label": "Actions" }, shown) : null;
}

// One click; only a type that is marked as sensitive asks first.
async function replay(job, then) {
  try {
    const { state } = await perform("replay", job.id);
    note(`The job is ${state}`);
    then();
  } catch (error) {
    if (error.problem?.type?.endsWith(":confirmation-needed")) actOn(job, "replay", then);
    else note(explainError(error), "bad");
  }
}

const payloadField = (job) => ({ name: "payload", label: "Payload", type: "text-area", value: write(job.payload), rows: 12 });

// The text goes out as it was written, so that no number is rounded on its way.
function checked(text) {
  try {
    parse(text);
    return text;
  } catch (error) {
    throw new Error(`this is not JSON: ${error.message}`);
  }
}

function editAndReplay(job, then) {
  ask({
    title: "Edit and replay",
    text: "The payload must fit the type's schema. The one before stays in the story.",
    wide: true,
    fields: [payloadField(job), WHY, { name: "confirm", label: "I have looked at it (needed for types marked as sensitive)", type: "checkbox" }],
    yes: "Replay",
    async run({ payload, why, confirm }) {
      const body = `{"payload":${checked(payload)},"why":${JSON.stringify(why)},"confirm":${confirm}}`;
      const acted = await perform("replay", job.id, body);
      then();
      return `The job is ${acted.state}, with the new payload`;
    },
  });
}

function editPayload(job, then) {
  ask({
    title: "Edit the payload",
    text: "For a job that waits. The payload before stays in its story.",
    wide: true,
    fields: [payloadField(job), WHY],
    yes: "Save",
    async run({ payload, why }) {
      await perform("edit", job.id, `{"payload":${checked(payload)},"why":${JSON.stringify(why)}}`);
      then();
      return "The payload is changed";
    },
  });
}

function setPriority(job, then) {
  ask({
    title: "Priority",
    fields: [{ name: "priority", label: "0 to 10, higher first", type: "number", value: job.priority, min: 0, max: 10, required: true }, WHY],
    yes: "Set",
    async run({ priority, why }) {
      await perform("priority", job.id, { priority: Number(priority), why });
      then();
      return `The priority is ${priority}`;
    },
  });
}

function runAgain(job) {
  ask({
    title: `Run this job of ${job.type} again?`,
    text: "A new job with the same payload is enqueued; this one stays as it is.",
    fields: [WHY, { name: "confirm", label: "I have looked at it (needed for types marked as sensitive)", type: "checkbox" }],
    yes: "Run again",
    async run({ why, confirm }) {
      const made = await perform("rerun", job.id, { why, confirm });
      location.hash = `#/jobs/${made.id}`;
      return "The new job is pending";
    },
  });
}

function runNow(job, then) {
  ask({
    title: "Run it now?",
    text: "It becomes due at once.",
    fields: [WHY],
    yes: "Run now",
    async run({ why }) {
      await perform("reschedule", job.id, { delay: 0, why });
      then();
      return "The job is due";
    },
  });
}

// --- the story ----------------------------------------------------------------------------------

// What happened, in order; what comes next is last.
function story(job) {
  const attempts = (job.history ?? []).map((attempt, index, all) => ({ at: attempt.started_at, what: attemptStep(attempt, index === all.length - 1) }));
  const changes = (job.changes ?? []).map((change) => ({ at: change.at, what: changeStep(change) }));
  const steps = [{ at: job.created_at, what: created(job) }, ...attempts, ...changes].sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
  if (job.state === "processing" && job.started_at) steps.push({ at: job.started_at, what: [el.b("Runs"), ` as attempt ${job.attempts} on `, code(job.worker), ` for ${span(ageOf(job.started_at))}`], tone: "run" });
  if (job.view === "scheduled" || job.view === "retrying") steps.push({ at: job.run_at, what: [el.b(job.view === "retrying" ? "Next attempt" : "Runs"), ` ${ago(job.run_at)}`], tone: "next" });
  if (["completed", "dead", "cancelled", "discarded"].includes(job.state)) steps.push({ at: job.finished_at ?? job.updated_at, what: el.b({ class: job.state }, titled(job.state)), tone: job.state });
  return el.ol(
    { class: "story" },
    steps.map((step, index) => {
      const waited = index ? (Date.parse(step.at) - Date.parse(steps[index - 1].at)) / 1000 : null;
      return el.li(
        { key: `${index}`, class: step.tone ?? "" },
        el.time({ datetime: step.at, title: moment(step.at) }, moment(step.at)),
        waited > 1 && el.span({ class: "muted waited" }, `+${span(waited)}`),
        el.div({ class: "step" }, step.what),
      );
    }),
  );
}

const created = (job) => [el.b("Enqueued"), job.caller && [" by ", job.caller], job.tenant && [" for ", job.tenant], ` with priority ${job.priority}`];

function attemptStep(attempt, last) {
  const took = attempt.seconds ?? (Date.parse(attempt.finished_at) - Date.parse(attempt.started_at)) / 1000;
  const { error, output } = attempt;
  return [
    el.p(el.b(`Attempt ${attempt.number}`), " ", badge(attempt.outcome, error ? "bad" : "good"), ` after ${span(took)} on `, el.span({ class: "mono" }, attempt.worker)),
    error && el.p({ class: "error-text" }, el.b(error.class ?? error.reason), ": ", error.message),
    error?.traceback && el.details({ open: last }, el.summary("Traceback"), el.pre({ class: "traceback", tabindex: "0", "aria-label": "Traceback" }, error.traceback)),
    output && el.details(el.summary(`Output${output.exit_code === null || output.exit_code === undefined ? "" : `, exit code ${output.exit_code}`}`), output.stdout && el.pre({ tabindex: "0" }, output.stdout), output.stderr && el.pre({ class: "error-text", tabindex: "0" }, output.stderr)),
  ];
}

const DONE = { replay: "Replayed", edit: "Changed", cancel: "Cancelled", discard: "Discarded", rerun: "Made as a new run of an ended job" };
const changeStep = (change) => [
  el.p(el.b(DONE[change.verb] ?? titleOf(known(change.verb)?.past ?? change.verb)), change.by && [" by ", change.by], change.why && [": ", change.why]),
  change.before && el.details(el.summary("The payload before"), tree(change.before)),
];
