"""Do one action to every job that a filter chooses: start operations, follow and steer them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID, uuid5

import msgspec

from windlass.clock import uuid7
from windlass.errors import JobNotFound, must_be
from windlass.ops.actions import Action, Count, Option, Verbs, Why, bulk_action
from windlass.ops.carrier import Carrier
from windlass.ops.search import WITHIN, count_within
from windlass.ops.verdict import Cause, Finding, finding
from windlass.pace import Pace
from windlass.store.jobs import Filter
from windlass.store.operations import NewOperation, Operation, State

MOST_COUNTED = 1_000_000
# Where the ids of operations come from that a request with an id asked for.
_REQUESTS = UUID("5b7d6f3e-94f6-4b0e-8d7a-0e7c1b1f5d22")
_LOOK_SECONDS = 0.5
_STALLED = timedelta(minutes=10)

OperationName = Annotated[str, Option("", "ID")]


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the jobs that a filter chose."""

    # The action's name.
    verb: str
    dry_run: bool
    matched: int
    # Of a dry run: there are more, which were not counted in time.
    at_least: bool = False
    # The verb took effect.
    done: int = 0
    # The jobs were running: the verb waits for their workers.
    asked: int = 0
    # The jobs had left the verb's states before it reached them, such as by completing.
    moved_on: int = 0
    # The rules said no; `refusals` quotes the first few.
    refused: int = 0
    refusals: tuple[str, ...] = ()
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
        return self._tenant in (None, operation.filter.get("tenant"))

    def _steer(self, operation_id: str, state: State, why: str) -> Operation:
        found = self.show(operation_id)
        return self.store.steer_operation(found.id, state, by=self._who, why=why)

    def count(self, action: str, where: Filter, *, limit: int | None = None) -> Bulk:
        """Count the jobs that an action would reach, for at most two seconds."""
        where = narrowed(action, where, limit)
        most = limit or MOST_COUNTED
        matched, all_of_them = count_within(self.store, where, limit=most, within=WITHIN, clock=self._clock)
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
        where = narrowed(action, where, limit)
        counted = counted or self.count(action, where, limit=limit)
        new = NewOperation(
            id=str(uuid5(_REQUESTS, self._request_id)) if self._request_id else uuid7(),
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
            carrier = Carrier(self.store, self._wakeup, only=operation_id, clock=self._clock)
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
