// Which jobs are there? One line says which ones are meant, for looking and for acting.

import { actOnMany, bulkActions, titleOf } from "../actions.js";
import * as api from "../api.js";
import { el } from "../dom.js";
import { number, plural } from "../format.js";
import * as query from "../search.js";
import { searchBox } from "../search.js";
import { button, empty, jobLink, stateOf, table, time, typeLink } from "../ui.js";

const PAGE = 50;
const VIEWS = ["due", "processing", "retrying", "scheduled", "dead", "completed"];

export default function jobs(context) {
  const text = context.query.get("q") ?? "";
  const { filter, name, problems } = query.read(text);
  const state = { found: [], next: null, cursor: context.query.get("cursor"), chosen: new Set(), all: false, types: [], fields: [], busy: true, partial: false };
  const to = (line, cursor) => `#/jobs?${new URLSearchParams({ ...(line && { q: line }), ...(cursor && { cursor }) })}`;
  const search = (line) => {
    if (location.hash === to(line)) look();
    else location.hash = to(line);
  };
  const box = searchBox({ value: text, known: () => state, onsearch: search });

  async function find() {
    if (problems.length) throw new api.Refused(400, { detail: `not understood: ${problems.join(" ")}; one id or key, and names such as type:` });
    if (name) {
      return { jobs: [await api.get(api.at("jobs", name), {}, context.signal)], next: null };
    }
    return api.get("/jobs", { q: text, limit: PAGE, cursor: state.cursor }, context.signal);
  }
  const look = context.refresh(async () => {
    const page = await find();
    Object.assign(state, { found: page.jobs, next: page.next, busy: false, partial: page.next !== null && page.jobs.length < PAGE });
    draw();
    // A search that was not over in time costs as much every time.
    return !state.partial;
  }, 5);

  function toggle(job) {
    state.all = false;
    if (!state.chosen.delete(job.id)) state.chosen.add(job.id);
    draw();
  }
  function toggleAll(event) {
    state.all = false;
    state.chosen = new Set(event.target.checked ? state.found.map((job) => job.id) : []);
    draw();
  }
  function act(verb) {
    const chosen = state.all ? query.asForm(filter) : { ids: [...state.chosen] };
    const many = state.all ? "every job that matches" : plural(state.chosen.size, "chosen job");
    actOnMany({ verb, filter: chosen, title: `${titleOf(verb)} ${many}?`, then: () => { state.chosen.clear(); state.all = false; look(); } });
  }

  function draw() {
    context.show(
      el.h1("Jobs"),
      box,
      el.p(
        { class: "views" },
        VIEWS.map((view) => el.a({ href: to(`state:${view}`), "aria-current": text.trim() === `state:${view}` ? "true" : null }, view)),
        text && el.a({ href: "#/jobs" }, "clear"),
      ),
      api.may("operate") && actions(),
      list(),
      el.p(
        { class: "paging" },
        state.cursor && button("← Newest", () => search(text), { kind: "quiet" }),
        state.partial && el.span({ class: "muted" }, "The search stopped in time, and goes on where it was."),
        state.next && el.a({ class: "button", href: to(text, state.next) }, state.partial ? "Search on →" : "Older →"),
      ),
    );
  }

  function actions() {
    const count = state.chosen.size;
    if (!count && !state.all) return null;
    return el.div(
      { class: "actions", role: "toolbar", "aria-label": "Actions" },
      el.span(state.all ? "All that match" : `${number(count)} chosen`),
      !state.all && count === state.found.length && state.next && !query.isAnything(filter) && button("Choose all that match", () => { state.all = true; draw(); }, { kind: "quiet" }),
      bulkActions().map(({ name, danger }) => button(titleOf(name), () => act(name), { kind: danger ? "danger" : "primary" })),
      button("None", () => { state.chosen.clear(); state.all = false; draw(); }, { kind: "quiet" }),
    );
  }

  function list() {
    if (!state.found.length) return empty(text ? "No job matches" : "No jobs yet. A first one:", text ? null : "windlass run -- echo hello");
    const every = state.found.every((job) => state.chosen.has(job.id));
    return table(
      "Jobs, newest first",
      [
        api.may("operate") && {
          name: "", class: "tick", head: el.input({ type: "checkbox", "aria-label": "Choose all on this page", checked: every, onchange: toggleAll }),
          cell: (job) => el.input({ type: "checkbox", "aria-label": `Choose job ${job.id}`, checked: state.all || state.chosen.has(job.id), onchange: () => toggle(job) }),
        },
        { name: "Job", cell: (job) => [jobLink(job.id), job.key && el.span({ class: "muted clip aside" }, job.key)] },
        { name: "State", cell: stateOf },
        { name: "Type", cell: (job) => typeLink(job.type) },
        { name: "Enqueued", class: "number", cell: (job) => time(job.enqueued_at ?? job.created_at) },
        { name: "When", class: "number", cell: when },
        { name: "Attempts", class: "number", cell: (job) => `${job.attempts}/${job.max_attempts}` },
        { name: "Priority", class: "number", cell: (job) => job.priority },
        { name: "Tenant", cell: (job) => job.tenant ?? "" },
        { name: "Error", cell: (job) => job.error && el.span({ class: "clip error-text" }, `${(job.error.class ?? job.error.reason).split(".").pop()}: ${job.error.message}`) },
      ].filter(Boolean),
      state.found,
    );
  }

  learn(state).then(() => context.query.get("focus") && document.getElementById("search")?.focus());
}

function when(job) {
  if (job.view === "scheduled" || job.view === "retrying") return time(job.run_at);
  return time(job.finished_at ?? job.started_at ?? null);
}

// What completions offer: the types, and the fields of their payloads.
async function learn(state) {
  const { types } = await api.get("/catalogue").catch(() => ({ types: [] }));
  state.types = types.map((each) => each.name);
  state.fields = [...new Set(types.flatMap((each) => Object.keys(each.schema?.properties ?? {})))].sort();
}
