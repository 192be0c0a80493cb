"""What does a reader see? A page with plots, made from the results, and what was found out about them."""

from __future__ import annotations

from pathlib import Path

from bench import plot
from bench.aims import aims
from bench.cases import ALL, Case
from bench.contenders import BY_NAME
from bench.plot import Bar
from bench.results import Results

FOLDER = Path(__file__).resolve().parent
_NOTE = 74
_WHOLE_FROM = 100
_LOWER_IS_BETTER = {"ms", "s", "% of a core", "MB", "1/s"}


def write(results: Results, folder: Path = FOLDER) -> None:
    """Write report.md and its plots."""
    plots = folder / "plots"
    plots.mkdir(parents=True, exist_ok=True)
    for old in plots.glob("*.svg"):
        old.unlink()
    measured = [case for case in ALL if any(run.case == case.name for run in results.runs)]
    for case in measured:
        for metric, unit in _plotted(case):
            (plots / f"{case.name}_{metric}.svg").write_text(_plot(results, case, metric, unit))
    words = folder / "not-reached.md"
    explained = words.read_text().splitlines() if words.exists() else []
    (folder / "report.md").write_text("\n".join(_page(results, measured, explained)))


def _page(results: Results, measured: list[Case], words: list[str]) -> list[str]:
    lines = [
        "# Side by side",
        "",
        "Made by `make bench` from [the results](results/latest.json). Every figure is the median of the",
        "rounds; the thin line in a plot reaches from the worst round to the best. All contenders did",
        "the same work on the same servers in the same run, one after another, round by round.",
        "[How it is done](README.md).",
        "",
        *_circumstances(results),
        "",
        "## What we set out to reach",
        "",
        "| case | at least | measured | |",
        "|---|---|---|---|",
        *(
            f"| {aim.case} | {aim.wanted} | {aim.measured} | {_verdict(aim.reached)} |"
            for aim in aims(results)
        ),
        "",
        *_explained(words),
    ]
    for case in measured:
        lines += _section(results, case)
    lines += _entrants(results)
    return lines


def _explained(words: list[str]) -> list[str]:
    """What people found out about aims that are not reached; the figures in it are of its own day."""
    return ["## What is not reached, and why", "", *words, ""] if words else []


def _circumstances(results: Results) -> list[str]:
    rows = {
        "date": results.made[:10],
        "commit": results.commit,
        "size": f"scale {results.scale:.2g}, {results.rounds} rounds, {results.minutes:.0f} minutes",
        **results.machine,
        **results.servers,
    }
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]


def _section(results: Results, case: Case) -> list[str]:
    lines = [f"## {case.title}", ""]
    for metric, unit in _plotted(case):
        lines += [f"![{case.title}, {metric} in {unit}](plots/{case.name}_{metric}.svg)", ""]
    lines += ["| |" + "|".join(f" {metric}, {unit} " for metric, unit in case.metrics.items()) + "| spread |"]
    lines += ["|---|" + "---:|" * (len(case.metrics) + 1)]
    missing = []
    for name in _order(results, case):
        first = results.figure(case.name, name, next(iter(case.metrics)))
        why = results.why_not(case.name, name)
        if why is not None and first is None:
            missing.append(f"- {_title(results, name)}: {_brief(why)}.")
            continue
        cells = [_cell(results, case, name, metric) for metric in case.metrics]
        spread = f"{first.spread:.0%}" if first and first.rounds > 1 else ""
        lines.append(f"| {_title(results, name)} | {' | '.join(cells)} | {spread} |")
    notes = missing + _left_out(results, case)
    return [*lines, "", *notes, *([""] if notes else [])]


def _left_out(results: Results, case: Case) -> list[str]:
    """What is beside the rates of peers that do less for a job than we do."""
    if case.verb != "drain" or case.crowd:
        return []
    known = [name for name in _order(results, case) if name in results.entrants]
    return [
        f"- {_title(results, name)} leaves out: {words}."
        for name in known
        if (words := results.entrants[name].leaves_out)
    ]


def _entrants(results: Results) -> list[str]:
    lines = ["## Who took part", "", "| | release | settings |", "|---|---|---|"]
    for name, entrant in results.entrants.items():
        lines.append(f"| {_title(results, name)} | {entrant.version} | {entrant.settings} |")
    return [*lines, ""]


def _plotted(case: Case) -> list[tuple[str, str]]:
    """The metrics that get a plot: the first, and for enqueues the slow end as well."""
    chosen = list(case.metrics.items())
    if "rate" in case.metrics:
        return [each for each in chosen if each[0] in {"rate", "p99"}]
    return chosen if case.name in {"dispatch", "idle"} else chosen[:1]


def _plot(results: Results, case: Case, metric: str, unit: str) -> str:
    rows = [_bar(results, case, name, metric) for name in _order(results, case)]
    better = "lower is better" if unit in _LOWER_IS_BETTER else "higher is better"
    return plot.bars(case.title, f"{metric}, {unit}; {better}", rows)


def _bar(results: Results, case: Case, name: str, metric: str) -> Bar:
    kind = "ours" if BY_NAME[name].is_ours else "raw" if BY_NAME[name].is_raw else "peer"
    found = results.figure(case.name, name, metric)
    if found is None:
        note = _brief(results.why_not(case.name, name) or _never(results, case, name))
        return Bar(BY_NAME[name].title, kind, None, note=note, group=BY_NAME[name].store)
    told = _number(found.median)
    return Bar(
        BY_NAME[name].title, kind, found.median, found.low, found.high, told, group=BY_NAME[name].store
    )


def _never(results: Results, case: Case, name: str) -> str:
    limit = results.figure(case.name, name, "limit")
    return f"not within {limit.median:.0f} s" if limit else "not told by its store"


def _order(results: Results, case: Case) -> list[str]:
    seen = {run.contender for run in results.runs if run.case == case.name}
    return [name for name in BY_NAME if name in seen]


def _cell(results: Results, case: Case, name: str, metric: str) -> str:
    found = results.figure(case.name, name, metric)
    if found is None:
        return _never(results, case, name) if metric == "back" else "-"
    return _number(found.median)


def _title(results: Results, name: str) -> str:
    entrant = results.entrants.get(name)
    title = entrant.title if entrant else BY_NAME[name].title
    return f"**{title}**" if BY_NAME[name].is_ours else title


def _number(value: float) -> str:
    if value >= _WHOLE_FROM or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"  # noqa: PLR2004


def _brief(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= _NOTE else line[: _NOTE - 1] + "…"


def _verdict(reached: bool | None) -> str:  # noqa: FBT001 - three states
    return "" if reached is None else "reached" if reached else "**not reached**"
