"""docs/evidence.md as text, from results alone: the same data give the same page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from soak import report

from bench.plot import Panel, panels, shares
from evidence import prose
from evidence.data import Head, Lines, Mutant, PowerCuts, Proofs, Run, Simulated, Soak
from tests.history.result import distribution

T = TypeVar("T", bound=Head)
FOLDER = "evidence"
WORDS = {
    "kill a worker": "workers killed",
    "kill a server": "servers killed",
    "restart a server": "servers restarted",
    "restart PostgreSQL": "restarts of PostgreSQL",
    "burst": "bursts",
    "prune": "prunings",
}


class Results(NamedTuple):
    """Everything that the page is made from."""

    files: Mapping[str, Head]
    mutants: Mapping[str, Mutant]
    # The names of all planted bugs; some may not have been played.
    planted: Sequence[str] = ()

    def get(self, name: str, kind: type[T]) -> T | None:
        """One result, if its run was made."""
        found = self.files.get(name)
        return found if isinstance(found, kind) else None


def page(found: Results) -> str:
    """The whole page."""
    parts = [prose.HEADER, *short(found), *places(found), *workers(found), *commits(found), *servers(found)]
    parts += [*power(found), *models(found), *simulator(found), *soak(found), *others(found), prose.NOT_SHOWN]
    return "\n".join(parts)


def texts(found: Results) -> dict[str, str]:
    """The page and its plots, by their places below docs."""
    return {"evidence.md": page(found)} | {f"{FOLDER}/{name}": text for name, text in plots(found).items()}


def plots(found: Results) -> dict[str, str]:
    """The plots that belong to the page, by file name."""
    drawn: dict[str, str] = {}
    for name, run in found.files.items():
        if isinstance(run, Soak):
            document = msgspec.structs.asdict(run)
            drawn |= {f"{name}-{part}.svg": text for part, text in report.draw(document).items()}
    return drawn | recovery(found)


def recovery(found: Results) -> dict[str, str]:
    """How soon jobs ran again, as a distribution."""
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
    return f"[{name}]({FOLDER}/{name}.json)"


def command(*lines: str) -> str:
    """What to type, or what was printed."""
    return "\n".join(["```", *lines, "```", ""])


def repeat(found: Results, *usual: tuple[str, str]) -> str:
    """The commands that write some results: as they were typed or, of runs that were not made, as usual."""
    lines = []
    for name, words in usual:
        run = found.files.get(name)
        target, _, rest = words.partition(" ")
        given = [*(rest.split() if run is None or not run.arguments else run.arguments)]
        # One run may write several files.
        file = "server-kill" if name.startswith("server-kill") else name
        given.append(f"--json=docs/{FOLDER}/{file}.json")
        lines.append(
            f'make {target} ARGS="{" ".join(given)}"' if len(given) > 1 else f"make {target} ARGS={given[0]}"
        )
    return command(*dict.fromkeys(lines))


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
    return ", ".join(f"{cell(value)} {WORDS.get(name, name)}" for name, value in counts.items()) or "nothing"


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
            judged = f"{run.held} of {len(run.promises)}"
            judged = judged if run.held == len(run.promises) else f"**{judged}**"
            rows.append([link(name), listed(run.injected), accepted, lost(run), doubled, judged])
    if rows:
        head = ("result", "injected", "accepted jobs", "lost", "doubled", "promises that held")
        yield table(head, rows)
        yield prose.LOST
    cuts, proofs = found.get("power-cuts", PowerCuts), found.get("proofs", Proofs)
    if cuts is not None:
        made, wrong = sum(row.cuts for row in cuts.settings), sum(row.violations for row in cuts.settings)
        yield f"- Power cuts on SQLite: {made:,} cuts, {wrong:,} of them with something missing or damaged."
    if proofs is not None:
        twins = [each for each in proofs.models if each.refuted]
        whole = [each for each in proofs.models if not each.refuted]
        good, refuted = sum(each.held for each in whole), sum(each.held for each in twins)
        yield f"- Models: {good} of {len(whole)} hold; {refuted} of {len(twins)} broken twins are refuted."
    if found.mutants:
        caught = sum(each.found for each in found.mutants.values())
        yield f"- Simulator: {caught} of {len(found.mutants)} planted bugs that were played were found."
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
            [link(name), run.date[:16], f"`{run.commit}`", load_of(run), seed_of(run), versions_of(run)]
            for name, run in found.files.items()
        ]
        head = ("result", "date (UTC)", "commit", "load average", "seed", "database")
        yield table(head, rows)
        yield prose.LOAD


def load_of(run: Head) -> str:
    """How busy the machine was."""
    return "not noted" if run.load is None else f"{run.load:.1f}"


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
    yield prose.WORKERS
    yield repeat(found, ("kill-run-sqlite", "kill-run"), ("kill-run-postgresql", "kill-run --postgres"))
    runs = [(name, found.get(name, Run)) for name in ("kill-run-sqlite", "kill-run-postgresql")]
    yield from crash_table(runs)
    timed = [(run.store, run) for _, run in runs if run is not None and run.recovery_seconds]
    if timed:
        yield prose.RECOVERY
        rows = [
            [store, len(run.recovery_seconds), *distribution(run.recovery_seconds).values()]
            for store, run in timed
        ]
        yield table(("store", "cut-off jobs", "min", "p50", "p90", "p99", "max"), rows)
        yield f"![Recovery after kill -9, as a distribution]({FOLDER}/recovery.svg)\n"
        yield prose.RECOVERY_NOTE


def crash_table(runs: Sequence[tuple[str, Run | None]]) -> Iterator[str]:
    """Runs side by side, and those that are missing."""
    there = [(name, run) for name, run in runs if run is not None]
    if there:
        yield table(
            ("result", "injected", "what came of it", "promises"),
            [[link(name), listed(run.injected), listed(run.counts), promises(run)] for name, run in there],
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
    yield prose.COMMITS
    yield repeat(
        found, ("kill-commit-sqlite", "kill-commit"), ("kill-commit-postgresql", "kill-commit --postgres")
    )
    yield from crash_table(
        [(name, found.get(name, Run)) for name in ("kill-commit-sqlite", "kill-commit-postgresql")]
    )


def servers(found: Results) -> Iterator[str]:
    """server-kill."""
    yield "## Servers are killed\n"
    yield prose.SERVERS
    yield repeat(found, ("server-kill-sqlite", "server-kill"))
    names = ("server-kill-sqlite", "server-kill-postgres", "server-kill-postgres-away")
    runs = [(name, found.get(name, Run)) for name in names]
    yield from crash_table(runs)
    rows = []
    for name, run in runs:
        if run is not None and run.counts.get("client calls"):
            made, answered = run.counts["client calls"], run.counts["client calls answered"]
            rows.append([link(name), made, answered, f"{answered / made:.3%}"])
    if rows:
        yield prose.AVAILABILITY
        yield table(("result", "client calls", "answered", "share"), rows)


def power(found: Results) -> Iterator[str]:
    """power-cuts."""
    yield "## The power fails\n"
    yield prose.POWER
    yield repeat(found, ("power-cuts", "power-cuts"))
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
    """Proofs."""
    yield "## Models\n"
    yield prose.MODELS
    yield repeat(found, ("proofs", "proofs"))
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
    yield prose.SIMULATOR
    runs = [(name, run) for name, run in found.files.items() if isinstance(run, Simulated)]
    for name, run in runs:
        yield command(f'make evidence ARGS="{" ".join(run.arguments)}"')
        verdict = "every promise held" if run.exit_code == 0 else "**a promise was broken**"
        yield f"On {run.store}, for {run.seconds:.0f} s: {verdict} ({link(name)}). It printed:\n"
        yield command(*run.said)
    if not runs:
        yield command("make evidence ARGS=--simulate=600")
        yield "Verbs an hour and coverage: not measured.\n"
    yield prose.MUTANTS
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
    if left := [name for name in found.planted if name not in found.mutants]:
        yield f"Not played for this page: {'; '.join(left)}.\n"


def soak(found: Results) -> Iterator[str]:
    """The soak, on each store."""
    yield "## Soak\n"
    yield prose.SOAK
    yield repeat(
        found, ("soak-postgresql", "soak --hours=1"), ("soak-sqlite", "soak --hours=1 --store=sqlite")
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
    yield f"Injected: {listed(run.injected)}. What came of it: {listed(run.counts)}.\n"
    yield f"Promises: {promises(run)} ({link(name)}).\n"
    yield prose.SHARED.format(share=run.others)
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


def others(found: Results) -> Iterator[str]:
    """The runs `siege` and `bad-day`."""
    yield "## Attacks and bad days\n"
    yield prose.OTHERS
    yield repeat(found, ("siege", "siege"), ("bad-day", "bad-day"))
    for name in ("siege", "bad-day"):
        run = found.get(name, Lines)
        if run is None:
            yield from not_run(name)
            continue
        held = sum(row.held for row in run.rows)
        yield f"**{name}**: {held} of {len(run.rows)} held ({link(name)}).\n"
        yield table(
            ("", "in the words of the run"), [["held" if r.held else "**BROKEN**", r.line] for r in run.rows]
        )


def write(folder: Path, found: Results) -> list[Path]:
    """The page and its plots below a documentation folder; what was written."""
    written = {folder / name: text for name, text in texts(found).items()}
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(written)
