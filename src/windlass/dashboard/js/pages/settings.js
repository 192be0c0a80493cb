// What have operators set, and who may come in?

import { perform } from "../actions.js";
import * as api from "../api.js";
import { el } from "../dom.js";
import { Exact } from "../api.js";
import { moment, number, span } from "../format.js";
import { ask, badge, button, command, empty, panel, table, time, WHY } from "../ui.js";

export default function settings(context) {
  const look = context.refresh(async () => {
    const { settings: all } = await api.get("/settings", {}, context.signal);
    const keys = api.may("administer") ? (await api.get("/keys", {}, context.signal)).keys : null;
    context.show(
      el.h1("Settings"),
      panel(["Settings", api.may("operate") && button("Set another", () => edit({ name: "", value: "", stored: false }, look), { kind: "small" })], list(all, look)),
      keys && panel(["API keys", button("Make a key", () => make(look), { kind: "small primary" })], keyList(keys, look)),
    );
  }, 10);
}

// As it is typed.
function written(value) {
  if (value === null || value === undefined) return "";
  if (value instanceof Exact) return value.source;
  if (typeof value !== "object") return String(value);
  return "seconds" in value ? `${value.count}/${PER[value.seconds] ?? `${value.seconds}s`}` : JSON.stringify(value);
}

const PER = { 1: "s", 60: "m", 3600: "h", 86400: "d" };

// Durations are stored as seconds, which nobody reads well.
const DURATION = /(^|\.)(timeout|base|cap|jitter|window|probe)$|^keep_/;
function shown({ name, value }) {
  if (Array.isArray(value) && !value.length) return null;
  if (typeof value !== "number") return written(value);
  return DURATION.test(name) ? el.span({ title: `${value} s` }, span(value)) : number(value);
}

function list(all, look) {
  return table(
    "Settings",
    [
      { name: "Name", cell: (each) => el.code(each.name) },
      { name: "Value", cell: (each) => shown(each) || "–" },
      { name: "Set by", cell: (each) => (each.stored ? badge("an operator", "warn") : el.span({ class: "muted" }, "default")) },
      api.may("operate") && {
        name: "Actions", class: "row-actions",
        cell: (each) => [button("Set", () => edit(each, look), { kind: "small", "aria-label": `Set ${each.name}` }), each.stored && button("Reset", () => reset(each, look), { kind: "small", "aria-label": `Reset ${each.name}` })],
      },
    ].filter(Boolean),
    // What somebody has set comes first.
    [...all].sort((a, b) => b.stored - a.stored),
    { key: (each) => each.name },
  );
}

function edit(each, then) {
  ask({
    title: each.name ? `Set ${each.name}` : "Set",
    text: "It holds for everybody, within a second, until it is set again or reset. A name with a type in front, such as report.build.timeout, holds for that type.",
    fields: [...(each.name ? [] : [{ name: "name", label: "Name", required: true, hint: "report.build.timeout" }]), { name: "value", label: "Value", value: written(each.value), hint: "such as 10m, 100/m, 5", required: true, help: "Durations are seconds, or words such as 30s, 10m, 7d" }, WHY],
    yes: "Set",
    async run({ name = each.name, value, why }) {
      const setting = each.name || name;
      await perform("config set", null, { settings: { [setting]: value }, why });
      then();
      return `${setting} is set`;
    },
  });
}

function reset(each, then) {
  ask({
    title: `Reset ${each.name}?`,
    text: "What code or default say holds again.",
    fields: [WHY],
    yes: "Reset",
    async run({ why }) {
      await perform("config set", null, { settings: { [each.name]: null }, why });
      then();
      return `${each.name} is reset`;
    },
  });
}

// --- keys ---------------------------------------------------------------------------------------

const ROLES = [["viewer", "viewer: see everything"], ["operator", "operator: every verb"], ["producer", "producer: enqueue, see its own"], ["worker", "worker: claim and settle"], ["admin", "admin: all, and keys"]];

function keyList(keys, look) {
  if (!keys.length) return empty("No API keys: whoever is on this machine may do everything. The first key locks the door, for this page, too.");
  const stateOf = (key) => {
    if (key.revoked_at && Date.parse(key.revoked_at) <= Date.now()) return badge("revoked", "calm");
    if (key.expires_at && Date.parse(key.expires_at) <= Date.now()) return badge("expired", "calm");
    return badge(key.revoked_at ? "ends soon" : "valid", key.revoked_at ? "warn" : "good");
  };
  return table(
    "API keys, newest first",
    [
      { name: "Id", cell: (key) => el.code(key.id) },
      { name: "Service", cell: (key) => key.name },
      { name: "Roles", cell: (key) => key.roles.map((role) => badge(role, "calm")) },
      { name: "State", cell: stateOf },
      { name: "Types", cell: (key) => key.types.join(", ") || "all" },
      { name: "Tenant", cell: (key) => key.tenant ?? "any" },
      { name: "Made", class: "number", cell: (key) => time(key.created_at) },
      { name: "Used", class: "number", cell: (key) => time(key.used_at) },
      { name: "Ends", class: "number", cell: (key) => moment(key.revoked_at ?? key.expires_at) },
      { name: "Actions", class: "row-actions", cell: (key) => !key.revoked_at && button("Revoke", () => revoke(key, look), { kind: "small danger", "aria-label": `Revoke ${key.id}` }) },
    ],
    keys,
  );
}

function make(then) {
  ask({
    title: "Make an API key",
    text: "It is shown once. The first key locks the door: everybody needs one from then on, this page included.",
    fields: [
      { name: "name", label: "Service", required: true, hint: "billing" },
      { name: "role", label: "Role", type: "select", value: "viewer", options: ROLES },
      { name: "types", label: "Types, with commas between them", hint: "all" },
      { name: "tenant", label: "Tenant", hint: "any" },
      { name: "expires", label: "Valid for", hint: "for ever, or such as 90d" },
      WHY,
    ],
    yes: "Make",
    async run({ name, role, types, tenant, expires, why }) {
      const made = await perform("keys create", null, { name, roles: [role], types: types.split(",").map((each) => each.trim()).filter(Boolean), ...(tenant && { tenant }), ...(expires && { expires }), why });
      showKey(made.key);
      then();
      return null;
    },
  });
}

function showKey(key) {
  const dialog = ask({ title: "The new API key", text: ["Keep it now: it is not shown again. ", el.p(command(key))], yes: "I have it", run: async () => null });
  dialog.querySelector(".dialog-end .quiet")?.remove();
}

function revoke(key, then) {
  ask({
    title: `Revoke ${key.name} (${key.id})?`,
    text: "Whoever uses it is refused from then on.",
    fields: [{ name: "after", label: "After", hint: "now, or such as 1d" }],
    yes: "Revoke",
    danger: true,
    async run({ after }) {
      await perform("keys revoke", key.id, { after });
      then();
      return `The key ${key.id} is revoked`;
    },
  });
}
