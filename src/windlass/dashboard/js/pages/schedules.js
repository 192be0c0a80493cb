// What comes by itself, and when next?

import { perform } from "../actions.js";
import * as api from "../api.js";
import { el } from "../dom.js";
import { moment, span } from "../format.js";
import { ask, badge, button, code, empty, facts, jobLink, panel, table, time, tree, typeLink, WHY } from "../ui.js";

export default function schedules(context) {
  const look = context.refresh(async () => {
    if (context.name) {
      const told = await api.get(api.at("schedules", context.name), {}, context.signal);
      context.show(one(told, look));
    } else {
      const { schedules: all } = await api.get("/schedules", {}, context.signal);
      context.show(el.h1("Schedules"), all.length ? list(all, look) : empty("No schedules yet. One by hand:", "windlass schedule add nightly report.build --cron '0 3 * * *'"));
    }
  }, 5);
}

const rhythm = (each) => (each.cron ? [code(each.cron), each.tz && el.span({ class: "muted" }, ` ${each.tz}`)] : `every ${span(each.every)}`);
const outcome = (fire) => fire && [badge(fire.outcome, { fired: "good", missed: "warn", skipped: "calm" }[fire.outcome] ?? "calm"), " ", time(fire.at), fire.job && [" ", jobLink(fire.job)]];

function list(all, look) {
  return table(
    "Schedules",
    [
      { name: "Schedule", cell: (each) => el.a({ href: `#/schedules/${encodeURIComponent(each.name)}` }, each.name) },
      { name: "State", cell: (each) => [badge(each.state), each.notes.length > 0 && badge("!", "warn")] },
      { name: "Type", cell: (each) => typeLink(each.type) },
      { name: "When", cell: rhythm },
      { name: "Next", class: "number", cell: (each) => time(each.next_at) },
      { name: "Last", cell: (each) => outcome(each.last) ?? "never" },
      api.may("operate") && { name: "Actions", class: "row-actions", cell: (each) => actions(each, look, "small") },
    ].filter(Boolean),
    all,
    { key: (each) => each.name },
  );
}

function actions(each, look, kind = "") {
  const verb = (action, name, text, said) => () =>
    ask({
      title: `${name} ${each.name}?`,
      text,
      fields: [WHY],
      yes: name,
      async run({ why }) {
        const told = await perform(action, each.name, { why });
        look();
        return said(told);
      },
    });
  const paused = each.state === "paused";
  return [
    button("Run now", verb("schedule run", "Run now", "Its job is made at once, whatever its times are.", (told) => `Job ${told.job} is enqueued`), { kind, "aria-label": `Run ${each.name} now` }),
    paused
      ? button("Resume", verb("schedule resume", "Resume", "It fires again; what passed meanwhile is not caught up with.", () => `${each.name} fires again`), { kind: `${kind} primary`, "aria-label": `Resume ${each.name}` })
      : button("Pause", verb("schedule pause", "Pause", "It fires no more until it is resumed.", () => `${each.name} is paused`), { kind, "aria-label": `Pause ${each.name}` }),
  ];
}

function one(each, look) {
  return [
    el.div({ class: "title" }, el.h1(each.name, " ", badge(each.state))),
    api.may("operate") &&
      el.div(
        { class: "actions", role: "toolbar", "aria-label": "Actions" },
        actions(each, look),
        each.origin !== "code" && button("Remove", () => forget(each), { kind: "danger" }),
      ),
    each.notes.map((text) => el.div({ class: "banner warn" }, text)),
    el.div(
      { class: "columns" },
      panel(
        "Schedule",
        facts([
          ["Type", typeLink(each.type)],
          ["When", rhythm(each)],
          ["Next", each.next_at && [moment(each.next_at), " · ", time(each.next_at)]],
          ["Fire times that passed", each.catch_up],
          ["If the run before has not ended", each.overlap],
          each.jitter > 0 && ["Jitter", span(each.jitter)],
          each.priority !== null && ["Priority", each.priority],
          each.tenant && ["Tenant", each.tenant],
          ["Declared by", each.origin],
          each.paused_by && ["Paused by", [each.paused_by, " ", time(each.paused_at)]],
        ]),
      ),
      panel("Payload of its jobs", tree(each.payload)),
    ),
    panel(
      "Last fire times",
      each.history.length
        ? table(
            "Last fire times",
            [
              { name: "At", cell: (fire) => moment(fire.at) },
              { name: "Outcome", cell: (fire) => badge(fire.outcome, { fired: "good", missed: "warn" }[fire.outcome] ?? "calm") },
              { name: "Job", cell: (fire) => (fire.job ? jobLink(fire.job) : "–") },
              { name: "State", cell: (fire) => (fire.job_state ? badge(fire.job_state) : "–") },
              { name: "By", cell: (fire) => fire.by ?? "" },
            ],
            each.history,
            { key: (fire) => `${fire.at}${fire.job}` },
          )
        : empty("It has not fired yet"),
    ),
  ];
}

function forget(each) {
  ask({
    title: `Remove ${each.name}?`,
    text: "It fires no more. Jobs that it made stay.",
    fields: [WHY],
    yes: "Remove",
    danger: true,
    async run({ why }) {
      await perform("schedule remove", each.name, { why });
      location.hash = "#/schedules";
      return `${each.name} is removed`;
    },
  });
}
