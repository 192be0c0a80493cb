// The frame: who looks, where they are, and whether what they see is live.

import * as actions from "./actions.js";
import * as api from "./api.js";
import { el, icon, patch } from "./dom.js";
import { serverSays } from "./format.js";
import { connect, disconnect, forget, live, on, WORDS } from "./live.js";
import { lookAtOperations } from "./operations.js";
import audit from "./pages/audit.js";
import database from "./pages/database.js";
import dead from "./pages/dead.js";
import job from "./pages/job.js";
import jobs from "./pages/jobs.js";
import login from "./pages/login.js";
import overview from "./pages/overview.js";
import schedules from "./pages/schedules.js";
import settings from "./pages/settings.js";
import types from "./pages/types.js";
import workers from "./pages/workers.js";
import { ask, button, explainError, loading } from "./ui.js";

// What the way there is called, which page it is, which key goes there after g, and what one needs to see it.
const PAGES = [
  { path: "overview", name: "Overview", key: "o", need: "see", page: overview },
  { path: "jobs", name: "Jobs", key: "j", need: "look", page: (context) => (context.name ? job(context) : jobs(context)) },
  { path: "dead", name: "Dead letters", key: "d", need: "see", page: dead },
  { path: "types", name: "Types", key: "t", need: "see", page: types },
  { path: "workers", name: "Workers", key: "w", need: "see", page: workers },
  { path: "schedules", name: "Schedules", key: "s", need: "see", page: schedules },
  { path: "database", name: "Database", key: "b", need: "see", page: database },
  { path: "audit", name: "Audit", key: "a", need: "operate", page: audit },
  { path: "settings", name: "Settings", key: "e", need: "see", page: settings },
];
const allowed = () => PAGES.filter((each) => api.may(each.need));

let leaving = new AbortController();

// --- where we are -------------------------------------------------------------------------------

// #/jobs/ID?q=... -> {path, name, query}
function where() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [page, ...rest] = path.split("/");
  return { path: page || allowed()[0]?.path, name: rest.length ? decoded(rest.join("/")) : null, query: new URLSearchParams(query) };
}

// A link that was cut in the middle of a character is taken as it is: the page then says that it finds nothing.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const go = (path) => {
  location.hash = path;
};

function show() {
  if (location.hash === "#main") return;
  leaving.abort();
  leaving = new AbortController();
  const main = document.getElementById("main");
  if (!api.session.known) {
    disconnect();
    drawTop(null);
    patch(main);
    login({ main, done: begin });
    return;
  }
  const here = where();
  const found = allowed().find((each) => each.path === here.path);
  drawTop(found);
  patch(main, loading());
  window.scrollTo(0, 0);
  if (!found) {
    patch(main, el.h1("Nothing here"), el.p("There is no such page, or your key does not show it. ", el.a({ href: "#/" }, "Back to the start")));
    return;
  }
  found.page(context(main, here, leaving.signal));
}

// What a page is given: where it is, how it draws, and how it asks again while it is looked at.
function context(main, here, signal) {
  let failed = null;
  let tree = [];
  const draw = () => {
    if (signal.aborted) return;
    patch(main, failed && el.div({ class: "banner bad", role: "alert", key: "failed" }, failed), tree);
  };
  return {
    ...here,
    signal,
    show(...fresh) {
      tree = fresh;
      draw();
    },
    // Ask now, every so often while somebody looks, and when the connection is back. What answers `false` has asked
    // enough: it is not asked again by itself. One question after the other: an answer that was overtaken by a later
    // one would show what is over.
    refresh(ask, seconds) {
      let timer = null;
      let asking = false;
      let wanted = false;
      let enough = false;
      let missed = false;
      const again = async () => {
        wanted = asking;
        if (asking || signal.aborted) return;
        asking = true;
        clearTimeout(timer);
        try {
          enough = (await ask()) === false;
          failed = null;
        } catch (error) {
          if (error.name === "AbortError" || signal.aborted) return;
          console.debug(error);
          failed = explainError(error);
          if (!tree.length) tree = [el.h1("Not to be had just now")];
          draw();
        } finally {
          asking = false;
        }
        if (wanted) again();
        else if (!signal.aborted && seconds && !enough) timer = setTimeout(later, seconds * 1000);
      };
      const later = () => {
        missed = document.hidden;
        if (!missed) again();
      };
      document.addEventListener("visibilitychange", () => missed && later(), { signal });
      on("state", (state) => state === "live" && !enough && again(), signal);
      signal.addEventListener("abort", () => clearTimeout(timer));
      again();
      return again;
    },
    on: (kind, handler) => on(kind, handler, signal),
    query: here.query,
  };
}

// --- the top ------------------------------------------------------------------------------------

let shown = "";

const troubled = () => live.stats?.verdict?.state === "trouble";

function drawTop(found) {
  const [word, told] = WORDS[live.state];
  const { name } = where();
  // Whoever has the page in one of many tabs sees there that something is wrong.
  document.title = `${troubled() ? "(!) " : ""}${found ? `${name ? `${name.slice(0, 13)} · ` : ""}${found.name} · ` : ""}Windlass`;
  const dead = live.stats?.counts?.dead;
  patch(
    document.getElementById("top"),
    el.a({ class: "brand", href: "#/" }, el.img({ src: "/static/icon.svg", alt: "", width: 22, height: 22 }), "Windlass"),
    found !== null &&
      el.nav(
        { "aria-label": "Pages" },
        allowed().map((each) =>
          el.a(
            { href: `#/${each.path}`, "aria-current": each === found ? "page" : null, title: `g ${each.key}` },
            icon(each.path),
            el.span({ class: "name" }, each.name),
            each.path === "overview" && troubled() ? el.span({ class: "count", title: live.stats.verdict.sentence }, "!") : null,
            each.path === "dead" && dead ? el.span({ class: "count", "data-live": "dead" }, dead > 999 ? "999+" : dead) : null,
          ),
        ),
      ),
    el.div(
      { class: "top-end" },
      found !== null && api.may("see") && el.span({ class: `connection ${live.state}`, role: "status", title: told }, el.i({ "aria-hidden": "true" }), word),
      button(icon("keys"), help, { kind: "quiet small", title: "Keys", "aria-label": "Keyboard shortcuts" }),
      button(icon(isDark() ? "light" : "dark"), switchTheme, { kind: "quiet small", title: "Light or dark", "aria-label": "Switch between light and dark" }),
      api.session.locked && api.session.known &&
        el.span({ class: "who" }, api.session.name, button("Log out", async () => { await api.logOut(); forget(); show(); }, { kind: "quiet small" })),
    ),
  );
  bringIntoSight(found, dead);
}

// On a phone the pages stand in a row: the open one is in sight, also when the count has made another one wider.
function bringIntoSight(found, dead) {
  const drawn = `${found?.path} ${Boolean(dead)} ${troubled()}`;
  const row = document.querySelector("nav");
  const link = row?.querySelector("[aria-current]");
  if (drawn === shown || !link) return;
  shown = drawn;
  const [outer, inner] = [row.getBoundingClientRect(), link.getBoundingClientRect()];
  row.scrollLeft += inner.left - outer.left - (outer.width - inner.width) / 2;
}

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

function switchTheme() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("windlass.theme", theme);
  } catch {
    // Storage is switched off: it holds for this page.
  }
  drawTop(current());
}

const current = () => (api.session.known ? allowed().find((each) => each.path === where().path) : null);

const help = shortcuts({ pages: allowed, go });

// --- the beginning ------------------------------------------------------------------------------

async function begin() {
  try {
    await api.openSession();
    if (api.session.known && api.may("look")) await actions.load();
  } catch (error) {
    patch(document.getElementById("main"), el.h1("The server does not answer"), el.p(explainError(error)));
    setTimeout(begin, 2000);
    return;
  }
  if (api.session.known && api.may("see")) connect();
  lookAtOperations();
  show();
}

// A key that was revoked, or a server that now asks for one.
api.onLocked(async () => {
  if (!api.session.known) return;
  await api.openSession().catch(() => {});
  if (!api.session.known) show();
});
on("state", () => drawTop(current()));
on("stats", (stats) => {
  if (stats.now) serverSays(stats.now);
  drawTop(current());
});
window.addEventListener("hashchange", () => {
  show();
  if (location.hash !== "#main") document.getElementById("main").focus({ preventScroll: true });
});
begin();

// Keyboard shortcuts, listed by "?". Returns the function that shows the list.
function shortcuts({ pages, go }) {
  let before = null;

  function help() {
    const rows = [["/", "Search jobs"], ...pages().map((each) => [`g ${each.key}`, each.name]), ["Esc", "Close, or leave a field"], ["?", "This list"]];
    const dialog = ask({
      title: "Keys",
      text: el.table({ class: "keys" }, el.tbody(rows.map(([key, what]) => el.tr(el.td(key.split(" ").map((each) => el.kbd(each))), el.td(what))))),
      yes: "Close",
      run: async () => null,
    });
    dialog.querySelector(".dialog-end .quiet")?.remove();
  }

  document.addEventListener("keydown", (event) => {
    const inField = event.target.closest?.("input, textarea, select, dialog");
    if (event.key === "Escape" && inField && !event.target.closest("dialog")) event.target.blur();
    if (inField || event.ctrlKey || event.metaKey || event.altKey) return;
    const first = before;
    before = event.key === "g" ? "g" : null;
    if (first === "g") {
      const found = pages().find((each) => each.key === event.key);
      if (found) go(`#/${found.path}`);
      return;
    }
    if (event.key === "?") help();
    else if (event.key === "/") {
      event.preventDefault();
      const box = document.getElementById("search");
      if (box) box.focus();
      else go("#/jobs?focus=1");
    }
  });
  return help;
}
