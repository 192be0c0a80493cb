"""Actors on threads of their own, of which one runs at a time, and the scheduler that chooses it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple
from unittest import mock

import psycopg
from psycopg.pq import TransactionStatus

from tests.waiting import PATIENCE
from windlass.store.postgres import session
from windlass.store.postgres.store import PostgresStore

# What may happen to an actor at a statement: its session is ended before it, the answer is lost after it, or
# its process dies before it.
FAULTS = ("terminate", "lose", "die")
# The server looks for deadlocks this long after a wait began; set on the server as well.
DEADLOCK_MS = 1
# Before the next step each new waiter has looked for a deadlock: so the one that closes a circle fails.
_LOOKED = 0.006
_POLL = 0.0015
_BLOCKING = "select pid, pg_blocking_pids(pid) as by from unnest(%s::int[]) as pid"
_TERMINATE = "select pg_terminate_backend(pid, 60000) from unnest(%s::int[]) as pid"
# These take no lock and no snapshot: there is nothing to choose before them.
_SILENT = ("begin", "savepoint", "release", "pipeline")


class Died(BaseException):
    """The process of an actor ended."""


class Stuck(AssertionError):
    """Actors wait for each other, and the server answers none of them."""


class Deed(NamedTuple):
    """One call that an actor makes."""

    verb: str
    run: Callable[[Actor], Any]
    asked: Mapping[str, Any]


@dataclass(eq=False)
class Call:
    """A call as it is recorded. The numbers are steps of the schedule."""

    actor: str
    verb: str
    asked: Mapping[str, Any]
    start: int
    end: int | None = None
    answered: bool = False
    answer: Any = None
    error: BaseException | None = None
    # A fault struck while it ran.
    struck: bool = False
    # The tokens of the leases that it settles.
    tokens: frozenset[str] = frozenset()


@dataclass(eq=False)
class Actor:
    """One process: its store, what it does, and where it is."""

    name: str
    store: PostgresStore
    script: Sequence[Deed]
    # For enqueues in a caller's own transaction.
    guest: psycopg.Connection[Any]
    leases: list[Any] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    state: str = "running"
    at: str = ""
    pid: int = 0
    pids: set[int] = field(default_factory=set)
    fault: str = ""
    outcome: str = ""
    dying: bool = False
    # It may end a transaction with the statement that runs now.
    ended: bool = False
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    @property
    def call(self) -> Call:
        """The call that it is in, or was in last."""
        return self.calls[-1]


_here = threading.local()
_plain_wait = psycopg.Connection.wait


@contextlib.contextmanager
def stepping() -> Iterator[None]:
    """Let threads of actors stop before each statement, where the driver begins to wait for its answer."""
    with mock.patch.object(psycopg.Connection, "wait", _wait):
        yield


def _wait(connection: Any, gen: Any, *args: Any, **options: Any) -> Any:
    actor: Actor | None = getattr(_here, "actor", None)
    what = "" if actor is None else _named(connection, gen)
    if actor is not None and actor.dying:
        # Whatever would tidy up behind a process that died.
        gen.close()
        raise Died
    if actor is None or connection.closed or what.startswith(_SILENT):
        return _plain_wait(connection, gen, *args, **options)
    actor.at, actor.pid = what, connection.info.backend_pid
    actor.pids.add(actor.pid)
    _here.turns.park(actor)
    if actor.fault == "die":
        actor.dying = True
        gen.close()
        raise Died
    try:
        answer = _plain_wait(connection, gen, *args, **options)
    except psycopg.Error as error:
        actor.outcome, actor.ended = f"fails: {session.told(error)}", True
        raise
    if connection.pgconn.transaction_status == TransactionStatus.IDLE:
        actor.outcome, actor.ended = {"rollback": "rolled back"}.get(what, "committed"), True
    if actor.fault == "lose":
        connection.close()
        raise psycopg.OperationalError("the answer was lost")
    return answer


_NAMES = {statement.text.encode(): name for name, statement in session.load().items()}


def _named(connection: psycopg.Connection[Any], gen: Any) -> str:
    """What a statement is called."""
    given = {} if gen.gi_frame is None else gen.gi_frame.f_locals
    if "query" in given:
        text = given["query"]
        text = text if isinstance(text, bytes) else str(text).encode()
        return _NAMES.get(text) or " ".join(text.decode().split()[:3])
    idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
    if not isinstance(given.get("self"), psycopg.Transaction):
        return {"_commit_gen": "commit", "_rollback_gen": "rollback"}.get(gen.__name__, "pipeline")
    if gen.__name__ == "_enter_gen":
        return "begin" if idle else "savepoint"
    outer = given["self"]._outer_transaction  # noqa: SLF001
    if given.get("exc_val") is None:
        return "commit" if outer else "release"
    return "rollback" if outer else "rollback to savepoint"


class Turns:
    """The actors of a run. One method lets one of them take one step."""

    def __init__(self, observer: psycopg.Connection[Any], tick: Callable[[], None]) -> None:
        self._observer = observer
        self._tick = tick
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self.actors: list[Actor] = []
        self.steps = 0
        self.lines: list[str] = []
        # Who waits for a lock, and for whom.
        self.blocked: dict[str, list[str]] = {}

    def begin(self, actors: Sequence[Actor]) -> None:
        """Start the actors, one after the other, up to the first statement of each."""
        self.actors = list(actors)
        for actor in self.actors:
            thread = threading.Thread(target=self._perform, args=(actor,), daemon=True)
            self._threads.append(thread)
            thread.start()
            with self._changed:
                self._changed.wait_for(lambda actor=actor: actor.state != "running", PATIENCE)  # type: ignore[misc]

    def ready(self) -> list[Actor]:
        """Who stands before a statement."""
        return [each for each in self.actors if each.state == "ready"]

    def step(self, actor: Actor, fault: str = "") -> bool:
        """Let an actor run up to its next statement; whether a transaction may have ended meanwhile."""
        self.steps += 1
        self._tick()
        for each in self.actors:
            each.outcome, each.ended = "", False
        before = f"{self.steps:4d}  {actor.name}, {actor.call.verb}: {actor.at}"
        actor.fault = fault
        if fault:
            actor.call.struck = True
        ends = {"terminate": [actor.pid], "die": list(actor.pids)}.get(fault, [])
        self._observer.execute(
            "select pg_terminate_backend(pid, 60000) from unnest(%s::int[]) as pid", [ends]
        )
        call, waited = actor.call, set(self.blocked)
        with self._changed:
            actor.state = "running"
            actor.go.release()
        lost = actor.pid
        self._settle()
        if fault == "lose":
            # The server has noticed that its client is gone, and has let go of its locks.
            self._observer.execute(_TERMINATE, [[lost]])
            self._settle()
        self._report(before, actor, call, fault, waited)
        return any(each.ended for each in self.actors)

    def end(self) -> None:
        """End every actor, also those that wait."""
        left = [actor for actor in self.actors if actor.state != "done"]
        pids = [pid for actor in left for pid in actor.pids]
        self._observer.execute(_TERMINATE, [pids])
        for actor in left:
            actor.dying = True
            actor.fault = "die"
            actor.go.release()
        for thread in self._threads:
            thread.join(PATIENCE)

    def park(self, actor: Actor) -> None:
        """Stand before a statement until the scheduler lets this actor go on."""
        with self._changed:
            actor.state = "ready"
            self._changed.notify_all()
        actor.go.acquire()

    # --- on the threads of actors ---

    def _perform(self, actor: Actor) -> None:
        _here.actor, _here.turns = actor, self
        try:
            for deed in actor.script:
                call = Call(actor.name, deed.verb, deed.asked, self.steps)
                actor.calls.append(call)
                try:
                    call.answer = deed.run(actor)
                    call.answered = True
                except Exception as error:  # noqa: BLE001 - wall: what a call raises is its answer; the checker judges it
                    call.error = error
                call.end = self.steps
        except Died:
            actor.calls[-1].struck = True
        finally:
            with self._changed:
                actor.state = "done"
                self._changed.notify_all()

    # --- where everybody is ---

    def _running(self) -> list[Actor]:
        return [each for each in self.actors if each.state == "running"]

    def _names_running(self) -> set[str]:
        return {each.name for each in self._running()}

    def _settle(self) -> None:
        """Wait until each actor stands before a statement, has ended, or waits for a lock."""
        known, since = set(self.blocked), monotonic()
        seen: dict[str, float] = {}
        while True:
            with self._changed:
                self._changed.wait_for(lambda known=known: self._names_running() <= known, _POLL)  # type: ignore[misc]
                running = self._running()
            if not running:
                self.blocked = {}
                return
            waits = self._waits(running)
            known = set(waits)
            now = monotonic()
            seen = {name: seen.get(name, since if name in self.blocked else now) for name in waits}
            if len(waits) == len(running) and running == self._running():
                fresh = [name for name in waits if name not in self.blocked and now - seen[name] < _LOOKED]
                if not fresh and not _circle(waits):
                    self.blocked = waits
                    return
            if now - since > PATIENCE:
                raise Stuck(f"{', '.join(each.name for each in running)} never came back: {waits}")

    def _waits(self, running: Sequence[Actor]) -> dict[str, list[str]]:
        """Which of these wait for a lock, and for whom."""
        names = {pid: each.name for each in self.actors for pid in each.pids}
        rows = self._observer.execute(_BLOCKING, [[each.pid for each in running]]).fetchall()
        return {
            names[row["pid"]]: sorted({names.get(pid, "?") for pid in row["by"]}) for row in rows if row["by"]
        }

    def _report(self, before: str, actor: Actor, call: Call, fault: str, waited: set[str]) -> None:
        """Add lines to the story: what the step was, and what became of those that waited."""
        more = [actor.outcome] if actor.outcome else []
        if fault:
            words = {"terminate": "the session was ended before", "lose": "the answer was lost"}
            more.append(words.get(fault, "the process died before"))
        if actor.name in self.blocked:
            more.append(f"waits for {' and '.join(self.blocked[actor.name])}")
        if call.end is not None:
            more.append(_answer(call))
        self.lines.append(before + "".join(f"; {each}" for each in more))
        for each in self.actors:
            if each.name in waited and each.name not in self.blocked and each is not actor:
                self.lines.append(f"      {each.name} goes on{'; ' + each.outcome if each.outcome else ''}")


def _answer(call: Call) -> str:
    if call.error is not None:
        return f"raised {type(call.error).__name__}"
    return "answered"


def _circle(waits: Mapping[str, Sequence[str]]) -> bool:
    """Whether some wait for each other."""
    left = dict(waits)
    while free := [name for name, by in left.items() if not any(other in left for other in by)]:
        for name in free:
            del left[name]
    return bool(left)
