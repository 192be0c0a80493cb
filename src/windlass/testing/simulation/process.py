"""A simulated process: its own store, its own copy of the application, and the faults that strike it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from windlass import connect
from windlass.errors import StoreError, StoreUnavailable
from windlass.queue import Queue
from windlass.store.sqlite.store import SqliteStore
from windlass.testing.simulation import application

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


class Fault(NamedTuple):
    """What strikes the next write of a process, or its next one of a verb such as `hot.settle`."""

    when: When
    # Otherwise its answer is lost.
    kills: bool = False
    verb: str = ""

    @classmethod
    def drawn(cls, verbs: Sequence[str] = ("",), *, kills: bool = False) -> Fault:
        """At some point of one of these verbs."""
        return cls(random.choice(list(When)), kills, random.choice(verbs))


class Process:
    """One process of the world."""

    # Whether its second release needs the newer schema.
    follows_schema = False

    def __init__(self, world: World, name: str, release: int) -> None:
        self.world = world
        self.name = name
        self.release = release
        self.alive = True
        self.frozen = False
        # Cut off from the store.
        self.away = False
        self.fault: Fault | None = None
        # At which step it last heard the answer to a verb; and the steps whose answer it never heard.
        self.heard: dict[str, int] = {}
        self.unheard: set[tuple[str, int]] = set()
        self.queue = Queue(world.url, clock=world.clock)
        application.register(self)
        # Its second release comes with a newer schema, in worlds that have one.
        newer = world.migrations if release > 1 and self.follows_schema else None
        opened = connect.open_alone(world.url, clock=world.clock, migrations=newer)
        store = opened.store
        assert isinstance(store, SqliteStore)  # noqa: S101 - the world is on SQLite
        self.store = store
        # Every write goes through the one, every read through the other.
        self.writer = store._writer  # noqa: SLF001
        self.writer.run = partial(self._write, self.writer.run)  # type: ignore[method-assign]
        store._read = partial(self._read, store._read)  # type: ignore[method-assign]  # noqa: SLF001
        self._instead = self.queue.instead(opened, world.url, world.clock)
        self._instead.__enter__()

    # --- for the world ---

    def options(self) -> Iterable[tuple[str, float]]:
        """What it could do now, and how likely that is."""
        return ()

    def do(self, what: str) -> None:
        """Do one of these."""
        raise NotImplementedError(what)

    def kill(self) -> None:
        """It is gone, with all that it had in memory."""
        self.alive = False
        # Its files are closed for it, as the system does; what was committed stays in the log.
        with contextlib.suppress(StoreUnavailable):
            self._instead.__exit__(None, None, None)

    def end(self) -> None:
        """It is killed at this very point of its own code."""
        self.alive = False
        raise Killed

    def close_files(self) -> None:
        """Close every file, as when the store restarts."""
        self.store.before_fork()

    def open_files(self) -> None:
        """Open them again, when they are next used."""
        self.store.after_fork_in_parent()

    def set_room(self, pages: int) -> None:
        """How large the file may become; never smaller than it is."""
        connection = self.writer._connection  # noqa: SLF001
        if connection is not None:
            connection.execute(f"pragma max_page_count = {pages}")

    def heal(self) -> None:
        """Nothing holds it up any more."""
        self.fault, self.away, self.frozen = None, False, False

    # --- the way to the store ---

    def _reach(self) -> None:
        if not self.alive:
            raise Killed
        if self.away:
            raise StoreUnavailable("cut off from the store")

    def _read(self, real: Callable[..., Any], verb: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        self._reach()
        with self._noted(verb):
            return real(verb, *args, **options)

    def _write(
        self, real: Callable[..., Any], verb: Callable[..., Any], /, *args: Any, **options: Any
    ) -> Any:
        self._reach()
        self.world.verbs += 1
        fault = self.fault
        if fault is None or fault.verb not in ("", _name(verb)):
            with self._noted(verb):
                answer = real(verb, *args, **options)
            self.heard[_name(verb)] = self.world.steps
            return answer
        self.fault, when, kills = None, fault.when, fault.kills
        # One statement by itself has no inside: it runs as a transaction.
        options.pop("alone", None)
        self.world.note(f"{'killed' if kills else 'answer lost'} {when} {_name(verb)}")
        with self._noted(verb):
            if when is When.INSIDE:
                real(partial(self._break_off, verb, kills), *args, **options)
            elif when is When.AFTER:
                real(verb, *args, **options)
                self.unheard.add((_name(verb), self.world.steps))
        raise self._lost(kills)

    @contextlib.contextmanager
    def _noted(self, verb: Callable[..., Any]) -> Iterator[None]:
        """Note which statements a verb has run, where a story names them."""
        try:
            yield
        except StoreError as error:
            if "no space left" in str(error):
                self.world.note(f"the disk is full: {_name(verb)} is undone")
            raise
        finally:
            self.world.note_statements(_name(verb))

    def _break_off(self, verb: Callable[..., Any], kills: bool, tx: Any, *args: Any, **options: Any) -> None:  # noqa: FBT001
        """Run some of its statements. What they changed is rolled back."""
        verb(_Breaking(tx, random.randrange(6), partial(self._lost, kills)), *args, **options)
        raise self._lost(kills)

    def _lost(self, kills: bool) -> BaseException:  # noqa: FBT001
        self.alive = not kills
        return Killed() if kills else StoreUnavailable("the answer was lost")


class _Breaking:
    """A transaction that breaks off before its n-th statement."""

    def __init__(self, tx: Any, left: int, end: Callable[[], BaseException]) -> None:
        self._tx, self._left, self._end = tx, left, end

    def __getattr__(self, name: str) -> Any:
        if name in _STATEMENTS:
            if self._left == 0:
                raise self._end()
            self._left -= 1
        return getattr(self._tx, name)


_STATEMENTS = frozenset({"rows", "row", "change", "change_all", "search", "count", "enqueue"})


def _name(verb: Callable[..., Any]) -> str:
    while isinstance(verb, partial):
        verb = verb.func
    return f"{verb.__module__.rpartition('.')[2]}.{verb.__name__}"
