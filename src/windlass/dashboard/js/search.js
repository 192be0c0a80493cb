// A search box that completes what is typed: a combobox, by mouse or by keyboard.

import { el, patch } from "./dom.js";
import { completions } from "./query.js";

export function searchBox({ value, known, onsearch }) {
  let choices = [];
  let chosen = -1;
  const list = el.ul({ id: "completions", role: "listbox", "aria-label": "Completions", hidden: true });
  const input = el.input({
    id: "search", type: "text", value, autocomplete: "off", autocapitalize: "off", spellcheck: "false",
    placeholder: "type:  state:  payload.user.id:  error:  older:1h   or an id or key",
    role: "combobox", "aria-expanded": "false", "aria-controls": "completions", "aria-autocomplete": "list", "aria-label": "Search jobs",
    oninput: suggest, onfocus: suggest, onkeydown: press, onblur: () => setTimeout(hide, 150),
  });

  function suggest() {
    choices = completions(input.value, known());
    chosen = -1;
    show();
  }
  function show() {
    list.hidden = !choices.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
    if (chosen >= 0) input.setAttribute("aria-activedescendant", `completion-${chosen}`);
    else input.removeAttribute("aria-activedescendant");
    patch(
      list,
      choices.map((text, index) =>
        el.li(
          { id: `completion-${index}`, role: "option", "aria-selected": String(index === chosen), onmousedown: (event) => { event.preventDefault(); take(index); } },
          text,
        ),
      ),
    );
  }
  function hide() {
    choices = [];
    show();
  }
  function take(index) {
    const text = choices[index];
    input.value = input.value.replace(/\S*$/, "") + text + (text.endsWith(":") ? "" : " ");
    input.focus();
    suggest();
  }
  function press(event) {
    if (event.key === "ArrowDown" && choices.length) chosen = (chosen + 1) % choices.length;
    else if (event.key === "ArrowUp" && choices.length) chosen = chosen <= 0 ? choices.length - 1 : chosen - 1;
    else if (event.key === "Enter" && chosen >= 0) take(chosen);
    else if (event.key === "Tab" && choices.length && !event.shiftKey && input.value && chosen >= 0) take(chosen);
    else if (event.key === "Enter") {
      hide();
      onsearch(input.value.trim());
    } else if (event.key === "Escape" && choices.length) {
      hide();
      event.stopPropagation();
    } else return;
    event.preventDefault();
    if (event.key.startsWith("Arrow")) show();
  }
  return el.div({ class: "search", role: "search", key: "search", "data-own": "" }, input, list);
}
