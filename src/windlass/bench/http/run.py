"""How do single posts, batches and a full queue do, beside the bare server in the same run?"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import uvloop

from windlass.bench.http.load import Load, as_fast_as_it_goes, paced, request
from windlass.bench.place import Place
from windlass.bench.run import Figure, share
from windlass.queue import Queue

# Many short turns: what a disk or a machine does meanwhile meets all of them alike.
ROUNDS = 6
PACED_ROUNDS = 4
RATES = (500, 2_000)
_LINES = 50
_SECONDS = 2.0
_SHORTEST = 0.1
_BATCH = 100
_BATCH_TURNS = 2
_WAITING = 100_000
_DEEP = 1_000_000_000
_JOB = b'{"type":"noop","payload":{"n":1,"name":"someone"}}'
_SINGLE = request("/api/v1/jobs", _JOB)
_BATCH_OF = request("/api/v1/jobs/batch", b'{"jobs":[' + b",".join([_JOB] * _BATCH) + b"]}")


def measure(place: Place, *, scale: float, step: Callable[[str], None]) -> list[Figure]:
    """Every figure; `step` is told what is being measured."""
    seconds = max(_SHORTEST, _SECONDS * scale)
    ours, bare = place.fresh("http_ours"), place.fresh("http_bare", beside=True)
    many = place.fresh("http_many", beside=True)
    for url in (ours, bare):
        _prepare(url)
    _prepare(many, waiting=max(1_000, round(_WAITING * scale)))
    with _serving(ours) as port, _bare(bare) as bare_port, _serving(many) as many_port:
        figures = _singles({_BARE: bare_port, _OURS: port, _MANY: many_port}, seconds, step)
        for rate in RATES:
            figures += _evenly({_BARE: bare_port, _OURS: port}, rate, seconds, step)
        step("batches")
        load = _checked(
            _run(as_fast_as_it_goes(port, lambda: _BATCH_OF, lines=4, seconds=_BATCH_TURNS * seconds))
        )
        figures.append(_rate("POST /jobs/batch, 100 each", [load.rate * _BATCH], aim="> 20000"))
        figures += _delays("POST /jobs/batch", load.delays, (None, "< 50"))[1:]
    return figures


def _singles(ports: Mapping[str, int], seconds: float, step: Callable[[str], None]) -> list[Figure]:
    """Single posts to each server in turn: a machine's speed drifts, so only neighbours can be compared."""
    rounds: dict[str, list[float]] = {name: [] for name in ports}
    for _ in range(ROUNDS):
        for name, port in ports.items():
            step(name)
            load = _run(as_fast_as_it_goes(port, lambda: _SINGLE, lines=_LINES, seconds=seconds))
            rounds[name].append(_checked(load).rate)
    return [
        _rate(_BARE, rounds[_BARE]),
        _rate(_OURS, rounds[_OURS], _BARE, rounds[_BARE], ">= 1.0"),
        _rate(_MANY, rounds[_MANY], _OURS, rounds[_OURS], ">= 0.8"),
    ]


def _evenly(ports: Mapping[str, int], rate: int, seconds: float, step: Callable[[str], None]) -> list[Figure]:
    """So many posts a second, to the bare server and to ours in turn: both meet the same disk."""
    delays: dict[str, list[float]] = {name: [] for name in ports}
    for _ in range(PACED_ROUNDS):
        for name, port in ports.items():
            step(name)
            load = _run(paced(port, lambda: _SINGLE, lines=_LINES, seconds=seconds, rate=rate))
            delays[name] += _checked(load).delays
    bare = _delays(f"bare Starlette at {rate}/s", delays[_BARE], (None, None))
    return bare + _delays(f"POST /jobs at {rate}/s", delays[_OURS], ("< 5", "< 50"), bare)


def _prepare(url: str, waiting: int = 0) -> None:
    with Queue(url) as queue:

        @queue.job
        def noop(n: int, name: str) -> None:
            """Nothing."""

        queue.publish()
        # What is measured would soon be a full queue.
        for setting in ("soft_depth", "hard_depth"):
            for whose in ("*", "noop"):
                queue.store.set_setting(f"{whose}.{setting}", str(_DEEP))
        queue.enqueue_many(noop.draft(n, "someone") for n in range(waiting))


@contextmanager
def _serving(url: str) -> Iterator[int]:
    words = [sys.executable, "-m", "windlass", "serve", "--port", "0", "--db", url]
    with _ended(subprocess.Popen(words, stderr=subprocess.PIPE, text=True)) as process:
        assert process.stderr is not None  # noqa: S101 - a pipe was asked for
        yield int(process.stderr.readline().rpartition("/docs")[0].rpartition(":")[2])


@contextmanager
def _bare(url: str) -> Iterator[int]:
    words = [sys.executable, "-m", "windlass.bench.http.bare", url]
    with _ended(subprocess.Popen(words, stdout=subprocess.PIPE, text=True)) as process:
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        yield int(process.stdout.readline())


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _run(load: object) -> Load:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found: Load = runner.run(load)  # type: ignore[arg-type]
        return found


def _checked(load: Load) -> Load:
    if load.refused or not load.count:
        raise RuntimeError(f"{load.refused} of {load.count} requests were refused")
    return load


def _rate(
    name: str,
    rounds: list[float],
    beside: str | None = None,
    of: list[float] | None = None,
    aim: str | None = None,
) -> Figure:
    return Figure(
        name=name,
        unit="jobs/s",
        median=statistics.median(rounds),
        rounds=rounds,
        share_of=beside,
        share=None if of is None else share(rounds, of),
        aim=aim,
    )


def _delays(
    name: str,
    delays: list[float],
    aims: tuple[str | None, str | None],
    beside: list[Figure] | None = None,
) -> list[Figure]:
    cuts = statistics.quantiles(delays, n=100)
    return [
        Figure(
            name=f"{name}, p{percent}",
            unit="ms",
            median=cuts[percent - 1],
            rounds=[],
            share_of=None if other is None else other.name,
            share=None if other is None else cuts[percent - 1] / other.median,
            aim=aim,
        )
        for percent, aim, other in zip((50, 99), aims, beside or (None, None), strict=True)
    ]


_BARE = "bare Starlette, POST /jobs"
_OURS = "POST /jobs, 50 connections"
_MANY = "POST /jobs, many waiting"
