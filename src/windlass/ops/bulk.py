"""Do one action to every job that a filter chooses: start operations, steer and carry them."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any
from uuid import UUID, uuid5

import msgspec

from windlass.checks import check_priority
from windlass.clock import Clock, SystemClock, uuid7
from windlass.errors import JobNotFound, Refused, StoreError, WrongState, must_be
from windlass.loop import Loop, Pace
from windlass.ops.actions import Action, Count, Option, Verbs, Why, bulk_action
from windlass.ops.jobs import JobVerbs, check_reschedule
from windlass.ops.search import WITHIN, count_within
from windlass.ops.verdict import Cause, Finding, finding
from windlass.store.engine import Acted
from windlass.store.jobs import Filter
from windlass.store.operations import QUOTED, Carried, NewOperation, Operation, Reached, State
from windlass.store.store import Store
from windlass.wakeup import Wakeup

log = logging.getLogger("windlass.operations")

MOST_COUNTED = 1_000_000
# Where the ids of operations come from that a request with an id asked for.
_REQUESTS = UUID("5b7d6f3e-94f6-4b0e-8d7a-0e7c1b1f5d22")
_LOOK_SECONDS = 0.5
_STALLED = timedelta(minutes=10)

OperationName = Annotated[str, Option("", "ID")]


class Bulk(Reached, frozen=True, kw_only=True):
    """What became of the jobs that a filter chose."""

    verb: str
    dry_run: bool
    matched: int
    # Of a dry run: there are more, which were not counted in time.
    at_least: bool = False
    # The id of the operation that did it, and what that was at the end; empty for a dry run.
    operation: str = ""
    state: str = ""
    error: str = ""


class Operations(Verbs):
    """Actions on many jobs that go on by themselves."""

    @Action(
        "GET operations",
        operation="list_operations",
        answers=("operations",),
        schema="OperationsDocument",
    )
    def list(self, *, limit: Count = 50) -> Sequence[Operation]:
        """The newest operations.

        A key that belongs to a tenant sees those on that tenant's jobs.
        """
        return [each for each in self.store.operations(limit=limit) if self._is_visible(each)]

    @Action("GET operations/{id}")
    def show(self, operation_id: OperationName) -> Operation:
        """One operation and how far it has come."""
        found = self.store.operation(operation_id)
        if not self._is_visible(found):
            raise JobNotFound(found.id, "operation")
        return found

    def _is_visible(self, operation: Operation) -> bool:
        return self.tenant in (None, operation.filter.get("tenant"))

    def _steer(self, operation_id: str, state: State, why: str) -> Operation:
        found = self.show(operation_id)
        return self.store.steer_operation(found.id, state, by=self._who, why=why)

    def count(self, action: str, where: Filter, *, limit: int | None = None, **arguments: Any) -> Bulk:
        """Count the jobs that an action would reach, for at most two seconds; refuse what it would refuse."""
        check_arguments(action, arguments)
        where = narrowed(action, where, limit)
        most = limit or MOST_COUNTED
        matched, all_of_them = count_within(self.store, where, limit=most, within=WITHIN, clock=self.clock)
        # A limit that is reached is no lower bound.
        more = not all_of_them and matched != limit
        return Bulk(verb=action, dry_run=True, matched=matched, at_least=more)

    def start(
        self,
        action: str,
        where: Filter,
        *,
        limit: int | None = None,
        rate: float | None = None,
        why: str = "",
        counted: Bulk | None = None,
        **arguments: Any,
    ) -> Operation:
        """Begin to do an action to every job that matches: to the oldest `limit`, at most `rate` per second.

        `arguments` are the action's own, such as `confirm` for a replay. Any process that carries operations
        does the work: servers, workers started by `windlass worker start`, and `follow`.
        """
        Pace(rate)
        check_arguments(action, arguments)
        where = narrowed(action, where, limit)
        counted = counted or self.count(action, where, limit=limit, **arguments)
        new = NewOperation(
            id=str(uuid5(_REQUESTS, self.request_id)) if self.request_id else uuid7(),
            action=action,
            where=where,
            arguments=arguments,
            rate=rate,
            limit=limit,
            expected=counted.matched,
            at_least=counted.at_least,
            why=why,
        )
        return self.store.start_operation(new, by=self._who)

    def follow(self, operation_id: str, progress: Callable[[Operation], None] = lambda _: None) -> Operation:
        """Come back when an operation has ended; carry it here while no other process does."""
        carrier = None
        if self.remote is None:
            carrier = Carrier(self.store, self.wakeup, only=operation_id, clock=self.clock)
        rest: float | None = None
        never = threading.Event()
        try:
            while True:
                if carrier is not None:
                    rest = carrier.tick()
                found = self.show(operation_id)
                progress(found)
                if found.state.ended:
                    return found
                never.wait(_LOOK_SECONDS if rest is None else rest)
        finally:
            if carrier is not None:
                carrier.let_go()

    @Action(
        "POST operations/{id}/pause",
        past="paused",
        examples='windlass operation pause ID --why "the mail server is slow"',
    )
    def pause(self, operation_id: OperationName, *, why: Why = "") -> Operation:
        """Hold an operation where it is."""
        return self._steer(operation_id, State.PAUSED, why)

    @Action("POST operations/{id}/resume", past="resumed", examples="windlass operation resume ID")
    def resume(self, operation_id: OperationName, *, why: Why = "") -> Operation:
        """Let a paused operation go on from its place."""
        return self._steer(operation_id, State.RUNNING, why)

    @Action(
        "POST operations/{id}/stop",
        danger=True,
        past="stopped",
        examples='windlass operation stop ID --why "wrong filter"',
    )
    def stop(self, operation_id: OperationName, *, why: Why = "") -> Operation:
        """End an operation for good. What it has done stays done."""
        return self._steer(operation_id, State.STOPPED, why)


def operation_findings(found: Iterable[Operation], now: datetime) -> list[Finding]:
    """Operations that run and have not moved for ten minutes: no process carries them."""
    return [
        finding(
            Cause.OPERATION,
            f"Operation {each.id} ({each.action}) makes no progress",
            f"windlass operation show {each.id} --follow",
            each.updated_at,
            grave=False,
        )
        for each in found
        if each.state is State.RUNNING and now - each.updated_at > _STALLED
    ]


def summed_up(operation: Operation) -> Bulk:
    """What became of the jobs of an operation."""
    reached = msgspec.structs.asdict(operation.reached)
    state, error = operation.state, operation.error
    return Bulk(
        verb=operation.action, dry_run=False, operation=operation.id, state=state, error=error, **reached
    )


def narrowed(action: str, where: Filter, limit: int | None) -> Filter:
    """The filter, held to the states that the action is for; one that asks for others is refused."""
    declared = bulk_action(action)
    if limit is not None and limit < 1:
        raise must_be("limit", limit, "at least 1")
    states = where.states or declared.states
    if not set(states) <= set(declared.states):
        wrong = ", ".join(state for state in states if state not in declared.states)
        allowed = " or ".join(declared.states)
        raise must_be("state", wrong, f"{allowed}: others cannot be {declared.participle}")
    return msgspec.structs.replace(where, states=states)


def check_arguments(action: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that the action would refuse of every job, before anything is begun."""
    declared = bulk_action(action)
    taken = {each.name: each for each in declared.parameters}
    for name, value in arguments.items():
        if name not in taken and value is not None:
            raise must_be(name, value, f"left out for {action}")
    for each in taken.values():
        if each.required and arguments.get(each.name) is None:
            raise must_be(each.name, None, f"given for {action}")
    check = _CHECKS.get(action)
    if check is not None:
        check(*(arguments.get(name) for name in taken if name != "why"))


_CHECKS: dict[str, Callable[..., object]] = {"priority": check_priority, "reschedule": check_reschedule}


# --- carrying them ------------------------------------------------------------------------------

# An operation whose process has died is taken over after this time. One chunk takes far less.
LEASE = timedelta(seconds=10)
_CHUNK = 200
_THREADS = 16
# So long one step looks for the next jobs; then it says how far it has come.
_SEARCH_SECONDS = 1.0
# Who rests longer than this between two chunks says before that what has been done.
_REST_SECONDS = 0.5


@dataclass(eq=False)
class Carrier:
    """Carries operations that no other process carries, or only one of them.

    Any number of carriers may run, in servers, workers and commands. Each operation has a lease: the process
    that has it acts on the next jobs; when it dies, another one goes on with the same chunk.
    """

    store: Store
    wakeup: Wakeup | None
    _: KW_ONLY
    only: str = ""
    every: timedelta = timedelta(seconds=1)
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self._owner = f"{socket.gethostname()}-{os.getpid()}"
        self._hands: dict[str, _Hand] = {}
        # Every process looks now and then, at its own time.
        self.loop = Loop("carrier", self.tick, every=self.every, jitter=0.2)

    def tick(self) -> float | None:
        """Take what no process carries, and do one chunk of each operation; the seconds until the next."""
        while (taken := self.store.take_operation(self._owner, LEASE, self.only)) is not None:
            self._hands[taken.operation.id] = _Hand(taken, self.clock)
        for hand in list(self._hands.values()):
            if hand.due <= self.clock.monotonic():
                self._step(hand)
        if not self._hands:
            return None
        rest = min(hand.due for hand in self._hands.values()) - self.clock.monotonic()
        return max(0.0, min(rest, self.every.total_seconds()))

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
                self.store.advance_operation(hand.carried, hand.reached, timedelta(0))

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
        carried, size, give_up = hand.carried, hand.size, self.clock.monotonic() + _SEARCH_SECONDS
        while size > 0 and not carried.chunk and carried.place < carried.last:
            chunk, place = self.store.next_jobs(carried, size)
            carried = msgspec.structs.replace(carried, chunk=chunk, place=place)
            if self.clock.monotonic() > give_up:
                break
        over = not carried.chunk and (size <= 0 or carried.place >= carried.last)
        return self._save(hand, carried, ends=State.DONE if over else None) and bool(carried.chunk)

    def _act_on_chunk(self, hand: _Hand) -> None:
        act, chunk = self._action(hand.carried.operation), hand.carried.chunk
        # The store commits what waits together, so several threads are many times faster than one.
        with ThreadPoolExecutor(min(_THREADS, len(chunk)), thread_name_prefix="operation") as threads:
            answers = list(threads.map(lambda job_id: _outcome(act, job_id), chunk))
        hand.acted(answers, self.clock.monotonic())
        rest = hand.due - self.clock.monotonic()
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
        ops = JobVerbs(self.store, wakeup=self.wakeup, by=operation.by, request_id=operation.id)
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
        saved = self.store.advance_operation(carried, hand.reached, lease, ends=ends, error=error)
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
