#!/usr/bin/env python3
"""Does a worker stay the same through a hundred thousand jobs, a tenth of them bad?

One worker with 100 slots runs jobs on threads and in children, always as many of the one kind as of the
other; one in ten raises, times out or dies. What it takes is sampled and drawn as an SVG: resident memory,
what of it is in use (the C library keeps some for later), SQLite's cache, Python's blocks, threads, files
and children.

A worker whose threads do not end starts itself anew; so only samples of one and the same life are compared:
the last quarter of the longest with the one before it, when caches are full. Exit 1 if anything has grown.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.history import result
from windlass import connect
from windlass.clock import uuid7
from windlass.job import JobState, NewJob
from windlass.store.jobs import Filter
from windlass.store.store import Store

HERE = Path(__file__).parent
KINDS = ("churn_thread", "churn_child")
PORTION = 1_000
UNFINISHED = (JobState.PENDING, JobState.PROCESSING)
WIDTH, HEIGHT, EDGE = 720, 120, 60
MEGABYTE = 2**20
# What the last quarter may have more than the one before. In use counts also what the C library keeps for
# each thread, which fills up for a long time and is bounded; children come and go.
ALLOWED = {
    "resident memory, MB": 1.03,
    "in use without SQLite, MB": 1.05,
    "SQLite's cache, MB": 1.03,
    "Python's blocks, thousands": 1.03,
    "threads": 1.03,
    "open files": 1.1,
    "children": 1.1,
}
# Whatever is below this is a cache that fills up.
BOUNDS = {"SQLite's cache, MB": 20.0}


class Sample(NamedTuple):
    """How the worker was at one moment."""

    done: int
    life: str
    values: dict[str, float]


def main() -> int:
    """Run, draw, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path("churn.svg"))
    result.add_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windlass-churn-") as folder:
        samples = run(options.jobs, Path(folder))
    options.out.write_text(draw(samples), encoding="utf-8")
    print(f"{options.out}: {len(samples)} samples over {samples[-1].done} jobs")
    shown = result.Result("churn", "sqlite:")
    shown.counts["jobs"] = samples[-1].done
    judge(samples, shown)
    return 0 if shown.close(options.json) else 1


def run(count: int, folder: Path) -> list[Sample]:
    """All jobs through one worker; samples taken meanwhile."""
    url, told = f"sqlite:///{folder / 'jobs.db'}", folder / "memory.json"
    environment = os.environ | {
        "WINDLASS_DATABASE_URL": url,
        "WINDLASS_WORKER_PROCESSES": "10",
        "WINDLASS_WORKER_THREADS": "90",
        "FLEET_MEMORY": str(told),
    }
    opened = connect.open(url)
    line = [sys.executable, "-m", "windlass", "worker", "start", "fleet_app:queue"]
    with Path(os.devnull).open("wb") as nowhere:
        worker = subprocess.Popen(line, cwd=HERE, env=environment, stderr=nowhere)
    samples: list[Sample] = []
    enqueued = 0
    try:
        while enqueued < count or _left(opened.store):
            left = _left(opened.store)
            if left < PORTION and enqueued < count:
                enqueued += _feed(opened.store, enqueued, count)
            if enqueued > 2 * PORTION:
                with contextlib.suppress(OSError, ValueError):
                    samples.append(look(enqueued - left, worker.pid, told))
            time.sleep(1)
    finally:
        worker.terminate()
        worker.wait(60)
        opened.close()
    return samples


def _feed(store: Store, first: int, count: int) -> int:
    """The next portion, half of it of each kind; how many those are."""
    numbers = range(first, min(count, first + PORTION))
    payload = '{{"number": {}}}'.format
    store.enqueue(
        [NewJob(id=uuid7(), type=KINDS[n % 2], payload=payload(n).encode(), max_attempts=1) for n in numbers]
    )
    return len(numbers)


def _left(store: Store) -> int:
    return store.count(Filter(states=UNFINISHED), limit=10 * PORTION)


def look(done: int, pid: int, told: Path) -> Sample:
    """What the worker takes now."""
    worker = psutil.Process(pid)
    memory = json.loads(told.read_text(encoding="utf-8"))
    values = {
        "resident memory, MB": worker.memory_info().rss / MEGABYTE,
        "in use without SQLite, MB": (memory["used"] - memory["sqlite"]) / MEGABYTE,
        "SQLite's cache, MB": memory["sqlite"] / MEGABYTE,
        "Python's blocks, thousands": memory["blocks"] / 1000,
        "threads": worker.num_threads(),
        "open files": worker.num_fds(),
        "children": len(worker.children(recursive=True)),
    }
    return Sample(done, memory["life"], values)


def judge(samples: list[Sample], shown: result.Result) -> None:
    """Compare the last quarter of the longest life with the one before it."""
    lives: dict[str, list[Sample]] = {}
    for each in samples:
        lives.setdefault(each.life, []).append(each)
    longest = max(lives.values(), key=len)
    if len(lives) > 1:
        print(f"started itself anew {len(lives) - 1} times; judged by its longest life")
    quarter = max(1, len(longest) // 4)
    for name, allowed in ALLOWED.items():
        before, last = (
            statistics.median(each.values[name] for each in part)
            for part in (longest[-2 * quarter : -quarter], longest[-quarter:])
        )
        flat = last <= max(before * allowed, BOUNDS.get(name, 0.0))
        shown.promise(f"{name} does not grow", f"median {before:.1f}, then {last:.1f}", held=flat)


def draw(samples: list[Sample]) -> str:
    """One curve under the other, each from zero."""
    parts = [_curve(samples, name, row) for row, name in enumerate(ALLOWED)]
    height = HEIGHT * len(ALLOWED)
    size = f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])


def _curve(samples: list[Sample], name: str, row: int) -> str:
    most = max(each.values[name] for each in samples) or 1
    last = samples[-1].done
    top, bottom = row * HEIGHT + 25, (row + 1) * HEIGHT - 20
    points = " ".join(
        f"{EDGE + (WIDTH - EDGE - 20) * each.done / last:.1f},"
        f"{bottom - (bottom - top) * each.values[name] / most:.1f}"
        for each in samples
    )
    return (
        f'<text x="{EDGE}" y="{top - 8}">{name} (at most {most:.0f}), over {last} jobs</text>'
        f'<line x1="{EDGE}" y1="{bottom}" x2="{WIDTH - 20}" y2="{bottom}" stroke="#999"/>'
        f'<polyline fill="none" stroke="#2563eb" stroke-width="1.5" points="{points}"/>'
    )


if __name__ == "__main__":
    sys.exit(main())
