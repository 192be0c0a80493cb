// How does the page stay true without being loaded again? One stream of events, and a visible state of it.

import { number } from "./format.js";

const PATIENCE = [1000, 2000, 4000, 8000];
// A server sends something every few seconds, whatever happens: one that is silent for so long is frozen, or out of reach.
const SILENCE = 10_000;

const listeners = { state: new Set(), stats: new Set(), failure: new Set() };
export const live = { state: "off", stats: null, failures: [] };
let source = null;
let tries = 0;
let timer = null;
let watch = null;

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
  heard();
  source.onopen = () => {
    heard();
    tries = 0;
    become("live");
  };
  // The browser gives up on some failures, and tries the others again in its own time: we do it always, in ours.
  source.onerror = lose;
  source.addEventListener("beat", heard);
  source.addEventListener("stats", (event) => {
    heard();
    become("live");
    live.stats = { ...live.stats, ...JSON.parse(event.data) };
    tell("stats", live.stats);
  });
  source.addEventListener("trouble", () => {
    heard();
    become("away");
  });
  source.addEventListener("failure", (event) => {
    heard();
    const failure = { ...JSON.parse(event.data), at: new Date().toISOString() };
    live.failures = [failure, ...live.failures].slice(0, 50);
    tell("failure", failure);
  });
}

export function disconnect() {
  clearTimeout(timer);
  clearTimeout(watch);
  source?.close();
  source = null;
}

function heard() {
  clearTimeout(watch);
  watch = setTimeout(lose, SILENCE);
}

function lose() {
  disconnect();
  become("lost");
  // Not all at once: a server that was started anew has many to answer.
  timer = setTimeout(connect, PATIENCE[Math.min(tries++, PATIENCE.length - 1)] * (1 + Math.random() / 2));
}

// Whoever comes next may not see as much.
export function forget() {
  disconnect();
  Object.assign(live, { stats: null, failures: [] });
  tries = 0;
  become("off");
}

export const WORDS = {
  off: ["Not connected", "Numbers are as of when the page was opened"],
  connecting: ["Connecting", "Asking for live numbers"],
  live: ["Live", "Numbers change as they happen"],
  lost: ["Connection lost", "Trying again; numbers are as of the last answer"],
  away: ["Store away", "The server answers, its database does not"],
};
export const total = (counts, ...names) => number(names.reduce((sum, name) => sum + (counts?.[name] ?? 0), 0));
