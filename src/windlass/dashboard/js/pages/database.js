// How is the store: how large, how old, and who holds it up?

import * as api from "../api.js";
import { gauge } from "../chart.js";
import { el } from "../dom.js";
import { bytes, moment, number, plural, span } from "../format.js";
import { badge, command, count, empty, facts, panel, table } from "../ui.js";

// A transaction that is open for longer than this keeps dead rows from being cleaned up.
const LONG = 60;

export default function database(context) {
  context.refresh(async () => {
    context.show(el.h1("Database"), view(await api.get("/database", {}, context.signal)));
  }, 10);
}

// What does not exist in a database of its kind is null.
const known = (value) => value !== null && value !== undefined;

function view(told) {
  const wrong = told.settings.filter((each) => known(each.wanted));
  return [
    told.notes.map((text) => el.div({ class: "banner warn" }, text.replaceAll("`", ""))),
    wrong.map((each) => el.div({ class: "banner bad" }, `${each.name} is ${each.value}, and should be ${each.wanted}: `, command(`alter system set ${each.name} = '${each.wanted}'`))),
    el.div({ class: "columns" }, panel("Store", store(told)), known(told.sessions) && panel("Sessions", sessions(told)), panel("Settings that matter", settings(told.settings))),
    panel("Tables", tables(told.tables)),
  ];
}

const store = (told) =>
  facts([
    ["Database", `${NAMES[told.kind] ?? told.kind} ${told.version}`],
    ["Size", bytes(told.size_bytes)],
    known(told.wal_bytes) && ["Write-ahead log", bytes(told.wal_bytes)],
    known(told.free_bytes) && ["Free in the file", bytes(told.free_bytes)],
    known(told.disk_free_bytes) && ["Free on its disk", bytes(told.disk_free_bytes)],
  ]);

const NAMES = { sqlite: "SQLite", postgresql: "PostgreSQL" };

function sessions({ sessions: taken, most_sessions: most, listeners, oldest }) {
  return facts([
    ["Taken", [`${number(taken)} of ${number(most)} `, gauge(taken / most, `${taken} of ${most} sessions`)]],
    ["Listen for new jobs", plural(listeners ?? 0, "session")],
    ["Oldest transaction", oldest ? [el.span({ class: oldest.age > LONG ? "late" : "" }, span(oldest.age)), ` · ${oldest.holder}`] : "none is open"],
    oldest?.age > LONG && ["To end it", command(`select pg_terminate_backend(${oldest.pid})`)],
  ]);
}

// SQLite tells numbers.
const WORDS = { synchronous: ["off", "normal", "full", "extra"], auto_vacuum: ["none", "full", "incremental"] };
const settings = (all) => facts(all.map((each) => [el.code(each.name), [WORDS[each.name]?.[each.value] ?? each.value, " ", known(each.wanted) ? badge(`should be ${each.wanted}`, "bad") : null]]));

function tables(all) {
  if (!all.length) return empty("Nothing is told of its tables");
  const some = (name) => all.some((each) => each[name]);
  const most = Math.max(1, ...all.map((each) => each.size_bytes));
  return table(
    "Tables",
    [
      { name: "Table", cell: (each) => el.code(each.name) },
      { name: "Rows", class: "number", cell: (each) => count(each.rows) },
      some("dead_rows") && { name: "Dead rows", class: "number", cell: (each) => count(each.dead_rows) },
      some("size_bytes") && { name: "Size", class: "number", cell: (each) => bytes(each.size_bytes) },
      some("size_bytes") && { name: "", cell: (each) => gauge(each.size_bytes / most, bytes(each.size_bytes)) },
      some("vacuumed_at") && { name: "Vacuumed", class: "number", cell: (each) => moment(each.vacuumed_at) },
      some("analyzed_at") && { name: "Analyzed", class: "number", cell: (each) => moment(each.analyzed_at) },
    ].filter(Boolean),
    all,
    { key: (each) => each.name },
  );
}
