"""How do tests speak of a move from a file to PostgreSQL?"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.crash.mixture import fill
from tests.servers import postgres
from windlass import connect
from windlass.move import Moved, abort, move
from windlass.ops import Ops
from windlass.ops.document import job_document
from windlass.store.jobs import Filter
from windlass.store.store import Store

MAJOR = 16
MANY = 400


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with jobs in every state."""
    path = tmp_path_factory.mktemp("filled") / "jobs.db"
    with closing(connect.open(f"sqlite:///{path}")) as opened:
        fill(opened.store, MANY)
        opened.store.pause("report.build", by="ann", why="too slow")
    return path


@pytest.fixture
def source(filled: Path, tmp_path: Path) -> str:
    return copied(filled, tmp_path)


@pytest.fixture
def target() -> Iterator[str]:
    with fresh() as url:
        yield url


def fresh() -> AbstractContextManager[str]:
    """A new database with our schema in it."""
    return postgres.prepared(MAJOR)


def copied(path: Path, folder: Path) -> str:
    """A copy of a file that nobody writes to."""
    for suffix in ("", "-wal"):
        if Path(f"{path}{suffix}").exists():
            shutil.copy(f"{path}{suffix}", folder / f"jobs.db{suffix}")
    return f"sqlite:///{folder}/jobs.db"


@pytest.fixture
def here(source: str) -> Iterator[Store]:
    """The source as a process sees it that opened it before the move."""
    with closing(connect.open(source)) as opened:
        yield opened.store


def moving(
    source: str, target: str, *, around: Callable[[Any], Any] = lambda store: store, **options: Any
) -> Moved:
    """Move, as the command line does; both ends may be wrapped."""
    with (
        closing(connect.source(source)) as one,
        closing(connect.target(target)) as other,
        closing(connect.open(source)) as opened,
    ):
        return move(around(one), around(other), Ops(opened.store), **options)


def take_back(source: str, target: str) -> None:
    with closing(connect.source(source)) as one, closing(connect.target(target)) as other:
        abort(one, other)


def story(url: str) -> list[Any]:
    """All that a store tells: its jobs with their histories, its types and its settings."""
    with closing(connect.open(url)) as opened:
        store = opened.store
        jobs, cursor = [], None
        while True:
            page = store.find(Filter(), limit=1000, cursor=cursor)
            jobs += page.jobs
            cursor = page.next
            if cursor is None:
                break
        now = jobs[0].created_at
        told = [(job_document(job, now), job.history, job.changes, job.lease_until) for job in jobs]
        keyed = [store.get(job.key) == job for job in jobs if job.key]
        return [told, store.types(), store.settings(), keyed, store.switches()]


def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


def mark(source: str) -> str | None:
    with closing(connect.source(source)) as one:
        found = one.mark()
        return found.state.value if found else None


class Killed(BaseException):
    """The process ends here."""


class Cut:
    """Ends a move before or after the n-th time that it changes either store."""

    CHANGES = ("begin", "change", "fill", "finish", "open")

    def __init__(self, at: int, *, done: bool) -> None:
        self.left = at
        self.done = done

    def around(self, store: Any) -> Any:
        cut = self

        class Around:
            def __getattr__(self, name: str) -> Any:
                found = getattr(store, name)
                return partial(cut.call, found) if name in cut.CHANGES else found

        return Around()

    def call(self, verb: Callable[..., Any], *args: Any) -> Any:
        self.left -= 1
        if self.left < 0 and not self.done:
            raise Killed
        answer = verb(*args)
        if self.left < 0:
            raise Killed
        return answer
