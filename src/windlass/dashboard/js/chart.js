// How do numbers become pictures? SVG made by hand: lines over time, and sparklines.

import { el, patch, svg } from "./dom.js";
import { clock, moment, short, span } from "./format.js";

const WIDE = 640;
const HIGH = 170;
const BOTTOM = 20;
const TOP = 8;

// A round number at or above `value`, so that the axis reads well.
function roundUp(value) {
  if (value <= 0) return 1;
  const step = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((each) => each * step).find((each) => each >= value);
}

const axisLabel = { count: short, rate: short, seconds: span };

// series: [{name, kind: "a".."d", values: [number|null]}], times: [iso]
export function lineChart({ title, unit = "count", times, series, note }) {
  const most = Math.max(0, ...series.flatMap((each) => each.values.filter((value) => value !== null)));
  const top = roundUp(most);
  const x = (index) => (WIDE * index) / Math.max(1, times.length - 1);
  const y = (value) => TOP + (HIGH - TOP - BOTTOM) * (1 - value / top);
  const label = axisLabel[unit];
  const empty = !series.some((each) => each.values.some((value) => value));
  const spoken = series.map((each) => `${each.name} ${label(latest(each.values))}`).join(", ");
  const point = (event) => showTip(event, { times, series, label });
  return el.figure(
    { class: `chart${empty ? " nothing" : ""}` },
    el.figcaption(
      el.span({ class: "chart-title" }, title),
      el.span(
        { class: "legend" },
        series.map((each) => el.span({ class: `key series-${each.kind}` }, el.i({ "aria-hidden": "true" }), each.name, " ", el.b(label(latest(each.values))))),
      ),
    ),
    el.div(
      { class: "plot" },
      el.div(
        { class: "axis-y", "aria-hidden": "true" },
        [1, 0.5, 0].map((share) => el.span(empty ? "" : label(top * share))),
      ),
      svg.svg(
        { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": `${title}: ${spoken}`, preserveAspectRatio: "none", onpointermove: empty ? undefined : point, onpointerleave: hideTip },
        (empty ? [0] : [0, 0.5, 1]).map((share) => svg.line({ class: "grid", x1: 0, x2: WIDE, y1: y(top * share), y2: y(top * share) })),
        !empty && series.map((each) => line(each, x, y)),
      ),
      el.div({ class: "axis-x", "aria-hidden": "true" }, axis(times).map((text) => el.span(text))),
    ),
    empty && el.p({ class: "chart-empty" }, note ?? "Nothing in this time"),
  );
}

function axis(times) {
  if (times.length < 2) return [];
  const long = Date.parse(last(times)) - Date.parse(times[0]) > 36 * 3600e3;
  const tell = (iso) => (long ? moment(iso).slice(5, 10) : clock(iso).slice(0, 5));
  return [times[0], times[Math.floor(times.length / 2)], last(times)].map(tell);
}

function line({ kind, values }, x, y) {
  const runs = [];
  let run = [];
  values.forEach((value, index) => {
    if (value === null) {
      if (run.length) runs.push(run);
      run = [];
    } else run.push([x(index), y(value)]);
  });
  if (run.length) runs.push(run);
  const path = (points) => points.map(([a, b], index) => `${index ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
  return svg.g(
    { class: `series-${kind}` },
    kind === "a" && runs.filter((points) => points.length > 1).map((points) =>
      svg.path({ class: "area", d: `${path(points)}L${last(points)[0].toFixed(1)} ${y(0)}L${points[0][0].toFixed(1)} ${y(0)}Z` }),
    ),
    runs.map((points) =>
      points.length > 1
        ? svg.path({ class: "line", d: path(points), "vector-effect": "non-scaling-stroke" })
        : svg.circle({ class: "dot", cx: points[0][0], cy: points[0][1], r: 2.5 }),
    ),
  );
}

const last = (list) => list[list.length - 1];
const latest = (values) => values.findLast((value) => value !== null) ?? 0;

// --- what was it then? --------------------------------------------------------------------------

const tip = { box: null, line: null };

// The values at the moment under the pointer, beside it; not a part of the page, which is drawn anew all the time.
function showTip(event, { times, series, label }) {
  const area = event.currentTarget.getBoundingClientRect();
  const index = Math.round(((event.clientX - area.left) / area.width) * (times.length - 1));
  if (!(index >= 0 && index < times.length)) return hideTip();
  tip.box ??= document.body.appendChild(el.div({ class: "tip", "aria-hidden": "true" }));
  tip.line ??= document.body.appendChild(el.div({ class: "tip-line", "aria-hidden": "true" }));
  patch(
    tip.box,
    el.b(moment(times[index]).slice(0, 16)),
    series.map((each) => el.span({ class: `key series-${each.kind}` }, el.i(), each.name, " ", el.b(each.values[index] === null ? "–" : label(each.values[index])))),
  );
  const at = area.left + (area.width * index) / Math.max(1, times.length - 1);
  const place = { "--x": at, "--y": area.top, "--high": area.height * (1 - BOTTOM / HIGH) };
  for (const part of [tip.box, tip.line]) {
    part.classList.toggle("left", at > innerWidth - 200);
    part.classList.add("shown");
    for (const [name, value] of Object.entries(place)) part.style.setProperty(name, `${value}px`);
  }
}

function hideTip() {
  tip.box?.classList.remove("shown");
  tip.line?.classList.remove("shown");
}
addEventListener("hashchange", hideTip);
addEventListener("scroll", hideTip, { passive: true });

// How a number has come to where it is, behind it.
export function trend(values) {
  const known = values.map((value) => value ?? 0);
  const most = Math.max(...known, 1e-9);
  if (known.length < 2 || !known.some(Boolean)) return null;
  const points = known.map((value, index) => `${((100 * index) / (known.length - 1)).toFixed(1)} ${(24 - (20 * value) / most).toFixed(1)}`);
  return svg.svg({ class: "trend", viewBox: "0 0 100 24", "aria-hidden": "true", preserveAspectRatio: "none" }, svg.path({ d: `M0 24L${points.join("L")}L100 24Z` }));
}

// Bars without axes, for a row of a table.
export function sparkline(values, label) {
  const most = Math.max(1, ...values);
  const wide = 4;
  return svg.svg(
    { class: "spark", viewBox: `0 0 ${values.length * wide} 20`, role: "img", "aria-label": label, preserveAspectRatio: "none" },
    values.map((value, index) => {
      const high = value ? Math.max(1.5, (18 * value) / most) : 0.6;
      return svg.rect({ x: index * wide, y: 20 - high, width: wide - 1, height: high, class: value ? "some" : "none" });
    }),
  );
}

// A bar that is filled to a share, such as busy slots.
export function gauge(share, label) {
  const filled = Math.max(0, Math.min(1, share || 0));
  return svg.svg(
    { class: "gauge", viewBox: "0 0 60 8", role: "img", "aria-label": label, preserveAspectRatio: "none" },
    svg.rect({ class: "none", width: 60, height: 8, rx: 2 }),
    svg.rect({ class: filled > 0.95 ? "full" : "some", width: 60 * filled, height: 8, rx: 2 }),
  );
}
