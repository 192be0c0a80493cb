// Who are you? Asked where the server has API keys.

import * as api from "../api.js";
import { el, patch } from "../dom.js";
import { command, explainError } from "../ui.js";

export default function login({ main, done }) {
  let error = null;
  async function submit(event) {
    event.preventDefault();
    try {
      await api.logIn(new FormData(event.target).get("key"));
      done();
    } catch (refused) {
      error = explainError(refused);
      draw();
    }
  }
  function draw() {
    patch(
      main,
      el.div(
        { class: "login" },
        el.h1("Log in"),
        el.p("This server asks for an API key."),
        el.form(
          { onsubmit: submit },
          el.div({ class: "field" }, el.label({ for: "key" }, "API key"), el.input({ id: "key", name: "key", type: "password", required: true, autocomplete: "current-password", placeholder: "wl_…" })),
          error && el.p({ class: "error", role: "alert" }, error),
          el.button({ type: "submit", class: "primary" }, "Log in"),
        ),
        el.p({ class: "muted" }, "A key to look with: ", command("windlass keys create me --role viewer")),
      ),
    );
  }
  draw();
  document.getElementById("key").focus();
}
