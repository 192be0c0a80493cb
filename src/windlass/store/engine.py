"""What every database provides: transactions, how verbs are bound to a store, and a bridge to an event loop.

`cancel = writes(jobs.cancel)` gives a store a method with the verb's parameters, result and docstring.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

import msgspec

from windlass.errors import StoreError, StoreUnavailable
from windlass.job import JobState, Lease, NewJob
from windlass.outcome import Outcome
from windlass.store.flow import Restriction


class Enqueued(msgspec.Struct, frozen=True):
    """The answer to one enqueue: which job, whether this call made it, whether workers must yet be told."""

    id: str
    key: str | None
    created: bool
    due: bool = False


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks for: types (with the schema version that it knows), how many, for how long."""

    worker: str
    types: Mapping[str, int]
    limit: int
    lease: timedelta
    # The tenant served last, by type: the next claim starts after it.
    turns: Mapping[str, str] = {}
    # What stands in the way of some of the types, and how many of their jobs could start at once.
    restricted: Mapping[str, Restriction] = {}
    slots: int = 0
    # Slots reserved for the lowest waiting priority, so that it never starves.
    lowest: int = 0
    # Which payloads the worker can read: it is offered jobs that others could not, and it has not tried.
    reader: str = ""
    # 16 hex digits that end the tokens of these leases: whoever asks the same again is given the same.
    mark: str | None = None
    # The file of the store (`Store.generation`) that knows the worker. A claim takes nothing from another
    # file: the reaper would take the jobs for those of a lost worker.
    generation: int | None = None


class Claimed(msgspec.Struct, frozen=True):
    """Leases in the order in which they should start, and when it is worth asking again."""

    leases: list[Lease]
    # When the next scheduled job of a type without restrictions is due.
    next_due: timedelta | None = None
    # When a job of a restricted type may start: one is due, a rate has a token, a breaker a probe.
    permit_due: timedelta | None = None
    # Jobs of restricted types are due, and no permit is there for them.
    held_back: bool = False
    # Another worker held the limit's lock; retry in a few milliseconds.
    contended: bool = False
    # A claim with the same mark took these before; now nothing was taken.
    repeated: bool = False

    @property
    def again(self) -> timedelta | None:
        """The earlier of both, for who asks for all types alike."""
        return min((each for each in (self.next_due, self.permit_due) if each is not None), default=None)


class Settlement(msgspec.Struct, frozen=True):
    """An outcome for a lease, and how long the handler ran (None: it never started)."""

    lease: Lease
    outcome: Outcome
    ran: timedelta | None = None
    # What the handler asked to be enqueued with its completion, in the same transaction; with Done only.
    enqueues: tuple[NewJob, ...] = ()
    # Its outcome is to be checked after so long; with Done only.
    check_in: timedelta | None = None
    # The release of the application that ran it.
    app: str = ""
    # The handler is still running; its permits stay taken until let_go().
    held: bool = False
    # The handler never started: what its claim took of these rates comes back (limit, microseconds).
    tokens: tuple[tuple[str, int], ...] = ()

    @property
    def plain(self) -> bool:
        """Whether nothing else is written with it."""
        return not self.enqueues and self.check_in is None


class Acted(msgspec.Struct, frozen=True):
    """What a verb did to one job: `state` is the state after it."""

    id: str
    state: JobState
    # The verb took effect (True), or waits for the worker that runs the job (False).
    done: bool = True


Row = Mapping[str, Any]


class StoreClosed(StoreUnavailable):
    """This process has closed the store, or was forked off after it was opened; nothing was written."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place} was closed in this process; open it again")


class Unstorable(StoreError):
    """A value that the database does not take; only the part that brought it is undone."""


class Tx(Protocol):
    """One transaction. Whoever runs the verb begins and commits it; the verb only speaks."""

    @property
    def now(self) -> int:
        """Microseconds since 1970 by the store's clock, the same throughout."""

    @property
    def given(self) -> int | None:
        """The same if it is known without asking; a statement takes None for the server's own."""

    def learn(self, now: int) -> None:
        """A statement has answered the server's time: it need not be asked for."""

    def rows(self, statement: str, /, **values: object) -> Sequence[Row]:
        """Run a named statement and give all its rows."""

    def row(self, statement: str, /, **values: object) -> Row | None:
        """Run a named statement and give its first row."""

    def change(self, statement: str, /, **values: object) -> int:
        """Run a named statement and say how many rows it changed."""

    def change_all(self, statements: Sequence[str], /, **values: object) -> None:
        """Run named statements that do not concern each other; each takes of the values what it names."""

    def search(
        self, statements: Sequence[str], clauses: str, values: Mapping[str, object], *, oldest: bool = False
    ) -> Sequence[Row]:
        """Run named statements as one, newest or oldest first; a filter's clauses go in at their marks."""

    def count(self, statements: Sequence[str], clauses: str, values: Mapping[str, object]) -> int:
        """How many rows such a search would find."""

    def field(self, name: str) -> str:
        """An expression for one field of a job's error."""

    def payload_equals(self, name: str, path: Sequence[str], value: object, values: dict[str, object]) -> str:
        """A clause that a payload's field at `path` has this value, its parameters put into `values`."""

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs within this transaction, all or none."""

    def hint(self) -> None:
        """Jobs became claimable that were not enqueued here: whoever waits is told after the commit."""

    def part(self) -> AbstractContextManager[object]:
        """A part that is undone alone when it raises."""


P = ParamSpec("P")
T = TypeVar("T")

# What a verb works on: a transaction, or a connection to a server.
X = TypeVar("X")

# Whether a write may run again after its answer was lost: always, never, or if the request has an id.
Repeat = Literal["same", "never", "request_id"]


class Engine(ABC):
    """How a store runs verbs. Each is one transaction."""

    def __init__(self, shown: str) -> None:
        """`shown`: the store's name, which has no password in it."""
        self._shown = shown
        # None: it was closed.
        self._opened_by: int | None = os.getpid()

    def _check_open(self) -> None:
        if self._opened_by != os.getpid():
            raise StoreClosed(self._shown)

    @abstractmethod
    def _read(self, verb: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb that changes nothing, and that sees one state of the store."""

    def _ask(self, verb: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb of one statement, or of several that need not see the same state."""
        return self._read(verb, *args, **kwargs)

    def _glance(self, verb: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a short read of a heartbeat, which must not wait for what others do."""
        return self._read(verb, *args, **kwargs)

    @abstractmethod
    def _write(self, verb: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb that changes something."""

    def _rewrite(self, verb: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb that may take effect twice without harm, again if its answer was lost."""
        return self._write(verb, *args, **kwargs)

    def _request(self, verb: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb that takes effect once for each `request_id`; without one, it may run once only."""
        return (self._rewrite if kwargs.get("request_id") else self._write)(verb, *args, **kwargs)

    @abstractmethod
    def _beat(self, verb: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a short write of a heartbeat, which must not wait for what others do."""


class Bound(Generic[P, T]):
    """A verb as a method of a store."""

    # The method of `Engine` that runs it.
    run = ""

    def __init__(self, verb: Callable[Concatenate[X, P], T], run: str = "") -> None:
        """`run`: another method of the store that binds it."""
        self.verb = verb
        self.run = run or self.run
        self.__doc__ = verb.__doc__

    @overload
    def __get__(self, store: None, owner: type[Engine]) -> Bound[P, T]: ...

    @overload
    def __get__(self, store: Engine, owner: type[Engine]) -> Callable[P, T]: ...

    def __get__(self, store: Engine | None, owner: type[Engine]) -> Bound[P, T] | Callable[P, T]:
        return self if store is None else partial(getattr(store, self.run), self.verb)


class reads(Bound[P, T]):  # noqa: N801 - read as a word of the table of verbs, as those below
    """Bind a verb that changes nothing."""

    run = "_read"


class asks(Bound[P, T]):  # noqa: N801
    """Bind a verb that changes nothing and is one statement, or several that need no snapshot."""

    run = "_ask"


class glances(Bound[P, T]):  # noqa: N801
    """Bind a short read of a heartbeat."""

    run = "_glance"


class beats(Bound[P, T]):  # noqa: N801
    """Bind a short write of a heartbeat, which may run again after its answer was lost."""

    run = "_beat"


class writes(Bound[P, T]):  # noqa: N801
    """Bind a verb that changes something; `repeat` says whether it may run again after a lost answer."""

    def __init__(self, verb: Callable[Concatenate[X, P], T], *, repeat: Repeat) -> None:
        super().__init__(verb, {"same": "_rewrite", "never": "_write", "request_id": "_request"}[repeat])


class Bridge:
    """Held by the verb on its thread: each call runs on the loop to which the connection belongs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and give its answer."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


async def across(work: Callable[[Bridge], T]) -> T:
    """Do the work on a thread while this loop runs its statements."""
    done = asyncio.ensure_future(asyncio.to_thread(work, Bridge(asyncio.get_running_loop())))
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        # The connection is the caller's: it goes back when our last statement has ended, and not before.
        while not done.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([done])
        raise


@contextlib.asynccontextmanager
async def across_block(make: Callable[[], contextlib.AbstractContextManager[T]]) -> AsyncIterator[T]:
    """A synchronous block for async callers: entering and leaving it may wait, and do so on a thread."""
    block = make()
    entered = await across(lambda _: block.__enter__())
    try:
        yield entered
    except BaseException as error:  # wall: the block hears of whatever ends it, as `with` would tell it
        raised = (type(error), error, error.__traceback__)
        if not await across(lambda _: block.__exit__(*raised)):
            raise
    else:
        await across(lambda _: block.__exit__(None, None, None))
