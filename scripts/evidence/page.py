"""docs/evidence.md as text, from results alone: the same data give the same page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from bench.plot import Panel, panels, shares
from evidence.data import Head, Mutant, PowerCuts, Proofs, Run, Simulated, Soak
from tests.history.result import distribution

T = TypeVar("T", bound=Head)
FOLDER = "evidence"
HEADER = """# Evidence

What was done to Windlass, and what came of it. `make evidence` writes this page from the results in
[`docs/evidence`](https://github.com/windlass-queue/windlass/tree/main/docs/evidence), which the runs wrote
themselves; nothing here is typed by hand. Each section has the command that repeats it.

A run shows that the promises of [guarantees](guarantees.md) held in that run, on that machine, at that commit. It does not show
that they hold always: [what is not shown](#what-is-not-shown) is at the end.
"""
NOT_SHOWN = """## What is not shown

- **Other machines.** All figures are from one small machine, which other programs used at the same time. Rates and latencies are a lower
  bound of what the software does on hardware of its own; they are not a benchmark. [bench/report.md](https://github.com/windlass-queue/windlass/blob/main/bench/report.md) is.
- **Disks that lie.** A power cut is simulated from a recording of what the process wrote and synced. A disk that acknowledges a sync and
  does not keep it loses data under any database.
- **Lost networks** between hosts are in `make two-hosts` and in the tests of faults, not on this page.
- **Models are models.** TLC searches every state of a small instance (two or three workers, a few jobs). That the code does what the model
  says is shown by the tests and by the table in `proofs/README.md`, not by TLC.
- **Exactly once.** A worker that is killed after its handler has returned and before that is recorded leaves a job that runs again. Such
  jobs are counted as *doubled*; they are what "at least once" means. `ctx.transaction()` avoids it for writes to the queue's own database.
- **A run that is not here** was not made for this page; its section says so.
"""


class Results(NamedTuple):
    """Everything that the page is made from."""

    files: Mapping[str, Head]
    mutants: Mapping[str, Mutant]

    def get(self, name: str, kind: type[T]) -> T | None:
        """One result, if its run was made."""
        found = self.files.get(name)
        return found if isinstance(found, kind) else None


def page(found: Results) -> str:
    """The whole page."""
    parts = [HEADER, *short(found), *places(found), *workers(found), *commits(found), *servers(found)]
    parts += [*power(found), *models(found), *simulator(found), *soak(found), *others(), NOT_SHOWN]
    return "\n".join(parts)


def plots(found: Results) -> dict[str, str]:
    """The plots that belong to the page, by file name."""
    curves = {
        run.store: shares(run.recovery_seconds)
        for name in ("kill-run-sqlite", "kill-run-postgresql")
        if (run := found.get(name, Run)) is not None and run.recovery_seconds
    }
    if not curves:
        return {}
    title = "Recovery after kill -9: how many of the cut-off jobs run again, by time"
    shown = [Panel("percent that run again", curves)]
    return {"recovery.svg": panels(title, "from the kill to the next start of the same job", shown)}


# --- parts of a section ---


def link(name: str) -> str:
    """A result's data."""
    return f"[data]({FOLDER}/{name}.json)"


def command(*lines: str) -> str:
    """How to repeat it."""
    return "\n".join(["```", *lines, "```", ""])


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers have separators."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return "\n".join([*lines, ""])


def cell(value: object) -> str:
    """One value of a table."""
    if isinstance(value, float):
        return f"{value:,.2f}" if value % 1 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def listed(counts: Mapping[str, float]) -> str:
    """Counts in words."""
    return ", ".join(f"{cell(value)} {name}" for name, value in counts.items()) or "nothing"


def not_run(what: str) -> list[str]:
    """A run that was not made is said to be so."""
    return [f"Not run for this page: {what}.", ""]


def promises(run: Run) -> str:
    """Those that broke, each with its detail; or that none did."""
    broken = [each for each in run.promises if not each.held]
    if not broken:
        return f"all {len(run.promises)} held"
    return f"**{len(broken)} of {len(run.promises)} broken**: " + "; ".join(
        f"{each.promise} ({each.detail})" for each in broken
    )


def lost(run: Run) -> str:
    """How many accepted jobs are missing."""
    return cell(run.counts.get("lost", 0))


# --- the sections ---


def short(found: Results) -> Iterator[str]:
    """One line for each run."""
    yield "## In short\n"
    rows: list[Sequence[object]] = []
    for name, run in found.files.items():
        if isinstance(run, Run):
            accepted, doubled = run.counts.get("accepted", 0), run.counts.get("doubled", 0)
            done = listed(run.injected)
            rows.append([run.name, run.store, done, accepted, lost(run), doubled, promises(run), link(name)])
    if rows:
        head = ("run", "store", "injected", "accepted jobs", "lost", "doubled", "promises", "data")
        yield table(head, rows)
        yield (
            "*Lost*: accepted, and not in the store. *Doubled*: its handler returned more than once, because its worker was killed "
            "after the work and before the record; [at least once](guarantees.md) allows it.\n"
        )
    cuts, proofs = found.get("power-cuts", PowerCuts), found.get("proofs", Proofs)
    if cuts is not None:
        made, wrong = sum(row.cuts for row in cuts.settings), sum(row.violations for row in cuts.settings)
        yield f"- Power cuts on SQLite: {made:,} cuts, {wrong} with something acknowledged missing or damaged."
    if proofs is not None:
        twins = [each for each in proofs.models if each.refuted]
        good = sum(each.held for each in proofs.models if not each.refuted)
        yield (
            f"- Models: {good} of {len(proofs.models) - len(twins)} hold, {sum(t.held for t in twins)} of {len(twins)} "
            "broken twins are refuted, as they must be."
        )
    if found.mutants:
        caught = sum(each.found for each in found.mutants.values())
        yield f"- Simulator: {caught} of {len(found.mutants)} planted bugs were found."
    yield ""


def places(found: Results) -> Iterator[str]:
    """When, on what, at which commit."""
    yield "## Where and when\n"
    kinds = dict.fromkeys(tuple(run.machine.items()) for run in found.files.values())
    for fields in kinds:
        yield f"- {', '.join(f'{name} {value}' for name, value in fields)}"
    if not kinds:
        yield "Nothing was run."
    yield ""
    if found.files:
        rows = [
            [name, run.date, f"`{run.commit}`", seed_of(run), versions_of(run), link(name)]
            for name, run in found.files.items()
        ]
        yield table(("result", "date (UTC)", "commit", "seed", "versions", "data"), rows)


def seed_of(run: Head) -> str:
    """The seed, where a run has one."""
    return "" if not isinstance(run, Run) or run.seed is None else str(run.seed)


def versions_of(run: Head) -> str:
    """The database's version."""
    return listed_words(run.versions) if isinstance(run, Run) else ""


def listed_words(words: Mapping[str, str]) -> str:
    """Names and versions."""
    return ", ".join(f"{name} {value}" for name, value in words.items())


def workers(found: Results) -> Iterator[str]:
    """kill-run."""
    yield "## Workers are killed\n"
    yield (
        "Workers run short and long jobs on threads, on the loop and as commands, while producers enqueue. Every second a worker that "
        "runs something is killed with `kill -9`. On PostgreSQL the primary is also restarted twice without a farewell, then killed, "
        "and its synchronous standby takes over. Afterwards the recorded history of every call and every execution is judged "
        "(`tests/history`).\n"
    )
    yield command(
        "make kill-run ARGS=--json=docs/evidence/kill-run-sqlite.json",
        'make kill-run ARGS="--postgres --json=docs/evidence/kill-run-postgresql.json"',
    )
    runs = [(name, found.get(name, Run)) for name in ("kill-run-sqlite", "kill-run-postgresql")]
    yield from crash_table(runs)
    timed = [(run.store, run) for _, run in runs if run is not None and run.recovery_seconds]
    if timed:
        yield "**Recovery**: seconds from the kill to the next start of a job that it cut off.\n"
        rows = [
            [store, len(run.recovery_seconds), *distribution(run.recovery_seconds).values()]
            for store, run in timed
        ]
        yield table(("store", "cut-off jobs", "min", "p50", "p90", "p99", "max"), rows)
        yield f"![Recovery after kill -9, as a distribution]({FOLDER}/recovery.svg)\n"
        yield (
            "A worker on the same machine is known to be dead as soon as its process is gone, so most jobs run again at once; "
            "the rest wait for a retry's pause, for a restarted worker, or for the database.\n"
        )


def crash_table(runs: Sequence[tuple[str, Run | None]]) -> Iterator[str]:
    """Runs side by side, and those that are missing."""
    there = [(name, run) for name, run in runs if run is not None]
    if there:
        yield table(
            ("result", "injected", "what came of it", "promises"),
            [[name, listed(run.injected), listed(run.counts), promises(run)] for name, run in there],
        )
        yield "<details><summary>Every promise that was judged</summary>\n"
        judged = dict.fromkeys(each.promise for _, run in there for each in run.promises)
        for promise in judged:
            yield f"- {promise}"
        yield "\n</details>\n"
    for name, run in runs:
        if run is None:
            yield from not_run(name)


def commits(found: Results) -> Iterator[str]:
    """kill-commit."""
    yield "## Killed between a handler's write and its commit\n"
    yield (
        "A handler writes a row in `ctx.transaction()`, and its worker is killed in the milliseconds around the commit, 200 times. The row "
        "and the job's completion must both be there, or neither.\n"
    )
    yield command(
        "make kill-commit ARGS=--json=docs/evidence/kill-commit-sqlite.json",
        'make kill-commit ARGS="--postgres --json=docs/evidence/kill-commit-postgresql.json"',
    )
    yield from crash_table(
        [(name, found.get(name, Run)) for name in ("kill-commit-sqlite", "kill-commit-postgresql")]
    )


def servers(found: Results) -> Iterator[str]:
    """server-kill."""
    yield "## Servers are killed\n"
    yield (
        "Clients post jobs and try again as the SDK does, while the HTTP servers are killed at random: one server on SQLite, two on one "
        "PostgreSQL. Then PostgreSQL is stopped for 15 seconds under load. No worker runs here: what is judged is the promise of an answer.\n"
    )
    yield command("make server-kill ARGS=--json=docs/evidence/server-kill.json")
    names = ("server-kill-sqlite", "server-kill-postgres", "server-kill-postgres-away")
    runs = [(name, found.get(name, Run)) for name in names]
    yield from crash_table(runs)
    rows = []
    for name, run in runs:
        if run is not None and run.counts.get("client calls"):
            made, answered = run.counts["client calls"], run.counts["client calls answered"]
            rows.append([name, made, answered, f"{answered / made:.3%}"])
    if rows:
        yield "PERF-12 asks for at least 99.95 % of client calls, with the SDK's own retries.\n"
        yield table(("result", "client calls", "answered", "share"), rows)


def power(found: Results) -> Iterator[str]:
    """power-cuts."""
    yield "## The power fails\n"
    yield (
        "Every write and sync of a real producer and worker on SQLite is recorded. From the recording the disk is built as it could be "
        "after a cut at any point, with unsynced writes kept, dropped, torn or reordered, and opened again: every acknowledged job must be "
        "there. So that the check is known to be able to fail, some syncs are made to do nothing, and those faults must be found.\n"
    )
    yield command("make power-cuts ARGS=--json=docs/evidence/power-cuts.json")
    cuts = found.get("power-cuts", PowerCuts)
    if cuts is None:
        yield from not_run("power-cuts")
        return
    yield table(
        ("SQLite and checkpoints", "cuts", "violations"),
        [[row.setting, row.cuts, row.violations] for row in cuts.settings],
    )
    yield table(
        ("unsynced writes", "cuts", "violations"),
        [[row.kind, row.cuts, row.violations] for row in cuts.kinds],
    )
    yield table(
        ("planted fault", "cuts", "found by"),
        [[row.fault, cuts.planted_cuts, row.found] for row in cuts.planted],
    )


def models(found: Results) -> Iterator[str]:
    """proofs."""
    yield "## Models\n"
    yield (
        "TLA+ models of the protocols, checked by TLC over all their states; see `proofs/README.md` for what is modelled and how each action "
        "maps to code. Each has twins with one rule left out: TLC must refute them, or the model proves nothing.\n"
    )
    yield command("make proofs ARGS=--json=docs/evidence/proofs.json")
    proofs = found.get("proofs", Proofs)
    if proofs is None:
        yield from not_run("proofs")
        return
    whole = [each for each in proofs.models if not each.refuted]
    yield table(
        ("model", "about", "states", "distinct", "seconds", "holds"),
        [
            [m.name, m.about, m.states, m.distinct, f"{m.seconds:.1f}", "yes" if m.held else "**NO**"]
            for m in whole
        ],
    )
    yield table(
        ("broken twin", "what is wrong with it", "refuted promise", "steps to it", "refuted"),
        [
            [m.name, m.about, m.refuted, m.steps, "yes" if m.held else "**NO**"]
            for m in proofs.models
            if m.refuted
        ],
    )


def simulator(found: Results) -> Iterator[str]:
    """simulate, and the planted bugs."""
    yield "## Simulator\n"
    yield (
        "The real worker parts and the real store on one thread under a seeded scheduler, which decides who acts next, which answer is lost, "
        "who is killed or frozen and when time moves. Every promise is checked after each step. A failing seed is repeated exactly and shrunk.\n"
    )
    yield command(
        "make simulate ARGS='--seconds 600'", "make evidence ARGS='--simulate 600'   # the same, kept as data"
    )
    runs = [(name, run) for name, run in found.files.items() if isinstance(run, Simulated)]
    for name, run in runs:
        yield f"{run.store}, {run.seconds:.0f} s, exit code {run.exit_code} ({link(name)}):\n"
        yield command(*run.said)
    if not runs:
        yield "Verbs an hour and coverage: not measured.\n"
    yield "**Planted bugs**: each is put into a copy of the source by itself, and the simulator has ten minutes to find it.\n"
    yield command("make simulate-mutants")
    if not found.mutants:
        yield "Planted bugs: not measured.\n"
        return
    yield table(
        ("planted bug", "store", "found", "seconds", "broken promise", "steps of the shortest story"),
        [
            [name, m.store, "yes" if m.found else "**no**", m.seconds, m.promise, m.steps or ""]
            for name, m in found.mutants.items()
        ],
    )


def soak(found: Results) -> Iterator[str]:
    """The soak, on each store."""
    yield "## Soak\n"
    yield (
        "An hour of mixed load by real processes: 20 services with API keys post 500 jobs a second of 30 types, singly and in batches of 100, "
        "with bursts of 5,000 a second by the Python API; an application writes its own row and enqueues 4 jobs in one transaction. Meanwhile "
        "workers and a server are killed, the server and PostgreSQL restart, and retention deletes records of earlier days. *Calm* calls are "
        "those outside bursts, restarts and the ten seconds after them.\n"
    )
    yield command(
        'make soak ARGS="--hours=1 --json=docs/evidence/soak-postgresql.json"',
        'make soak ARGS="--hours=1 --store=sqlite --json=docs/evidence/soak-sqlite.json"',
    )
    for name in ("soak-postgresql", "soak-sqlite"):
        run = found.get(name, Soak)
        if run is None:
            yield from not_run(name)
            continue
        yield from soak_run(name, run)


def soak_run(name: str, run: Soak) -> Iterator[str]:
    """One soak."""
    yield f"### On {run.store}, {run.seconds / 60:.0f} minutes\n"
    yield (
        f"Injected: {listed(run.injected)}. What came of it: {listed(run.counts)}. Promises: {promises(run)} ({link(name)}).\n"
    )
    yield (
        f"**Other programs took {run.others:.0%} of the machine's cores meanwhile**, so the rates and latencies below are those of a shared "
        "machine; an aim that is not met here is not hidden.\n"
    )
    yield table(
        ("requirement", "what", "aim", "measured", ""),
        [[aim.id, aim.what, aim.aim, aim.measured, "met" if aim.met else "**not met**"] for aim in run.aims],
    )
    yield f"![Load and latency of the soak]({FOLDER}/{name}-load.svg)\n"
    yield f"![Growth in the soak]({FOLDER}/{name}-growth.svg)\n"
    figures = ("p50", "p99", "max", "calm p50", "calm p99", "calm max")
    yield table(
        ("calls, all", "made", "succeeded", "sent again", *(f"{each}, ms" for each in figures)),
        [
            [kind, c["made"], c["succeeded"], c["sent again"], *(c.get(each, "") for each in figures)]
            for kind, c in run.calls.items()
        ],
    )
    if run.recovery_seconds:
        found = distribution(run.recovery_seconds)
        spread = ", ".join(f"{label} {value:.2f} s" for label, value in found.items())
        yield f"Jobs that a kill cut off ran again after: {spread} ({len(run.recovery_seconds):,} jobs).\n"


def others() -> Iterator[str]:
    """What writes no result yet."""
    yield "## Attacks and bad days\n"
    yield "These runs print their own tables; no result of them is kept as data, so none is claimed here.\n"
    yield command("make siege", "make bad-day")


def write(folder: Path, found: Results) -> list[Path]:
    """The page and its plots below a documentation folder; what was written."""
    written = {folder / "evidence.md": page(found)}
    written |= {folder / FOLDER / name: text for name, text in plots(found).items()}
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(written)
