// What holds a type back, and how is it let go? Where it is seen, and where it is fixed.

import { perform } from "./actions.js";
import { ask, badge, button, WHY } from "./ui.js";

export function stateOfType(each) {
  if (each.paused) return badge("paused");
  if (each.breaker?.open) return badge("breaker open", "bad");
  if (!each.workers) return badge("no worker", each.counts.due ? "bad" : "calm");
  return badge("active");
}

export function pauseButton(each, then, kind = "", named = false) {
  const resume = Boolean(each.paused);
  const verb = resume ? "Resume" : "Pause";
  return button(
    named ? `${verb} ${each.name}` : verb,
    () =>
      ask({
        title: `${verb} ${each.name}?`,
        text: resume ? "Its jobs start again within a second." : "No more of its jobs start. They are still accepted, and those that run go on.",
        fields: [WHY],
        yes: verb,
        async run({ why }) {
          await perform(resume ? "resume" : "pause", each.name, { why });
          then();
          return `${each.name} is ${resume ? "resumed" : "paused"}`;
        },
      }),
    { kind: `${kind} ${resume ? "primary" : ""}`, "aria-label": `${verb} ${each.name}` },
  );
}

export function setLimits(each, then) {
  const { limit, effective } = each;
  const told = limit.rate ? `${limit.rate.count}/${limit.rate.seconds}s` : "";
  const before = { concurrency: limit.concurrency ?? "", rate: told, tenant_concurrency: limit.per_tenant ?? "", max_attempts: effective.max_attempts, timeout: `${effective.timeout}s` };
  ask({
    title: `Limits and retries of ${each.name}`,
    text: "What is set here stands above the code until it is reset. `none` lifts a limit; an empty field is what code or default say.",
    fields: [
      { name: "concurrency", label: "At once, over all workers", value: before.concurrency, hint: "any number" },
      { name: "rate", label: "Rate, such as 100/m", value: before.rate, hint: "as fast as possible" },
      { name: "tenant_concurrency", label: "At once per tenant", value: before.tenant_concurrency, hint: "any number" },
      { name: "max_attempts", label: "Attempts, 1 to 20", value: before.max_attempts },
      { name: "timeout", label: "Timeout, such as 10m", value: before.timeout },
      WHY,
    ],
    yes: "Set",
    async run({ why, ...given }) {
      const changed = Object.entries(given).filter(([name, value]) => String(value) !== String(before[name]));
      if (!changed.length) return "Nothing was changed";
      await perform("limit", each.name, { settings: Object.fromEntries(changed.map(([name, value]) => [name, value === "" ? null : value])), why });
      then();
      return `Set for ${each.name}: ${changed.map(([name]) => name).join(", ")}`;
    },
  });
}

export function setBreaker(each, then) {
  ask({
    title: `Circuit breaker of ${each.name}`,
    text: "Open, it lets no job through but a probe now and then; closed, it never opens by itself; left to outcomes, it opens when most runs fail.",
    fields: [{ name: "state", label: "State", type: "select", value: "auto", options: [["auto", "left to outcomes"], ["open", "open"], ["close", "closed"]] }, WHY],
    yes: "Set",
    async run(form) {
      const told = await perform("breaker", each.name, form);
      then();
      return `The circuit breaker of ${told.name} is ${told.open ? "open" : "closed"}`;
    },
  });
}
