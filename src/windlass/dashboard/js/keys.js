// What can be done without a mouse? A few keys, told by "?".

import { el } from "./dom.js";
import { ask } from "./ui.js";

// Answers the function that shows the list of keys.
export function shortcuts({ pages, go }) {
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
