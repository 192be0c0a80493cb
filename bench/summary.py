"""What stands in the README? A short table made from the results, with its date and circumstances."""

from __future__ import annotations

from pathlib import Path

from bench.contenders import BY_NAME
from bench.environments import ROOT
from bench.results import Results

README = ROOT / "README.md"
BEGIN, END = "<!-- Made by `make bench`. -->", "<!-- Until here. -->"
_SHOWN = (
    "windlass-postgres",
    "pgqueuer",
    "procrastinate",
    "windlass-sqlite",
    "huey",
    "celery",
    "dramatiq",
    "rq",
)
_ROWS = (
    ("enqueue, 10 producers, jobs/s", "enqueue_ten", "rate"),
    ("drain, one process, jobs/s", "drain_one", "rate"),
    ("drain, two processes, jobs/s", "drain_two", "rate"),
    ("enqueue to start, idle, ms (median)", "dispatch", "p50"),
    ("jobs of a killed worker run again after, s", "recovery", "back"),
    ("memory of a worker, MB", "idle", "memory"),
)
_WHOLE_FROM = 20


def put(results: Results, readme: Path = README) -> None:
    """Replace what stands between the two marks."""
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{readme.name} has no {BEGIN} or no {END}")
    readme.write_text("\n".join([before + BEGIN, *_table(results), END + after]), encoding="utf-8")


def _table(results: Results) -> list[str]:
    lines = [
        "| | " + " | ".join(BY_NAME[name].title.replace(", ", "<br>") for name in _SHOWN) + " |",
        "|---|" + "---:|" * len(_SHOWN),
    ]
    for title, case, metric in _ROWS:
        lines.append(f"| {title} | {' | '.join(_cell(results, case, name, metric) for name in _SHOWN)} |")
    told = (
        f"Measured on {results.made[:10]}, {results.machine.get('cores')} cores, servers on the same machine,"
        f" every answer on disk; medians of {results.rounds} rounds."
    )
    return [*lines, "", told]


def _cell(results: Results, case: str, name: str, metric: str) -> str:
    found = results.figure(case, name, metric)
    if found is not None:
        return f"{found.median:,.0f}" if found.median >= _WHOLE_FROM else f"{found.median:.1f}"
    limit = results.figure(case, name, "limit")
    return f"not within {limit.median:.0f}" if limit else "-"
