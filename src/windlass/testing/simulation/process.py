"""A simulated process: its own store, its own copy of the application, and the faults that strike it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from windlass import connect
from windlass.errors import StoreUnavailable
from windlass.queue import Queue
from windlass.store.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from windlass.testing.simulation.world import World


class Killed(BaseException):
    """The process is gone at this point. Nothing of ours catches it for good: a dead process does nothing."""


class When(StrEnum):
    """Where in the next transaction a fault strikes."""

    BEFORE = "before"
    # After some of its statements: what it wrote is rolled back.
    INSIDE = "inside"
    # It is committed, and its caller never hears of it.
    AFTER = "after"


class Process:
    """One process of the world."""

    def __init__(self, world: World, name: str, release: int) -> None:
        self.world = world
        self.name = name
        self.release = release
        self.alive = True
        self.frozen = False
        # Cut off from the store.
        self.away = False
        # What strikes its next write: a kill, or an answer that is lost.
        self.fault: tuple[When, bool] | None = None
        self.queue = Queue(world.url, clock=world.clock)
        world.app(self)
        opened = connect.open_alone(world.url, clock=world.clock)
        self.store = opened.store
        assert isinstance(self.store, SqliteStore)  # noqa: S101 - the world is on SQLite
        self._strike(self.store)
        self._instead = self.queue.instead(opened, world.url, world.clock)
        self._instead.__enter__()

    @property
    def acts(self) -> bool:
        """Whether it can do anything now."""
        return self.alive and not self.frozen

    def kill(self) -> None:
        """It is gone, with all that it had in memory."""
        self.alive = False
        self.fault = None
        # Its files are closed for it, as the system does; what was committed stays in the log.
        with contextlib.suppress(StoreUnavailable):
            self._instead.__exit__(None, None, None)

    # --- the way to the store ---

    def _strike(self, store: SqliteStore) -> None:
        writer = store._writer  # noqa: SLF001 - every write of a store goes this way
        writer.run = partial(self._write, writer.run)  # type: ignore[method-assign]
        store._read = partial(self._read, store._read)  # type: ignore[method-assign]  # noqa: SLF001

    def _reach(self) -> None:
        if not self.alive:
            raise Killed
        if self.away:
            raise StoreUnavailable("cut off from the store")

    def _read(self, real: Callable[..., Any], verb: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._reach()
        return real(verb, *args, **options)

    def _write(
        self,
        real: Callable[..., Any],
        verb: Callable[..., Any],
        *args: Any,
        alone: Callable[..., Any] | None = None,
        **options: Any,
    ) -> Any:
        self._reach()
        self.world.verbs += 1
        fault, self.fault = self.fault, None
        if fault is None:
            return real(verb, *args, alone=alone, **options)
        when, kills = fault
        self.world.tell(f"{'killed' if kills else 'answer lost'} {when} {_name(verb)}")
        if when is When.BEFORE:
            raise self._end(kills=kills)
        if when is When.INSIDE:
            # By itself a single statement has no inside.
            real(partial(self._broken_off, verb, kills), *args, **options)
        answer = real(verb, *args, **options)
        del answer
        raise self._end(kills=kills)

    def _broken_off(self, verb: Callable[..., Any], kills: bool, tx: Any, *args: Any, **options: Any) -> Any:  # noqa: FBT001
        verb(_Breaking(tx, random.randrange(6), partial(self._end, kills=kills)), *args, **options)
        # It ended before that many statements.
        raise self._end(kills=kills)

    def _end(self, *, kills: bool) -> BaseException:
        if kills:
            self.alive = False
            return Killed()
        return StoreUnavailable("the answer was lost")


class _Breaking:
    """A transaction that breaks off before its n-th statement."""

    def __init__(self, tx: Any, left: int, end: Callable[[], BaseException]) -> None:
        self._tx, self._left, self._end = tx, left, end

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tx, name)
        if name not in _STATEMENTS:
            return found
        if self._left == 0:
            raise self._end()
        self._left -= 1
        return found


_STATEMENTS = frozenset(
    {"rows", "row", "change", "change_all", "search", "count", "enqueue", "execute", "fetch"}
)


def _name(verb: Callable[..., Any]) -> str:
    while isinstance(verb, partial):
        verb = verb.func
    return f"{verb.__module__.rpartition('.')[2]}.{verb.__name__}"
