"""What did a soak show? Aims with what was measured, growth, plots and a file for `make evidence`."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.plot import Panel, panels
from soak.notes import Calls
from soak.plan import SERVICES, TYPES

# The first part of a run fills caches; growth is judged in the rest, its second half against its first.
_WARM = 0.15
_GROWTH = 1.15
# Of the requirements: milliseconds, and a share.
_POST_P99 = 50
_PROCESSED = 0.999
# Posts are lost to the seconds in which servers are away.
_NEARLY = 0.98
# Below these a difference says nothing: megabytes, files, rows.
_FLOORS = {"memory": 15.0, "open": 16.0, "dead": 50_000.0, "live": 16.0, "WAL": 1024.0, "depth": 500.0}
_GROWING = (
    "memory of the steady server",
    "memory of the steady worker",
    "memory of the application",
    "open files of the steady server",
    "open files of the steady worker",
    "open files of the application",
    "depth",
    "live table",
    "dead rows",
    "WAL",
)


class Aim(NamedTuple):
    """One aim of the requirements, what was measured, and whether it was met."""

    id: str
    what: str
    aim: str
    measured: str
    met: bool

    def __str__(self) -> str:
        return f"{self.id:<8} {self.what:<44} {self.aim:<22} {self.measured:<34} {_verdict(self.met)}"


class Growth(NamedTuple):
    """One quantity, its medians in both halves, and whether it stayed."""

    what: str
    first: float
    second: float
    stayed: bool


class Measured(NamedTuple):
    """What the aims are judged by."""

    calls: Mapping[str, Calls]
    # Jobs completed a second over the whole load, and in each step of it.
    rate: float
    # The share of the stored jobs that completed.
    processed: float
    pairs: int
    pruned: int
    # For how long pruning ran, and from the start to its end; and how long posts were sent.
    prune_seconds: float
    prune_span: float
    load_seconds: float
    # The 99th percentile of posts while records were deleted.
    post_p99_pruning: float
    scale: float


def aims(found: Measured) -> list[Aim]:
    """Every aim that a soak measures, at the numbers of the requirements times the scale of the run."""
    figures = {kind: calls.figures() for kind, calls in found.calls.items()}
    post, batch, order = (figures.get(kind, {}) for kind in ("post", "batch", "order"))
    enqueue, status = (found.calls.get(f"sdk-{kind}", Calls()) for kind in ("enqueue", "status"))
    wanted, prune_wanted = 500 * found.scale, 500 * found.scale
    sustained = found.pruned / found.prune_span
    posted = post.get("succeeded", 0.0) / found.load_seconds
    return [
        Aim(
            "PERF-1",
            "POST /jobs, accepted a second",
            f"{wanted:.0f}/s",
            f"{posted:.0f}/s",
            posted >= _NEARLY * wanted,
        ),
        _below("PERF-1", "POST /jobs at that rate, calm: p50", post, "calm p50", 5),
        _below("PERF-1", "POST /jobs at that rate, calm: p99", post, "calm p99", 50),
        _below("PERF-2", "batch of 100 over HTTP, calm: p99", batch, "calm p99", 50),
        Aim(
            "PERF-5",
            "jobs enqueued, claimed and completed",
            f">= {wanted:.0f}/s",
            f"{found.rate:.0f}/s",
            found.rate >= wanted,
        ),
        Aim(
            "PERF-8",
            "services x types at once",
            f"{SERVICES * TYPES} pairs",
            f"{found.pairs} pairs",
            found.pairs >= SERVICES * TYPES,
        ),
        _below("PERF-9", "a request's row and 4 jobs, calm: p50", order, "calm p50", 15),
        _below("PERF-9", "the same, calm: slowest", order, "calm max", 100),
        Aim(
            "PERF-11",
            "records deleted by retention, sustained",
            f">= {prune_wanted:.0f}/s",
            f"{sustained:.0f}/s ({found.pruned / max(0.1, found.prune_seconds):,.0f}/s while it ran)",
            sustained >= prune_wanted,
        ),
        Aim(
            "PERF-11",
            "POST /jobs while records are deleted: p99",
            "< 50 ms",
            f"{found.post_p99_pruning:.1f} ms",
            found.post_p99_pruning < _POST_P99,
        ),
        _share("PERF-12", "SDK: enqueue, with its retries", enqueue.done, enqueue.made, 0.9995),
        _share("PERF-12", "SDK: status, with its retries", status.done, status.made, 0.999),
        Aim(
            "PERF-12",
            "accepted jobs that completed",
            ">= 99.900 %",
            f"{found.processed:.3%}",
            found.processed >= _PROCESSED,
        ),
    ]


def _below(name: str, what: str, figures: Mapping[str, float], figure: str, most: float) -> Aim:
    value = figures.get(figure)
    count = figures.get("calm counted", 0)
    shown = "not measured" if value is None else f"{value:.1f} ms ({count:,.0f} calls)"
    return Aim(name, what, f"< {most:g} ms", shown, value is not None and value < most)


def _share(name: str, what: str, done: int, made: int, least: float) -> Aim:
    share = done / made if made else 0.0
    return Aim(name, what, f">= {least:.3%}", f"{share:.3%} ({done:,} of {made:,})", share >= least)


def growth(samples: Sequence[Mapping[str, float]]) -> list[Growth]:
    """Each quantity's median in the second half against the first, without the first minutes."""
    warm = samples[int(len(samples) * _WARM) :]
    found = []
    for what in _GROWING:
        values = [each[what] for each in warm if what in each]
        if len(values) < 4:  # noqa: PLR2004 - of fewer there are no halves
            continue
        half = len(values) // 2
        first, second = statistics.median(values[:half]), statistics.median(values[half:])
        floor = next(value for word, value in _FLOORS.items() if word in what)
        found.append(Growth(what, first, second, second <= max(first * _GROWTH, first + floor)))
    return found


def table(rows: Iterable[Aim], grown: Iterable[Growth]) -> Iterable[str]:
    """What is printed at the end."""
    yield f"{'':<8} {'':<44} {'aim':<22} {'measured':<34}"
    yield from map(str, rows)
    yield ""
    yield f"{'median, without the first minutes':<36} {'first half':>12} {'second half':>12}"
    for each in grown:
        stayed = "stayed" if each.stayed else "GREW"
        yield f"{each.what:<36} {each.first:>12,.1f} {each.second:>12,.1f}  {stayed}"


def _verdict(met: bool) -> str:  # noqa: FBT001 - a word for it
    return "met" if met else "NOT MET"


def draw(document: Mapping[str, Any]) -> dict[str, str]:
    """The plots of a result by their names; made from what is in it alone."""
    samples, latency = document["samples"], document["latency"]
    seconds = samples["seconds"]
    marks = document["marks"]

    def curve(name: str) -> list[tuple[float, float | None]]:
        return list(zip(seconds, samples.get(name, [None] * len(seconds)), strict=True))

    def paced(kind: str, figure: str) -> list[tuple[float, float | None]]:
        found = latency[kind]
        return list(zip(found["seconds"], found[figure], strict=True))

    where = f"{document['store']}, {document['seconds'] / 60:.0f} minutes, scale {document['scale']:g}"
    load = [
        Panel("jobs that wait or run", {"depth": curve("depth")}),
        Panel("jobs completed a second", {"completed": rates(seconds, samples.get("completed", []))}),
        Panel("POST /jobs, accepted a second", {"posts": paced("post", "rate")}),
        Panel("POST /jobs, ms", {"p99": paced("post", "p99"), "p50": paced("post", "p50")}, powers=True),
        Panel("batch of 100, ms", {"p99": paced("batch", "p99"), "p50": paced("batch", "p50")}, powers=True),
        Panel(
            "user's request: a row and 4 jobs, ms",
            {"p99": paced("order", "p99"), "p50": paced("order", "p50")},
            powers=True,
        ),
    ]
    memory = {
        "server": curve("memory of the steady server"),
        "worker": curve("memory of the steady worker"),
        "application": curve("memory of the application"),
        "killed workers": curve("memory of killed workers"),
    }
    grown = [
        Panel("resident memory, MB", memory),
        Panel("memory of PostgreSQL, MB", {"all processes": curve("memory of PostgreSQL")}),
        Panel(
            "open files",
            {
                "server": curve("open files of the steady server"),
                "worker": curve("open files of the steady worker"),
            },
        ),
        Panel("dead rows of the live table", {"dead rows": curve("dead rows")}),
        Panel(
            "size, MB", {"live table": curve("live table"), "archive": curve("archive"), "WAL": curve("WAL")}
        ),
        Panel("records of earlier days, left", {"records": curve("past")}),
    ]
    if document["store"] == "sqlite":
        del grown[1]
    return {
        "load": panels("Soak: load and latency", where, load, marks),
        "growth": panels("Soak: growth", where, grown, marks),
    }


def rates(seconds: Sequence[float], totals: Sequence[float | None]) -> list[tuple[float, float | None]]:
    """How fast a total rises between one sample and the next."""
    known = [(at, total) for at, total in zip(seconds, totals, strict=False) if total is not None]
    return [
        (at, max(0.0, (total - before) / (at - since)))
        for (since, before), (at, total) in itertools.pairwise(known)
        if at > since
    ]
