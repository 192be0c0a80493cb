"""What a store can do: every verb, each one transaction, with times by the store's own clock.

Whatever may end a running job takes a `Lease`, whose token is the fence: no verb finishes a job by its id.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from windlass.errors import StoreMoved
from windlass.job import Lease, NewJob, TypeInfo
from windlass.store import operations
from windlass.store.binding import Engine, asks, reads, writes
from windlass.store.examining import DatabaseHealth
from windlass.store.fleet import Look, Vitals
from windlass.store.handling import Said
from windlass.store.keeping import Retention, StoreStatus
from windlass.store.observing import Flush, Happened, Sample
from windlass.store.operations import Carried
from windlass.store.protocol import Claimed, Enqueued, Settlement, Want
from windlass.store.scheduling import Fired
from windlass.store.signalling import Check
from windlass.store.verbs import (
    access,
    alerting,
    breaking,
    catalogue,
    chaining,
    explaining,
    fleet,
    flow,
    grouping,
    handling,
    history,
    keys,
    limiting,
    operating,
    running,
    sampling,
    scheduling,
    searching,
    signalling,
    unread,
    upkeep,
)


class Store(Engine):
    """A store. A database adds how it runs verbs, and those that it runs in its own way."""

    # --- producing ---

    @abstractmethod
    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store all jobs or none, durably. A known key or id answers with the job that has it."""

    @abstractmethod
    def enqueue_on(
        self, connection: object, jobs: Sequence[NewJob], types: Sequence[TypeInfo] = (), app: str = ""
    ) -> list[Enqueued]:
        """Store jobs within the transaction of the caller's own connection; the caller commits.

        The types are registered before anybody can see the jobs.
        """

    @abstractmethod
    async def enqueue_on_async(
        self, connection: object, jobs: Sequence[NewJob], types: Sequence[TypeInfo] = (), app: str = ""
    ) -> list[Enqueued]:
        """As `enqueue_on`, for a connection that belongs to the running event loop."""

    enqueue_batch = writes(chaining.enqueue_batch, repeat="never")
    accepted = reads(keys.accepted)
    batch = reads(chaining.batch)
    batch_of = reads(chaining.batch_of)
    waits_for = reads(chaining.waits_for)
    types = asks(catalogue.types)
    shapes = asks(catalogue.shapes)

    def register(self, types: Sequence[TypeInfo], app: str = "") -> None:
        """Tell the catalogue that a process of a release is there that knows these types.

        Each live release has an entry of its own. It goes when no process of the release has said so for
        `keep_schemas`, while others have.
        """
        # Read first: most processes find that another one of their release has just been seen.
        if not self.registered(types):
            self._rewrite(catalogue.register, types, app)

    def registered(self, types: Sequence[TypeInfo]) -> bool:
        """Whether `register` would change nothing."""
        return not self._ask(catalogue.is_news, types)

    @property
    def generation(self) -> int:
        """Rises when another file is put in the place of the store: what was registered is not in it."""
        return 0

    # --- running ---

    @abstractmethod
    def claim(self, want: Want) -> Claimed:
        """Promote, then take due jobs: by priority, tenants in turn, then seq. Counts an attempt."""

    @abstractmethod
    def extend(self, leases: Sequence[Lease], by: timedelta) -> tuple[list[Lease], list[Lease]]:
        """Move the leases' end to now + `by`: (kept with their new end, lost)."""

    @abstractmethod
    def settle(self, settlements: Sequence[Settlement]) -> list[Lease]:
        """Record outcomes; answers the leases that were lost (one settled before is not lost).

        One that cannot be stored fails alone: its job goes to the dead letters, and says why.
        """

    @abstractmethod
    def held_by(self, worker: str) -> list[Lease]:
        """Every lease in a worker's name."""

    has_unread = asks(unread.any_for)
    let_go = writes(limiting.let_go, repeat="same")
    note_hang = writes(running.note_hang, repeat="never")
    orphans = reads(running.orphans)
    expired = reads(running.expired)

    # --- handlers ---

    @abstractmethod
    def transaction(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> AbstractContextManager[Any]:
        """A connection of the handler's own in a transaction that commits together with the completion.

        That is asked for at the block's end. LeaseLost, and nothing written, if it comes too late.
        """

    @abstractmethod
    def transaction_async(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> AbstractAsyncContextManager[Any]:
        """As `transaction`, on the running event loop."""

    @abstractmethod
    def shared_address(self) -> str:
        """By which a child process reaches this store for a transaction; may carry a password.

        Refused if no other process can.
        """

    @abstractmethod
    def note_progress(self, said: Sequence[tuple[Lease, Said]]) -> None:
        """Keep how far jobs have come."""

    progress = reads(handling.progress)
    begin_once = writes(handling.begin_once, repeat="never")
    end_once = writes(handling.end_once, repeat="never")
    undo_once = writes(handling.undo_once, repeat="never")

    # --- the fleet ---

    @abstractmethod
    def beat(self, worker: str, vitals: Vitals) -> bool:
        """Move the worker's beat; False if it is unknown or was declared dead: take a new id."""

    @abstractmethod
    def beat_waiting(self, workers: Sequence[str]) -> set[str]:
        """Move the beats of workers that wait for jobs, and change nothing else; those that are alive."""

    @abstractmethod
    def leave(self, worker: str) -> None:
        """Mark the worker as stopped: nothing of its name is alive any more."""

    @abstractmethod
    def look(self, worker: str, types: Mapping[str, int], reader: str = "") -> Look:
        """One read of all that a worker must know each second."""

    # Durable, unlike a beat: after a failover, jobs of a worker without a row would belong to nobody.
    join = writes(fleet.join, repeat="same")
    declare_dead = writes(fleet.declare_dead, repeat="never")
    drain = writes(fleet.drain, repeat="never")
    workers = reads(fleet.workers)

    # --- operating ---

    get = reads(keys.get)
    named = reads(keys.named)
    find = reads(searching.find)
    count = reads(searching.count)
    count_next = reads(searching.count_next)
    counts = reads(operating.counts)
    confirm = writes(operating.confirm, repeat="never")
    cancel = writes(operating.cancel, repeat="request_id")
    bury = writes(operating.bury, repeat="request_id")
    replay = writes(operating.replay, repeat="request_id")
    rerun = writes(operating.rerun, repeat="request_id")
    discard = writes(operating.discard, repeat="request_id")
    edit = writes(operating.edit, repeat="request_id")

    start_operation = writes(operations.start, repeat="same")
    operation = asks(operations.get)
    next_jobs = reads(operations.find_next)
    advance_operation = writes(operations.advance, repeat="same")
    steer_operation = writes(operations.steer, repeat="same")
    operations = asks(operations.newest)

    def take_operation(self, owner: str, lease: timedelta, only: str = "") -> Carried | None:
        """Carry an operation that nobody carries, or only this one, for as long as the lease."""
        # Read first: a fleet with nothing to carry must not queue for a lock to find that out.
        return self._write(operations.take, owner, lease, only) if self._ask(operations.waits) else None

    # --- on call ---

    facts = reads(explaining.facts)
    failures = reads(grouping.failures)
    dead_groups = reads(grouping.dead_groups)

    @abstractmethod
    def database(self) -> DatabaseHealth:
        """How the database is."""

    # --- the flow ---

    switches = asks(flow.switches)
    pause = writes(flow.pause, repeat="same")
    resume = writes(flow.resume, repeat="same")
    set_breaker = writes(breaking.set_breaker, repeat="same")
    note_runs = writes(breaking.note_runs, repeat="same")
    adopt = writes(limiting.adopt, repeat="same")
    depths = asks(sampling.depths)

    # --- signals ---

    sight = reads(signalling.sight)
    put_off_check = writes(signalling.put_off_check, repeat="same")
    end_check = writes(signalling.end_check, repeat="never")

    @abstractmethod
    def note_ticks(self, ages: Mapping[str, timedelta], who: str) -> None:
        """Keep that things which must happen again and again succeeded, so long ago."""

    def take_checks(self, types: Sequence[str], *, limit: int, again: timedelta) -> list[Check]:
        """Checks that are due; if no verdict comes, others may take them after `again`."""
        # Read first: a fleet with nothing to check must not queue for a lock to find that out.
        found = self._read(signalling.with_checks, types)
        return self._write(signalling.take_checks, found, limit, again) if found else []

    # --- what happened ---

    totals = reads(history.totals)
    history_of_others = reads(history.history_of_others)
    releases = reads(history.releases)
    increases = reads(history.increases)
    gauge_at = reads(history.gauge_at)
    gauges = reads(history.gauges)
    history = reads(history.history)
    sample = reads(sampling.sample)
    watch_clock = writes(upkeep.watch_clock, repeat="never")
    oldest_dead = reads(upkeep.oldest_dead)
    oldest_record = reads(upkeep.oldest_record)
    noticed = reads(alerting.noticed)
    notice = writes(alerting.notice, repeat="same")
    may_tell = writes(alerting.may_tell, repeat="never")
    told = writes(alerting.told, repeat="same")

    def add_history(self, happened: Happened, flush: Flush | None = None) -> None:
        """Count what happened, now; a flush counts once, however often it is sent."""
        if happened and flush is None:
            self._write(history.add, happened)
        elif happened and flush is not None:
            self._rewrite(history.tell, happened, flush)

    def take_sample(self, older_than: timedelta) -> Sample:
        """Where all live jobs stand, counted again if the last count is older than that."""
        began = monotonic()
        seen = self._look_around(older_than)
        if isinstance(seen, Sample):
            return seen
        try:
            noted = self._note_sample(seen, timedelta(seconds=monotonic() - began))
        except StoreMoved:
            # It can still be read, and the last count stays true.
            return self.sample()
        return noted or self.sample()

    def _look_around(self, older_than: timedelta) -> sampling.Seen | Sample:
        return self._read(sampling.look, older_than)

    def _note_sample(self, seen: sampling.Seen, took: timedelta) -> Sample | None:
        return self._write(sampling.note, seen, took)

    # --- schedules ---

    declare = writes(scheduling.declare, repeat="same")
    declared = reads(scheduling.is_declared)
    add_schedule = writes(scheduling.add, repeat="never")
    schedules = reads(scheduling.every)
    schedule = reads(scheduling.get)
    fires = reads(scheduling.fires)
    pause_schedule = writes(scheduling.pause, repeat="never")
    resume_schedule = writes(scheduling.resume, repeat="never")
    run_schedule = writes(scheduling.run, repeat="request_id")
    remove_schedule = writes(scheduling.remove, repeat="never")

    def fire(self) -> Fired:
        """Deal with every fire time that has come."""
        # Read first: a fleet with nothing to do must not queue for a lock to find that out.
        return self._fire_times() or self._write(scheduling.fire)

    def _fire_times(self) -> Fired | None:
        return self._read(scheduling.idle)

    # --- who may, and who did ---

    add_api_key = writes(access.add_api_key, repeat="never")
    api_keys = reads(access.api_keys)
    revoke_api_key = writes(access.revoke_api_key, repeat="never")
    api_keys_used = writes(access.api_keys_used, repeat="never")
    note_action = writes(access.note, repeat="never")
    audit = reads(access.audit)

    # --- upkeep ---

    settings = asks(upkeep.settings)
    set_settings = writes(upkeep.set_settings, repeat="same")

    def set_setting(self, name: str, value: str | None, *, by: str = "", why: str = "") -> None:
        """Store a setting, or with None forget it."""
        self.set_settings({name: value}, by=by, why=why)

    @abstractmethod
    def now(self) -> datetime:
        """The store's time."""

    @abstractmethod
    def promote(self, *, limit: int = 1000) -> int:
        """Put scheduled jobs whose time has come into the claim index."""

    @abstractmethod
    def prune(self, keep: Retention, *, limit: int = 1_000, by: str = "") -> int:
        """Delete one batch of records past their retention, keys included; 0 when nothing is left.

        Each dead letter that goes has a line in the audit log, in the name of `by`.
        """

    @abstractmethod
    def status(self) -> StoreStatus:
        """Size, versions and warnings."""

    @abstractmethod
    def backup(self, path: str) -> None:
        """Write a consistent copy while others go on working."""

    @abstractmethod
    def check(self) -> list[str]:
        """What is wrong with the stored data; empty is the good answer."""

    @abstractmethod
    def close(self) -> None:
        """Close files, connections and threads."""
