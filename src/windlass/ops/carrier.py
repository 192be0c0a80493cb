"""Carry operations: act on the jobs of each, chunk by chunk, at its rate."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import msgspec

from windlass.clock import Clock, SystemClock
from windlass.errors import JobNotFound, Refused, StoreError, WrongState
from windlass.loop import Loop
from windlass.ops.actions import bulk_action
from windlass.ops.jobs import JobVerbs
from windlass.pace import Pace
from windlass.store.engine import Acted
from windlass.store.operations import QUOTED, Carried, Operation, Reached, State
from windlass.store.store import Store
from windlass.wakeup import Wakeup

log = logging.getLogger("windlass.operations")

# An operation whose process has died is taken over after this time. One chunk takes far less.
LEASE = timedelta(seconds=10)
_CHUNK = 200
_THREADS = 16
# So long one step looks for the next jobs; then it says how far it has come.
_SEARCH_SECONDS = 1.0
# Who rests longer than this between two chunks says before that what has been done.
_REST_SECONDS = 0.5


class Carrier:
    """Carries operations that no other process carries, or only one of them.

    Any number of carriers may run, in servers, workers and commands. Each operation has a lease: the process
    that has it acts on the next jobs; when it dies, another one goes on with the same chunk.
    """

    def __init__(
        self,
        store: Store,
        wakeup: Wakeup | None,
        *,
        only: str = "",
        every: timedelta = timedelta(seconds=1),
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._wakeup = wakeup
        self._only = only
        self._every = every.total_seconds()
        self._clock = clock or SystemClock()
        self._owner = f"{socket.gethostname()}-{os.getpid()}"
        self._hands: dict[str, _Hand] = {}
        # Every process looks now and then, at its own time.
        self.loop = Loop("carrier", self.tick, every=every, jitter=0.2)

    def tick(self) -> float | None:
        """Take what no process carries, and do one chunk of each operation; the seconds until the next."""
        while (taken := self._store.take_operation(self._owner, LEASE, self._only)) is not None:
            self._hands[taken.operation.id] = _Hand(taken, self._clock)
        for hand in list(self._hands.values()):
            if hand.due <= self._clock.monotonic():
                self._step(hand)
        if not self._hands:
            return None
        rest = min(hand.due for hand in self._hands.values()) - self._clock.monotonic()
        return max(0.0, min(rest, self._every))

    def stop(self, timeout: float) -> None:
        """Stop the loop, and let the others go on at once with what it carried."""
        if self.loop.stop(timeout):
            self.let_go()

    def let_go(self) -> None:
        """Let others go on with what is carried here."""
        while self._hands:
            _, hand = self._hands.popitem()
            # If the store is away, the leases end by themselves.
            with contextlib.suppress(StoreError):
                self._store.advance_operation(hand.carried, hand.reached, timedelta(0))

    def _step(self, hand: _Hand) -> None:
        """Act on the next chunk, or on the one that another process has left behind."""
        try:
            if not hand.carried.chunk and not self._find(hand):
                return
            self._act_on_chunk(hand)
        except StoreError:
            # The chunk is done again: what was done of it answers as done.
            raise
        except Exception as error:  # wall: a bug in one operation must not keep the others from going on
            log.exception("operation.failed", extra={"operation": hand.carried.operation.id})
            self._save(hand, hand.carried, ends=State.FAILED, error=f"{type(error).__name__}: {error}")

    def _find(self, hand: _Hand) -> bool:
        """Write down which jobs come next; whether there are any to act on now."""
        carried, size, give_up = hand.carried, hand.size, self._clock.monotonic() + _SEARCH_SECONDS
        while size > 0 and not carried.chunk and carried.place < carried.last:
            chunk, place = self._store.next_jobs(carried, size)
            carried = msgspec.structs.replace(carried, chunk=chunk, place=place)
            if self._clock.monotonic() > give_up:
                break
        over = not carried.chunk and (size <= 0 or carried.place >= carried.last)
        return self._save(hand, carried, ends=State.DONE if over else None) and bool(carried.chunk)

    def _act_on_chunk(self, hand: _Hand) -> None:
        act, chunk = self._action(hand.carried.operation), hand.carried.chunk
        # The store commits what waits together, so several threads are many times faster than one.
        with ThreadPoolExecutor(min(_THREADS, len(chunk)), thread_name_prefix="operation") as threads:
            answers = list(threads.map(lambda job_id: _outcome(act, job_id), chunk))
        hand.acted(answers, self._clock.monotonic())
        rest = hand.due - self._clock.monotonic()
        if rest > _REST_SECONDS:
            self._save(hand, hand.carried, LEASE + timedelta(seconds=rest))

    def _action(self, operation: Operation) -> Callable[[str], Acted]:
        """What an operation does to a job: the declared action in the name of who asked for it."""
        declared = bulk_action(operation.action)
        given = {
            each.name: msgspec.convert(operation.arguments[each.name], each.base | None)
            for each in declared.parameters
            if each.name in operation.arguments
        }
        ops = JobVerbs(self._store, wakeup=self._wakeup, by=operation.by, request_id=operation.id)
        return partial(declared.of(ops), why=operation.why, **given)

    def _save(
        self,
        hand: _Hand,
        carried: Carried,
        lease: timedelta = LEASE,
        *,
        ends: State | None = None,
        error: str = "",
    ) -> bool:
        """Store how far it has come; False if it does not go on here."""
        saved = self._store.advance_operation(carried, hand.reached, lease, ends=ends, error=error)
        if saved is None or saved.operation.state is not State.RUNNING:
            del self._hands[carried.operation.id]
            return False
        # Only now: what is not stored is not acted on.
        hand.carried = saved
        return True


@contextlib.contextmanager
def carrying(store: Store, wakeup: Wakeup) -> Iterator[None]:
    """Carry operations beside a worker: with fewer looks for them than a server, which looks each second."""
    carrier = Carrier(store, wakeup, every=timedelta(seconds=5))
    carrier.loop.start()
    try:
        yield
    finally:
        carrier.stop(1.0)


class _Hand:
    """One operation that is carried here."""

    def __init__(self, carried: Carried, clock: Clock) -> None:
        self.carried = carried
        self.reached = carried.operation.reached
        self.due = clock.monotonic()
        self._pace = Pace(carried.operation.rate, clock=clock)

    @property
    def size(self) -> int:
        """How many jobs the next chunk may have."""
        size, limit = min(self._pace.step or _CHUNK, _CHUNK), self.carried.operation.limit
        return size if limit is None else min(size, limit - self.reached.matched)

    def acted(self, answers: list[Acted | Refused], now: float) -> None:
        """The chunk is done: count it, and rest as its rate says."""
        self.reached = count(self.reached, answers)
        self.carried = msgspec.structs.replace(self.carried, chunk=())
        self._pace.count(len(answers))
        self.due = now + max(0.0, self._pace.ahead())


def count(reached: Reached, answers: Iterable[Acted | Refused]) -> Reached:
    """What was reached, with these answers."""
    counts = msgspec.structs.asdict(reached)
    for answer in answers:
        counts["matched"] += 1
        if isinstance(answer, WrongState | JobNotFound):
            counts["moved_on"] += 1
        elif isinstance(answer, Refused):
            counts["refused"] += 1
            counts["refusals"] = (*counts["refusals"], str(answer))[:QUOTED]
        else:
            counts["done" if answer.done else "asked"] += 1
    return Reached(**counts)


def _outcome(act: Callable[[str], Acted], job_id: str) -> Acted | Refused:
    try:
        return act(job_id)
    except Refused as error:
        return error
