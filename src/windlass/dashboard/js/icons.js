// The few pictures of the frame: lines on a field of sixteen by sixteen, in the colour of the text.

import { svg } from "./dom.js";

const LINES = {
  overview: "M2 13.5h12M3.5 10.5V8M6.5 10.5V4M9.5 10.5V6.5M12.5 10.5V2.5",
  jobs: "M6 4h7.5M6 8h7.5M6 12h7.5M2.5 4h.01M2.5 8h.01M2.5 12h.01",
  dead: "M2 3.5h12v9H2zM2 4l6 5 6-5",
  types: "M2.5 2.5h5.5l5.5 5.5-5.5 5.5L2.5 8zM5.5 5.5h.01",
  workers: "M4.5 4.5h7v7h-7zM6.5 2v2.5M9.5 2v2.5M6.5 11.5V14M9.5 11.5V14M2 6.5h2.5M2 9.5h2.5M11.5 6.5H14M11.5 9.5H14",
  schedules: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 4.8V8l2.3 1.5",
  database: "M3 4c0-1.1 2.2-2 5-2s5 .9 5 2-2.2 2-5 2-5-.9-5-2zM3 4v8c0 1.1 2.2 2 5 2s5-.9 5-2V4M3 8c0 1.1 2.2 2 5 2s5-.9 5-2",
  audit: "M3.5 2h9v12h-9zM6 5.5h4M6 8h4M6 10.5h2",
  settings: "M2 4.5h7M12 4.5h2M2 11.5h2M7 11.5h7M10.5 3v3M5.5 10v3",
  light: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1.2v1.3M8 13.5v1.3M1.2 8h1.3M13.5 8h1.3M3.2 3.2l.9.9M11.9 11.9l.9.9M3.2 12.8l.9-.9M11.9 4.1l.9-.9",
  dark: "M13.5 9.5a6 6 0 0 1-7-7 6 6 0 1 0 7 7z",
  keys: "M1.5 4.5h13v7h-13zM4 7h.01M6.6 7h.01M9.3 7h.01M12 7h.01M5 9.3h6",
  good: "M3.5 8.5l3 3 6-6.5",
  bad: "M8 3.5v5.5M8 12h.01",
};

export const icon = (name) =>
  svg.svg({ class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" }, svg.path({ d: LINES[name] }));
