// Operations: actions on many jobs, which the server carries on by itself. Those that run are shown on every page.

import { perform } from "./actions.js";
import * as api from "./api.js";
import { el, patch } from "./dom.js";
import { number, plural, span } from "./format.js";
import { badge, button, explainError, note } from "./ui.js";

const OFTEN = 1000;
const SELDOM = 10_000;
const ENDED = ["stopped", "done", "failed"];
const isOver = (operation) => ENDED.includes(operation.state);

let active = [];
let timer = null;

// Start one, and come back when it has ended. Who closes the dialog meanwhile leaves it running.
export async function runOperation(form, signal, show) {
  let operation = await api.postAsync("/jobs/actions", form, signal);
  lookAtOperations();
  while (!isOver(operation)) {
    show(bar(operation));
    await new Promise((done) => setTimeout(done, Math.min(OFTEN, 100 + 100 * operation.reached.matched)));
    operation = await api.get(api.at("operations", operation.id), {}, signal);
  }
  lookAtOperations();
  if (operation.state === "failed") throw new Error(`The operation failed: ${operation.error}`);
  return operation;
}

// Ask which operations run, now and every so often.
export async function lookAtOperations() {
  clearTimeout(timer);
  if (api.session.known && api.session.may.includes("operate") && !document.hidden) {
    try {
      const { operations } = await api.get("/operations", { limit: 20 });
      active = operations.filter((each) => !isOver(each));
    } catch (error) {
      console.debug(error);
    }
  } else if (!api.session.known) {
    active = [];
  }
  draw();
  clearTimeout(timer);
  timer = setTimeout(lookAtOperations, active.length ? OFTEN : SELDOM);
}

function draw() {
  patch(document.getElementById("operations"), active.map((operation) => el.div({ class: "operation", key: operation.id, "data-operation": operation.id }, bar(operation))));
}

function bar(operation) {
  const { id, action, state, reached, expected, at_least: more, rate, by } = operation;
  const left = rate && !more && expected > reached.matched ? `, about ${span((expected - reached.matched) / rate)} left` : "";
  return [
    el.div(
      { class: "operation-head" },
      el.b(`${action[0].toUpperCase()}${action.slice(1)}`),
      badge(state),
      el.span(`${number(reached.matched)} of ${more ? "at least " : ""}${plural(expected, "job")}${left}`),
      reached.refused > 0 && el.span({ class: "error", title: reached.refusals[0] }, `${number(reached.refused)} refused`),
      el.span({ class: "muted" }, `by ${by}`),
      el.span(
        { class: "operation-end" },
        state === "running" && button("Pause", () => steer(() => perform("operation pause", id)), { kind: "quiet small" }),
        state === "paused" && button("Resume", () => steer(() => perform("operation resume", id)), { kind: "quiet small" }),
        button("Stop", () => steer(() => perform("operation stop", id)), { kind: "quiet small", title: "What is done stays done" }),
      ),
    ),
    el.progress({ value: Math.min(reached.matched, expected), max: Math.max(expected, 1), "aria-label": `Progress of ${action}` }),
  ];
}

async function steer(ask) {
  try {
    const operation = await ask();
    note(`The operation is ${operation.state}`);
  } catch (error) {
    note(explainError(error), "bad");
  }
  lookAtOperations();
}

document.addEventListener("visibilitychange", () => document.hidden || lookAtOperations());
