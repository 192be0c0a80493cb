// How are numbers, ages and moments told? The same way on every page.

const NUMBER = new Intl.NumberFormat("en");
const UNITS = [["d", 86400], ["h", 3600], ["m", 60]];

export const number = (value) => (value === null || value === undefined ? "–" : NUMBER.format(value));

// 950, 12.3k, 1.2M: for tiles and axes.
export function short(value) {
  if (value === null || value === undefined) return "–";
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(value) >= limit) return `${trim(value / (unit === "k" ? 1e3 : limit))}${unit}`;
  }
  return Math.abs(value) >= 100 || Number.isInteger(value) ? NUMBER.format(Math.round(value)) : trim(value);
}

const trim = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(1).replace(/\.0$/, ""));

// A span of seconds in two units at most: 12s, 3m 20s, 5h, 2d 3h.
export function span(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 0) return `-${span(-seconds)}`;
  if (seconds < 1) return `${seconds < 0.01 ? trim(seconds * 1000) : Math.round(seconds * 1000)}ms`;
  if (seconds < 10) return `${trim(seconds)}s`;
  let rest = Math.round(seconds);
  const told = [];
  for (const [unit, length] of UNITS) {
    if (rest >= length) {
      told.push(`${Math.floor(rest / length)}${unit}`);
      rest %= length;
    } else if (told.length) break;
    if (told.length === 2) return told.join(" ");
  }
  if (rest && told.length < 2 && seconds < 3600) told.push(`${rest}s`);
  return told.join(" ");
}

// Our clock may differ from the server's: ages are counted by the server's.
let ahead = 0;
export function serverSays(iso) {
  ahead = Date.parse(iso) - Date.now();
}
export const now = () => Date.now() + ahead;
export const ageOf = (iso) => (now() - Date.parse(iso)) / 1000;

export function ago(iso) {
  if (!iso) return "–";
  const age = ageOf(iso);
  if (Math.abs(age) < 1) return "now";
  return age > 0 ? `${span(age)} ago` : `in ${span(-age)}`;
}

const DAY = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat("sv", { timeStyle: "medium" });
export const moment = (iso) => (iso ? DAY.format(new Date(iso)) : "–");
export const clock = (iso) => (iso ? CLOCK.format(new Date(iso)) : "–");

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of [["GB", 2 ** 30], ["MB", 2 ** 20], ["KB", 2 ** 10]]) {
    if (value >= size) return `${trim(value / size)} ${unit}`;
  }
  return `${value} B`;
}

export const percent = (share) => (share === null || Number.isNaN(share) ? "–" : `${trim(share * 100)}%`);
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
export const titled = (word) => word.charAt(0).toUpperCase() + word.slice(1);
