#!/usr/bin/env python3
"""Does a worker stay the same through a hundred thousand jobs, a tenth of them bad?

One worker with 100 slots runs jobs on threads and in children; one in ten raises, times out or dies. Its
memory, threads, open files and children are sampled and drawn as an SVG. Exit 1 if any of them has grown.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from windlass import connect
from windlass.clock import uuid7
from windlass.job import JobState, NewJob
from windlass.store.protocol import Filter, Store

HERE = Path(__file__).parent
UNFINISHED = (JobState.PENDING, JobState.PROCESSING)
WIDTH, HEIGHT, EDGE = 720, 150, 60
ALLOWED = {"memory, MB": 1.25, "threads": 1.2, "open files": 1.2, "children": 1.5}


class Sample(NamedTuple):
    """How the worker was at one moment."""

    done: int
    values: dict[str, float]


def main() -> int:
    """Run, draw, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path("churn.svg"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windlass-churn-") as folder:
        samples = run(options.jobs, Path(folder) / "jobs.db")
    options.out.write_text(draw(samples), encoding="utf-8")
    print(f"{options.out}: {len(samples)} samples over {samples[-1].done} jobs")
    return judge(samples)


def run(count: int, path: Path) -> list[Sample]:
    """All jobs through one worker; samples taken meanwhile."""
    opened = connect.open(f"sqlite:///{path}")
    kinds = ("churn_thread", "churn_child")
    for start in range(0, count, 10_000):
        opened.store.enqueue(
            [
                NewJob(id=uuid7(), type=kinds[n % 2], payload=b'{"number": %d}' % n, max_attempts=1)
                for n in range(start, min(count, start + 10_000))
            ]
        )
    environment = os.environ | {
        "WINDLASS_DATABASE_URL": f"sqlite:///{path}",
        "WINDLASS_WORKER_PROCESSES": "10",
    }
    environment["WINDLASS_WORKER_THREADS"] = "90"
    line = [sys.executable, "-m", "windlass", "worker", "start", "fleet_app:queue"]
    with Path(os.devnull).open("wb") as nowhere:
        worker = subprocess.Popen(line, cwd=HERE, env=environment, stderr=nowhere)
    samples: list[Sample] = []
    try:
        while left := _left(opened.store, count):
            if left < count * 0.98:
                samples.append(Sample(count - left, look(worker.pid)))
            time.sleep(1)
    finally:
        worker.terminate()
        worker.wait(60)
        opened.close()
    return samples


def _left(store: Store, count: int) -> int:
    return store.count(Filter(states=UNFINISHED), limit=count)


def look(pid: int) -> dict[str, float]:
    """What the worker takes now."""
    worker = psutil.Process(pid)
    return {
        "memory, MB": worker.memory_info().rss / 2**20,
        "threads": worker.num_threads(),
        "open files": worker.num_fds(),
        "children": len(worker.children(recursive=True)),
    }


def judge(samples: list[Sample]) -> int:
    """Compare the last fifth with the second."""
    grown, fifth = 0, max(1, len(samples) // 5)
    for name, allowed in ALLOWED.items():
        early = statistics.median(each.values[name] for each in samples[fifth : 2 * fifth])
        late = statistics.median(each.values[name] for each in samples[-fifth:])
        flat = late <= early * allowed
        grown += not flat
        print(f"{name:12} early {early:8.1f}   late {late:8.1f}   {'flat' if flat else 'GROWN'}")
    return 1 if grown else 0


def draw(samples: list[Sample]) -> str:
    """One curve under the other, each from zero."""
    parts = [_curve(samples, name, row) for row, name in enumerate(ALLOWED)]
    height = HEIGHT * len(ALLOWED)
    size = f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"])


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
