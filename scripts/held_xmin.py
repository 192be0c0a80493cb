#!/usr/bin/env python3
"""What does a transaction that somebody forgets do to a PostgreSQL store at work, and does it recover?

Jobs come at a steady rate and a worker runs them. Meanwhile another connection opens a transaction, keeps it
open and ends it. Prints what jobs and claims felt of that, step by step, and draws it with --svg.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from growth import server

from windlass import Queue

BEATS = 10
STEPS = 40
HOLDER = "forgotten report"
# `db status` does not speak of shorter ones.
WORTH_A_WORD = 60.0


@dataclass
class Step:
    """What one span of time was like."""

    second: float
    held: bool
    wait: float
    worst: float
    claim: float
    dead: int
    claim_index: int


class Load:
    """A queue at work: jobs at a rate, a worker for them, and what both feel."""

    def __init__(self, queue: Queue, rate: int) -> None:
        self._queue = queue
        self._rate = rate
        self._waits: list[float] = []
        self._claims: list[float] = []
        self._stopped = threading.Event()
        self._producer = threading.Thread(target=self._produce, daemon=True)
        self.sent = 0
        self.ran = 0

        @queue.job
        async def noop(sent: float) -> None:
            self._waits.append(perf_counter() - sent)
            self.ran += 1

        self._noop = noop
        self._watch_claims()

    def start(self) -> None:
        """Begin to produce."""
        self._producer.start()

    def stop(self) -> None:
        """Produce no more."""
        self._stopped.set()
        self._producer.join()

    def taken(self) -> tuple[list[float], list[float]]:
        """Waits of jobs and times of claims since this was last asked, in milliseconds."""
        waits, self._waits = self._waits, []
        claims, self._claims = self._claims, []
        return [each * 1000 for each in waits], [each * 1000 for each in claims]

    def _produce(self) -> None:
        begun = perf_counter()
        for beat in range(1, sys.maxsize):
            now = perf_counter()
            self._queue.enqueue_many(self._noop.draft(now) for _ in range(self._rate // BEATS))
            self.sent += self._rate // BEATS
            if self._stopped.wait(max(0.0, begun + beat / BEATS - perf_counter())):
                return

    def _watch_claims(self) -> None:
        store: Any = self._queue.store
        claim = store.claim

        def timed(want: Any) -> Any:
            begun = perf_counter()
            try:
                return claim(want)
            finally:
                self._claims.append(perf_counter() - begun)

        store.claim = timed


def observe(url: str, options: argparse.Namespace) -> tuple[list[Step], str, int]:
    """Run the load through the three spans: the steps, what `db status` says, and how many jobs are left."""
    length = options.seconds / STEPS
    ends = [options.around, options.around + options.seconds, 2 * options.around + options.seconds]
    steps: list[Step] = []
    said = ""
    pause = threading.Event()
    with Queue(url) as queue, psycopg.connect(url, application_name=HOLDER) as holder:
        load = Load(queue, options.rate)
        with queue.worker(), psycopg.connect(url, autocommit=True) as looker:
            load.start()
            begun = perf_counter()
            while (second := perf_counter() - begun) < ends[2]:
                held = ends[0] <= second < ends[1]
                _hold(holder, held=held)
                pause.wait(length)
                steps.append(_step(perf_counter() - begun, held, load, looker))
                print_step(steps[-1])
                if held:
                    said = "; ".join(queue.store.status().notes)
            load.stop()
            while load.ran < load.sent and perf_counter() - begun < ends[2] + options.around:
                pause.wait(0.1)
    return steps, said, load.sent - load.ran


def _hold(holder: psycopg.Connection[Any], *, held: bool) -> None:
    idle = holder.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    if held and idle:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select count(*) from windlass.types")
    elif not held and not idle:
        holder.rollback()


def _step(second: float, held: bool, load: Load, looker: psycopg.Connection[Any]) -> Step:  # noqa: FBT001
    waits, claims = load.taken()
    row = looker.execute(
        "select n_dead_tup, pg_relation_size('windlass.jobs_claim')"
        " from pg_stat_user_tables where relid = 'windlass.jobs'::regclass"
    ).fetchone()
    dead, size = row or (0, 0)
    return Step(
        second,
        held,
        statistics.median(waits or [0]),
        max(waits or [0]),
        statistics.median(claims or [0]),
        dead,
        size,
    )


def print_step(step: Step) -> None:
    """One line of the table."""
    print(
        f"{step.second:>8.0f}{'held' if step.held else '':>7}{step.wait:>10.1f}{step.worst:>10.1f}"
        f"{step.claim:>10.2f}{step.dead:>12,}{step.claim_index / 2**20:>10.1f}",
        flush=True,
    )


def drawn(steps: list[Step]) -> str:
    """The curve: how long jobs waited and claims took, with the time of the held transaction shaded."""
    width, height, left, top = 720, 280, 60, 30
    last, most = steps[-1].second, max(max(step.wait, step.claim) for step in steps) * 1.1

    def x(second: float) -> float:
        return left + second / last * (width - left - 20)

    def y(value: float) -> float:
        return top + (1 - value / most) * (height - top - 40)

    def line(values: list[float], colour: str) -> str:
        points = " ".join(f"{x(s.second):.1f},{y(v):.1f}" for s, v in zip(steps, values, strict=True))
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'

    held = [step.second for step in steps if step.held]
    marks = "".join(
        f'<text x="{left - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.0f} ms</text>'
        for v in (0, most / 2, most / 1.1)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        f' font-size="12"><rect width="{width}" height="{height}" fill="white"/>'
        f'<rect x="{x(held[0]):.1f}" y="{top}" width="{x(held[-1]) - x(held[0]):.1f}"'
        f' height="{height - top - 40}" fill="#f3e6d0"/>'
        f'<text x="{x(held[0]) + 6:.1f}" y="{top + 16}">a transaction is held open</text>{marks}'
        + line([step.wait for step in steps], "#1f6feb")
        + line([step.claim for step in steps], "#c2410c")
        + f'<text x="{left}" y="{height - 12}" fill="#1f6feb">a job waits (median)</text>'
        f'<text x="{left + 170}" y="{height - 12}" fill="#c2410c">a claim takes (median)</text>'
        f'<text x="{width - 20}" y="{height - 12}" text-anchor="end">{last:.0f} s</text></svg>\n'
    )


def main() -> int:
    """Observe, print, draw; 1 if a job was not run or the store did not recover."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", help="a PostgreSQL server, on which a database is made and dropped")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long the transaction is held")
    parser.add_argument("--around", type=float, default=90.0, help="seconds before and after")
    parser.add_argument("--rate", type=int, default=500, help="jobs a second")
    parser.add_argument("--svg", type=Path, help="where to draw the curve")
    options = parser.parse_args()
    print(
        f"{'second':>8}{'':>7}{'wait p50':>10}{'max':>10}{'claim p50':>10}{'dead rows':>12}{'index MB':>10}"
    )
    with server(options.db) as place:
        steps, said, left = observe(place.fresh("held"), options)
    print(f"db status: {said}\n{left} jobs not run")
    if options.svg is not None:
        options.svg.write_text(drawn(steps))
    before = statistics.median(step.claim for step in steps if step.second <= options.around)
    # The first half of what follows is for the vacuum.
    end = 1.5 * options.around + options.seconds
    after = statistics.median([step.claim for step in steps if step.second > end] or [steps[-1].claim])
    recovered = after <= 2 * before + 1
    print(f"{'recovered' if recovered else 'NOT recovered'}: {before:.2f} ms before, {after:.2f} after")
    named = HOLDER in said or options.seconds <= WORTH_A_WORD
    return 0 if recovered and not left and named else 1


if __name__ == "__main__":
    sys.exit(main())
