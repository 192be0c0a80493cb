// How does the page stay true without being loaded again? One stream of events, and a visible state of it.

import { number } from "./format.js";

const PATIENCE = [1000, 2000, 4000, 8000];
const KEPT = 900;

const listeners = { state: new Set(), stats: new Set(), failure: new Set() };
export const live = { state: "off", stats: null, failures: [], samples: [] };
let source = null;
let tries = 0;
let timer = null;

// Call `handler` on each such event, until `signal` says enough.
export function on(kind, handler, signal) {
  listeners[kind].add(handler);
  signal?.addEventListener("abort", () => listeners[kind].delete(handler));
}

const tell = (kind, value) => listeners[kind].forEach((handler) => handler(value));

function become(state) {
  if (live.state === state) return;
  live.state = state;
  tell("state", state);
}

export function connect() {
  disconnect();
  become(tries ? "lost" : "connecting");
  source = new EventSource("/api/v1/stream");
  source.onopen = () => {
    tries = 0;
    become("live");
  };
  // The browser gives up on some failures, and tries the others again in its own time: we do it always, in ours.
  source.onerror = () => {
    source.close();
    become("lost");
    clearTimeout(timer);
    // Not all at once: a server that was started anew has many to answer.
    timer = setTimeout(connect, PATIENCE[Math.min(tries++, PATIENCE.length - 1)] * (1 + Math.random() / 2));
  };
  source.addEventListener("stats", (event) => {
    become("live");
    live.stats = { ...live.stats, ...JSON.parse(event.data) };
    sample(live.stats);
    tell("stats", live.stats);
  });
  source.addEventListener("trouble", () => become("away"));
  source.addEventListener("failure", (event) => {
    const failure = { ...JSON.parse(event.data), at: new Date().toISOString() };
    live.failures = [failure, ...live.failures].slice(0, 50);
    tell("failure", failure);
  });
}

export function disconnect() {
  clearTimeout(timer);
  source?.close();
  source = null;
}

// Whoever comes next may not see as much.
export function forget() {
  disconnect();
  Object.assign(live, { stats: null, failures: [], samples: [] });
  tries = 0;
  become("off");
}

// What was seen since the page was opened, for charts where the server keeps no history.
function sample({ counts }) {
  live.samples.push({ at: new Date().toISOString(), ...counts });
  if (live.samples.length > KEPT) live.samples.shift();
}

export const WORDS = {
  off: ["Not connected", "Numbers are as of when the page was opened"],
  connecting: ["Connecting", "Asking for live numbers"],
  live: ["Live", "Numbers change as they happen"],
  lost: ["Connection lost", "Trying again; numbers are as of the last answer"],
  away: ["Store away", "The server answers, its database does not"],
};
export const total = (counts, ...names) => number(names.reduce((sum, name) => sum + (counts?.[name] ?? 0), 0));
