"""Where it is measured, and what SQLite itself can do there: the store's statements and nothing else."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from time import perf_counter, time_ns
from typing import Protocol

from windlass.clock import uuid7
from windlass.job import NewJob
from windlass.store import migration, rows, statements

PAYLOAD = '{"body":"' + "x" * 188 + '"}'
_BATCH = 100
_LANE = {"type": "noop", "version": 1, "priority": 5, "tenant": "", "after": 0, "limit": _BATCH}
_DONE = {"state": "completed", "reason": None, "error": None, "result": None, "history": "[]"}


class Place(Protocol):
    """Somewhere to measure."""

    def fresh(self, name: str, *, beside: bool = False) -> str:
        """The URL of a new store for one case; `beside` the store made last, which the case uses, too."""


class Folder:
    """New SQLite files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str) -> Path:
        """Where a case's file is, with nothing there yet."""
        path = self.folder / f"{name}.db"
        for suffix in ("", "-wal", "-shm", "-turn"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        return path

    def fresh(self, name: str, *, beside: bool = False) -> str:  # noqa: ARG002 - files stay where they are
        """The URL of a new file."""
        return f"sqlite:///{self.file(name)}"


def single_inserts(place: Folder, count: int) -> float:
    """Durable single inserts a second: one row, one statement, which commits by itself."""
    raw = _Raw(place.file("inserts"))
    begun = perf_counter()
    for _ in range(count):
        raw.insert_alone()
    return raw.rate(count, begun)


def whole_cycles(place: Folder, count: int) -> float:
    """Jobs a second through insert, claim and complete in batches, each batch a durable commit."""
    raw = _Raw(place.file("cycles"))
    begun = perf_counter()
    for _ in range(count // _BATCH):
        raw.execute("begin immediate")
        for _ in range(_BATCH):
            raw.insert()
        raw.execute("commit")
        raw.execute("begin immediate")
        claimed = raw.claim()
        raw.execute("commit")
        raw.execute("begin immediate")
        for seq, token in claimed:
            raw.complete(seq, token)
        raw.execute("commit")
    return raw.rate(count, begun)


class _Raw:
    """A connection with SQLite's own defaults, but durable, and the statements of the store."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self.execute = self._connection.execute
        self.execute("pragma journal_mode = wal")
        self.execute("pragma synchronous = full")
        for each in migration.load("sqlite"):
            self._connection.executescript(each.text)
        self._texts = statements.load("sqlite")
        self._alone = statements.unnamed(self._texts["enqueue_alone"])

    def insert_alone(self) -> None:
        now = time_ns() // 1000
        self.execute(self._alone, (now, now, now, 1, now, *rows.new_values(_new())))

    def insert(self) -> None:
        now = time_ns() // 1000
        values = dict(zip(rows.NEW, rows.new_values(_new()), strict=True))
        self.execute(self._texts["enqueue"], values | {"due": 1, "now": now, "run_at": now}).fetchall()

    def claim(self) -> list[tuple[int, str]]:
        now = time_ns() // 1000
        lane = self.execute(self._texts["lane_jobs"], _LANE | {"now": now})
        picked = ",".join(str(row[0]) for row in lane)
        values = {"picked": f"[{picked}]", "worker": "raw", "mark": None, "lease": 0, "now": now}
        self.execute(self._texts["claim"], values)
        [[taken]] = self.execute(self._texts["claimed"], {"picked": values["picked"]})
        return [(each[0], each[-1]) for each in json.loads(taken)]

    def complete(self, seq: int, token: str) -> None:
        of = {"seq": seq, "token": token}
        values = _DONE | of | {"last_token": token, "now": time_ns() // 1000, "marked": False}
        self.execute(self._texts["finish"], values)
        self.execute(self._texts["remove_finished"], of)

    def rate(self, count: int, begun: float) -> float:
        took = perf_counter() - begun
        self._connection.close()
        return count / took


def _new() -> NewJob:
    return NewJob(id=uuid7(), type="noop", payload=PAYLOAD.encode())
