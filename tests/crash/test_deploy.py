"""Does a rolling deploy kill jobs? Two releases of an application, in real processes, on one store."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.crash.processes import Site
from tests.waiting import PATIENCE, until
from windlass import Queue
from windlass.job import JobState
from windlass.store.jobs import Filter

OLD = """
import os
from windlass import Context, Queue

queue = Queue()

@queue.job
def greet(ctx: Context, name: str) -> str:
    return f"old:{ctx.job.schema_version}"
"""

NEW = """
import os
from windlass import Context, Queue

queue = Queue()

@queue.job(version=2)
def greet(ctx: Context, first: str, last: str) -> str:
    return f"new:{ctx.job.schema_version}"

@greet.upgrade(from_version=1)
def split(payload: dict) -> dict:
    first, _, last = payload["name"].partition(" ")
    return {"first": first, "last": last}
"""

WIDER = """
from windlass import Queue

queue = Queue()

@queue.job
def greet(name: str, loud: bool = False) -> str:
    return f"wide:{loud}"
"""

PRODUCE = """
import sys
from shop import greet
words = sys.argv[2:]
if "1" in words:
    # The parameter that only the wider release has.
    words[1] = True
for _ in range(int(sys.argv[1])):
    greet.enqueue(*words)
"""


class Releases:
    """Two folders with one application each, and the processes that run them."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        # The releases are applications of their own, which record no history.
        site.rules = None
        self._processes: list[subprocess.Popen[bytes]] = []
        for name, text in (("old", OLD), ("new", NEW), ("wide", WIDER)):
            (folder / name).mkdir()
            (folder / name / "shop.py").write_text(text)
            (folder / name / "produce.py").write_text(PRODUCE)
        self._folder = folder

    def start(self, release: str, *words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=self._folder / release, env=self.site.environment()
        )
        self._processes.append(process)
        return process

    def worker(self, release: str) -> subprocess.Popen[bytes]:
        known = {worker.id for worker in self.site.store.workers()}
        process = self.start(release, "-m", "windlass", "worker", "start", "shop:queue")
        until(lambda: {worker.id for worker in self.site.store.workers()} - known, "a worker joins")
        return process

    def produce(self, release: str, count: int) -> subprocess.Popen[bytes]:
        words = {"new": ("Ada", "Lovelace"), "wide": ("Ada", "1")}.get(release, ("Ada Lovelace",))
        return self.start(release, "produce.py", str(count), *words)

    def results(self) -> dict[str, int]:
        """How many jobs ended with each result; whatever has not completed stands under its state."""
        found: dict[str, int] = {}
        cursor = None
        while True:
            page = self.site.store.find(Filter(types=("greet",)), limit=1000, cursor=cursor)
            for job in page.jobs:
                done = job.state is JobState.COMPLETED and job.result is not None
                name = bytes(job.result or b"").decode().strip('"') if done else str(job.state)
                found[name] = found.get(name, 0) + 1
            cursor = page.next
            if cursor is None:
                return found

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(PATIENCE)


@pytest.fixture
def releases(site: Site, tmp_path: Path) -> Iterator[Releases]:
    made = Releases(site, tmp_path)
    yield made
    made.close()


def test_a_roll_forward_and_back_kills_no_job(releases: Releases) -> None:
    old = releases.worker("old")
    # During the roll both releases enqueue, and both work.
    producers = [releases.produce("old", 150), releases.produce("new", 150)]
    new = releases.worker("new")
    assert [producer.wait(PATIENCE) for producer in producers] == [0, 0]
    until(lambda: sum(_done(releases).values()) == 300, "everything ran")
    ran = _done(releases)
    assert ran.get("new:2") == 150, ran
    assert ran.get("old:1", 0) + ran.get("new:1", 0) == 150, ran

    # The new release is alone: what the old one still enqueues is upgraded.
    old.send_signal(signal.SIGTERM)
    assert old.wait(PATIENCE) == 0
    assert releases.produce("old", 20).wait(PATIENCE) == 0
    until(lambda: sum(_done(releases).values()) == 320, "the old payloads ran on the new release")

    # Rolled back: new payloads wait for the release that knows them, old ones run.
    new.send_signal(signal.SIGTERM)
    assert new.wait(PATIENCE) == 0
    releases.worker("old")
    before = _done(releases)
    assert releases.produce("new", 20).wait(PATIENCE) == 0
    assert releases.produce("old", 20).wait(PATIENCE) == 0
    until(lambda: _done(releases).get("old:1", 0) == before.get("old:1", 0) + 20, "the old payloads ran")
    assert releases.results()["pending"] == 20

    releases.worker("new")
    until(lambda: sum(_done(releases).values()) == 360, "and the rest")
    assert releases.results().keys() <= {"old:1", "new:1", "new:2"}


def test_a_new_parameter_costs_no_job(releases: Releases) -> None:
    old = releases.worker("old")
    assert releases.produce("wide", 30).wait(PATIENCE) == 0
    assert releases.produce("old", 30).wait(PATIENCE) == 0
    until(lambda: _done(releases).get("old:1", 0) == 30, "what the old release can read ran")
    until(lambda: _left(releases) == 30, "the rest waits for the other release")

    # A worker that is killed in the middle leaves nothing behind.
    releases.worker("wide").kill()
    assert releases.produce("wide", 30).wait(PATIENCE) == 0
    releases.worker("wide")
    until(lambda: _done(releases).get("wide:True", 0) == 60, "the new release ran them")

    # Rolled back: the old process starts again, and by-name producers may still send what the new one knows.
    old.kill()
    releases.worker("old")
    with Queue(releases.site.url) as queue:
        queue.enqueue("greet", {"name": "Ada", "loud": True})
    until(lambda: _done(releases).get("wide:True", 0) == 61, "by name, too")
    assert releases.results().keys() <= {"old:1", "wide:True", "wide:False"}


def _left(releases: Releases) -> int:
    return sum(each.count for each in releases.site.store.sight(timedelta(minutes=1)).unread)


def _done(releases: Releases) -> dict[str, int]:
    return {name: count for name, count in releases.results().items() if ":" in name}
