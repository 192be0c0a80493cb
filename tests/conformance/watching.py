"""What do the store's own SQLite connections do? Watched from where they are opened."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE
from windlass import connect
from windlass.store.store import Store


class Watched:
    """Every connection that is opened while this watches: its statements, and its work in steps."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.statements: list[list[str]] = []
        self.steps = 0
        self._before: list[Callable[[sqlite3.Connection, str], None]] = []
        self._connect = sqlite3.connect
        patch.setattr(sqlite3, "connect", self._open)

    def before_each(self, callback: Callable[[sqlite3.Connection, str], None]) -> None:
        """Call back before a statement runs, with its connection and its text in lower case."""
        self._before.append(callback)

    def outsider(self, path: object, *, patience: float = PATIENCE) -> sqlite3.Connection:
        """A connection of somebody who knows nothing of us, and is not watched.

        Who is asked while one of ours is in the midst of a statement must have no patience.
        """
        return self._connect(str(path), timeout=patience, isolation_level=None, check_same_thread=False)

    def _open(self, *args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = self._connect(*args, **options)
        said: list[str] = []
        self.statements.append(said)

        def trace(statement: str) -> None:
            text = " ".join(statement.lower().split())
            said.append(text)
            for callback in self._before:
                callback(connection, text)

        connection.set_trace_callback(trace)
        connection.set_progress_handler(self._count, _STEPS_A_TICK)
        return connection

    def _count(self) -> int:
        self.steps += _STEPS_A_TICK
        return 0


_STEPS_A_TICK = 10


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(watched: Watched, path: Path) -> Iterator[Store]:
    """A store in a file, all of whose connections are watched."""
    opened = connect.open(f"sqlite:///{path}")
    yield opened.store
    opened.close()
