"""Group commit: what comes while somebody writes is written together next, with one commit for all of it.

A caller that finds nobody writing may write by itself, on its own thread, which saves two changes of thread.
Any other call waits in a line, and one thread writes for all that wait. How a group is written differs:
the SQLite writer, PostgreSQL's enqueue and the HTTP server each pass their own function.

A server says for whom a verb runs (`on_behalf_of`), so that nothing is stored for a caller that has left.
Everybody else waits as long as the store was opened to wait, and is there until the verb has ended.
"""

from __future__ import annotations

import contextlib
import copy
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice, pairwise
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

from windlass.errors import StoreBusy, StoreUnavailable


class Caller(NamedTuple):
    """For whom a verb runs: somebody who may leave; by default, somebody who waits until it has ended."""

    # Asked on any thread, while the verb waits and right before it begins.
    wanted: Callable[[], bool] | None = None
    # Seconds to wait for a connection or for the write lock, at most as many as the store was opened to wait.
    patience: float = math.inf
    # Seconds that a statement may run; None: as long as the store was opened to wait.
    run: float | None = None


class Withdrawn(StoreBusy):
    """The caller left before the verb began; nothing was written."""

    def __init__(self) -> None:
        super().__init__("the caller has left; nothing was written")


_WAITS = Caller()
_caller: ContextVar[Caller] = ContextVar("windlass_caller", default=_WAITS)
calling = _caller.get


@contextmanager
def on_behalf_of(caller: Caller) -> Iterator[None]:
    """Verbs called within the block, on this thread, are that caller's."""
    token = _caller.set(caller)
    try:
        yield
    finally:
        _caller.reset(token)


def check_wanted() -> None:
    """Raise `Withdrawn` if the caller has left."""
    wanted = calling().wanted
    if wanted is not None and not wanted():
        raise Withdrawn


# A caller looks this often whether its call has ended: who should wake it may be struck by an exception.
_LOOK_SECONDS = 0.05


class Call:
    """What one caller wants written, and what became of it."""

    __slots__ = (
        *("awaited", "begun", "done", "ended", "error", "following"),
        *("given_up", "result", "wanted", "weight"),
    )

    def __init__(self, *, weight: int = 1, awaited: bool = True) -> None:
        self.weight = weight
        # Whether a thread waits for it.
        self.awaited = awaited
        self.result: Any = None
        self.error: Exception | None = None
        self.begun = False
        self.given_up = False
        self.ended = False
        # Asks whether its caller is still there; None: it is.
        self.wanted = calling().wanted
        # Of those that were written together, the one that the caller of this one wakes.
        self.following: Call | None = None
        if awaited:
            # A bare lock is the cheapest thing to wait on; it is released when the call is done.
            self.done = threading.Lock()
            self.done.acquire()

    def wait(self, seconds: float = math.inf) -> bool:
        """Whether it is done within so many seconds."""
        # Most are done at the first look, and every step more is one that all of a group have to wait for.
        if self.done.acquire(timeout=min(_LOOK_SECONDS, seconds)):
            return True
        until = monotonic() + seconds
        while not self.done.acquire(timeout=max(0.0, min(_LOOK_SECONDS, until - monotonic()))):
            if self.ended:
                break
            if monotonic() >= until:
                return False
        return True

    def wake_next(self) -> None:
        """Pass it on. Woken all at once, ten threads would only wait for the interpreter's lock."""
        if self.ended and self.following is not None:
            self.following.done.release()


class ListCall(Call):
    """A call that brings a list, and is answered with one as long."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Any]) -> None:
        super().__init__(weight=len(items))
        self.items = items


C = TypeVar("C", bound=Call)


class GroupCommit(Generic[C]):
    """A line of calls, and the thread that writes them in groups."""

    def __init__(
        self,
        name: str,
        write: Callable[[list[C]], None],
        *,
        most: int,
        most_calls: int | None = None,
        gather_seconds: float = 0.0,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        """`write` gives each call its result or error; `after` runs when all of a group have their answers.

        A group weighs at most about `most`.
        """
        self._write = write
        self._most = most
        self._most_calls = most if most_calls is None else most_calls
        self._gather_seconds = gather_seconds
        self._after = after
        # Whoever holds it may write.
        self.lead = threading.Lock()
        self._waiting: SimpleQueue[C | None] = SimpleQueue()
        # How many wrote together last: one alone need not wait for company.
        self._crowd = 1
        self._guard = threading.Lock()
        # While the thread waits for company: how many in the line are all, and what the last releases.
        self._complete_at: float = math.inf
        self._complete = threading.Lock()
        self._complete.acquire()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    # --- on the caller's thread ---

    def is_free(self) -> bool:
        """Whether a caller may take the lead and write by itself: nobody writes, or is about to."""
        return self._crowd == 1 and self._waiting.empty() and not self.lead.locked()

    def run(self, call: C, wait: Callable[[C], object] = Call.wait) -> Any:
        """Let the thread write it, and give its result; `wait` may give it up and raise."""
        self._waiting.put(call)
        try:
            if self._waiting.qsize() >= self._complete_at:
                # All have come; two may say so at once.
                with contextlib.suppress(RuntimeError):
                    self._complete.release()
            wait(call)
        except BaseException:  # wall: one who is interrupted takes its call back; the error goes on
            self.give_up(call)
            raise
        finally:
            call.wake_next()
        if call.error is not None:
            raise call.error
        return call.result

    def put(self, calls: Iterable[C]) -> None:
        """Let the thread write them, and do not wait."""
        for call in calls:
            self._waiting.put(call)

    def give_up(self, call: C) -> bool:
        """Take a call back, unless its write has begun."""
        with self._guard:
            call.given_up = not call.begun
            return call.given_up

    def close(self, seconds: float | None = None) -> None:
        """Write what waits, then stop. Not for ever: the thread may wait for something that is frozen."""
        self._waiting.put(None)
        self._thread.join(seconds)

    # --- on the thread ---

    def begin(self, group: Sequence[C]) -> list[C]:
        """The calls whose write begins now: those that were not given up, and whose caller is still there."""
        with self._guard:
            for call in group:
                call.begun = not call.given_up and (call.wanted is None or call.wanted())
        begun = [call for call in group if call.begun]
        for call in group:
            if not call.begun and not call.given_up:
                call.error = Withdrawn()
        return begun

    def _work(self) -> None:
        while (call := self._waiting.get()) is not None:
            self._gather()
            with self.lead:
                group = [call, *self._others(call.weight)]
                # What only wakes this thread does not come again.
                self._crowd = max(1, sum(each.awaited for each in group))
                try:
                    self._write(group)
                except BaseException as error:  # noqa: BLE001 # wall: the thread outlives whatever happens to a group
                    why = f"a write for several callers was interrupted ({error!r}); try again"
                    fail(group, StoreUnavailable(why))
                self._answer(group)
                self._after()

    def _gather(self) -> None:
        """Those of the last group come again in a moment: one commit for all is worth a short wait.

        Without it one half of them would write while the other comes, in turns.
        """
        others = self._crowd - 1
        if not self._gather_seconds or self._waiting.qsize() >= others:
            return
        # Somebody may have said so when nobody waited any more.
        self._complete.acquire(blocking=False)
        self._complete_at = others
        if self._waiting.qsize() < others:
            self._complete.acquire(timeout=self._gather_seconds)
        self._complete_at = math.inf

    def _others(self, weight: int) -> Iterator[C]:
        for _ in range(self._most_calls):
            if weight >= self._most:
                return
            try:
                call = self._waiting.get_nowait()
            except Empty:
                return
            if call is None:
                self._waiting.put(None)
                return
            weight += call.weight
            yield call

    def _answer(self, group: Sequence[C]) -> None:
        waiting = [each for each in group if each.awaited and not each.given_up]
        for call, following in pairwise(waiting):
            call.following = following
        for call in group:
            call.ended = True
        if waiting:
            waiting[0].done.release()


def fail(calls: Iterable[Call], error: Exception) -> None:
    """Give an error to all that have none yet, and take back what they were answered."""
    for call in calls:
        call.result = None
        # Each caller raises its own: one exception raised in many threads would mix their tracebacks.
        call.error = call.error or copy.copy(error)


def write_lists(
    calls: Sequence[ListCall],
    together: Callable[[Sequence[Any]], Iterable[Any]],
    alone: Callable[[Sequence[Any]], list[Any]],
) -> None:
    """Write the lists of several callers as one; if one of them brought what makes that fail, each alone."""
    if len(calls) > 1:
        try:
            answers = together([item for call in calls for item in call.items])
        except (StoreUnavailable, StoreBusy) as error:
            fail(calls, error)
            return
        except Exception:  # noqa: BLE001, S110 # wall: what one of them brought must not fail the others
            pass
        else:
            share(((call, len(call.items)) for call in calls), answers)
            return
    for call in calls:
        try:
            call.result = alone(call.items)
        except Exception as error:  # noqa: BLE001 # wall: the caller raises it
            call.error = error


def share(calls: Iterable[tuple[Call, int]], answers: Iterable[Any]) -> None:
    """Deal out the answers to one list that was made from the lists of many, each of such a length."""
    left = iter(answers)
    for call, length in calls:
        call.result = list(islice(left, length))
