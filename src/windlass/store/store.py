"""What a store can do: every verb, each one transaction, with times by the store's own clock.

Whatever may end a running job takes a `Lease`, whose token is the fence: no verb finishes a job by its id.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from time import monotonic

from windlass.errors import StoreMoved
from windlass.job import Lease, NewJob, TypeInfo
from windlass.store import (
    access,
    catalogue,
    chains,
    explain,
    fleet,
    flow,
    history,
    jobs,
    keys,
    limits,
    oncall,
    operations,
    running,
    samples,
    schedules,
    upkeep,
)
from windlass.store.engine import (
    Bridge,
    Claimed,
    Engine,
    Enqueued,
    Settlement,
    Want,
    across,
    asks,
    beats,
    glances,
    reads,
    writes,
)
from windlass.store.history import Flush, Happened
from windlass.store.oncall import Check, DatabaseHealth
from windlass.store.operations import Carried
from windlass.store.samples import Sample
from windlass.store.schedules import Fired
from windlass.store.upkeep import Retention, StoreStatus


class Store(Engine):
    """A store. A database adds how it runs verbs, and those that it runs in its own way."""

    # --- producing ---

    @abstractmethod
    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store all jobs or none, durably. A known key or id answers with the job that has it."""

    @abstractmethod
    def enqueue_on(
        self,
        connection: object,
        jobs: Sequence[NewJob],
        types: Sequence[TypeInfo] = (),
        app: str = "",
        bridge: Bridge | None = None,
    ) -> list[Enqueued]:
        """Store jobs within the transaction of the caller's own connection; the caller commits.

        The types are registered before anybody can see the jobs. A connection that belongs to an event loop
        comes with a bridge to it.
        """

    async def enqueue_on_async(
        self, connection: object, jobs: Sequence[NewJob], types: Sequence[TypeInfo] = (), app: str = ""
    ) -> list[Enqueued]:
        """As `enqueue_on`, for a connection that belongs to the running event loop."""
        return await across(lambda bridge: self.enqueue_on(connection, jobs, types, app, bridge))

    enqueue_batch = writes(chains.enqueue_batch, repeat="never")
    accepted = reads(keys.accepted)
    batch = reads(chains.batch)
    batch_of = reads(chains.batch_of)
    waits_for = reads(chains.waits_for)
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

    def wake_with(
        self,
        notify: Callable[[], None],
        *,
        first: Callable[[], bool] = lambda: False,
        here: Callable[[], None] = lambda: None,
    ) -> None:
        """Say how those who wait are notified of jobs that the end of others has released.

        `first` says whether a commit may notify other processes of what it makes; then `here` notifies this
        one. Where every process sees that the store has changed, nobody is notified.
        """
        self._wake, self._first, self._wake_here = notify, first, here

    @property
    def generation(self) -> int:
        """Rises when another file is put in the place of the store: what was registered is not in it."""
        return 0

    # --- running ---

    @abstractmethod
    def claim(self, want: Want) -> Claimed:
        """Promote, then take due jobs: by priority, tenants in turn, then seq. Counts an attempt."""

    @abstractmethod
    def settle(self, settlements: Sequence[Settlement]) -> list[Lease]:
        """Record outcomes; answers the leases that were lost (one settled before is not lost).

        One that cannot be stored fails alone: its job goes to the dead letters, and says why.
        """

    extend = beats(running.extend)
    held_by = reads(running.held_by)
    has_unread = asks(running.any_for)
    let_go = writes(limits.let_go, repeat="same")
    note_hang = writes(running.note_hang, repeat="never")
    orphans = reads(running.orphans)
    expired = reads(running.expired)

    # --- handlers ---

    @abstractmethod
    def handlers(self) -> running.Transacting:
        """Where handlers' own writes commit together with the completion of their jobs."""

    @abstractmethod
    def shared_address(self) -> str:
        """By which a child process reaches this store for a transaction; may carry a password.

        Refused if no other process can.
        """

    note_progress = beats(running.note_progress)
    progress = reads(running.progress)
    begin_once = writes(running.begin_once, repeat="never")
    end_once = writes(running.end_once, repeat="never")
    undo_once = writes(running.undo_once, repeat="never")

    # --- the fleet ---

    # Durable, unlike a beat: after a failover, jobs of a worker without a row would belong to nobody.
    join = writes(fleet.join, repeat="same")
    beat = beats(fleet.beat)
    beat_waiting = beats(fleet.beat_waiting)
    leave = beats(fleet.leave)
    look = glances(fleet.look)
    declare_dead = writes(fleet.declare_dead, repeat="never")
    drain = writes(fleet.drain, repeat="never")
    workers = reads(fleet.workers)

    # --- operating ---

    get = reads(keys.get)
    named = reads(keys.named)
    find = reads(jobs.find)
    count = reads(jobs.count)
    count_next = reads(jobs.count_next)
    counts = reads(jobs.counts)
    confirm = writes(jobs.confirm, repeat="never")
    act = writes(jobs.act, repeat="request_id")
    cancel = writes(jobs.cancel, repeat="request_id")
    bury = writes(jobs.bury, repeat="request_id")
    replay = writes(jobs.replay, repeat="request_id")
    rerun = writes(jobs.rerun, repeat="request_id")
    discard = writes(jobs.discard, repeat="request_id")
    edit = writes(jobs.edit, repeat="request_id")

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

    facts = reads(explain.facts)
    failures = reads(oncall.failures)
    dead_groups = reads(oncall.dead_groups)

    @abstractmethod
    def database(self) -> DatabaseHealth:
        """How the database is."""

    # --- the flow ---

    switches = asks(flow.switches)
    pause = writes(flow.pause, repeat="same")
    resume = writes(flow.resume, repeat="same")
    set_breaker = writes(flow.set_breaker, repeat="same")
    note_runs = writes(flow.note_runs, repeat="same")
    adopt = writes(limits.adopt, repeat="same")
    depths = asks(samples.depths)

    # --- signals ---

    sight = reads(oncall.sight)
    note_ticks = beats(oncall.note_ticks)
    put_off_check = writes(oncall.put_off_check, repeat="same")
    end_check = writes(oncall.end_check, repeat="never")

    def take_checks(self, types: Sequence[str], *, limit: int, again: timedelta) -> list[Check]:
        """Checks that are due; if no verdict comes, others may take them after `again`."""
        # Read first: a fleet with nothing to check must not queue for a lock to find that out.
        found = self._read(oncall.with_checks, types)
        return self._write(oncall.take_checks, found, limit, again) if found else []

    # --- what happened ---

    totals = reads(history.totals)
    history_of_others = reads(history.history_of_others)
    releases = reads(history.releases)
    increases = reads(history.increases)
    gauge_at = reads(history.gauge_at)
    gauges = reads(history.gauges)
    sample = reads(samples.sample)
    poison = reads(samples.poison)
    watch_clock = writes(upkeep.watch_clock, repeat="never")
    oldest_dead = reads(upkeep.oldest_dead)
    oldest_record = reads(upkeep.oldest_record)
    noticed = reads(history.noticed)
    notice = writes(history.notice, repeat="same")
    may_tell = writes(history.may_tell, repeat="never")
    told = writes(history.told, repeat="same")
    history = reads(history.history)

    def add_history(self, happened: Happened, flush: Flush | None = None) -> None:
        """Count what happened, now; a flush counts once, however often it is sent."""
        if happened and flush is None:
            self._write(history.add, happened)
        elif happened and flush is not None:
            self._rewrite(history.tell, happened, flush)

    _count_live = asks(samples.look)
    _note_sample = writes(samples.note, repeat="never")
    # Mostly one statement.
    _note_quiet_sample = beats(samples.note)

    def take_sample(self, older_than: timedelta) -> Sample:
        """Where all live jobs stand, counted again if the last count is older than that."""
        began = monotonic()
        seen = self._count_live(older_than)
        if isinstance(seen, Sample):
            return seen
        note = self._note_quiet_sample if seen.quiet else self._note_sample
        try:
            noted = note(seen, timedelta(seconds=monotonic() - began))
        except StoreMoved:
            # It can still be read, and the last count stays true.
            return self.sample()
        return noted or self.sample()

    # --- schedules ---

    declare = writes(schedules.declare, repeat="same")
    declared = reads(schedules.is_declared)
    add_schedule = writes(schedules.add, repeat="never")
    schedule = reads(schedules.get)
    fires = reads(schedules.fires)
    pause_schedule = writes(schedules.pause, repeat="never")
    resume_schedule = writes(schedules.resume, repeat="never")
    run_schedule = writes(schedules.run, repeat="request_id")
    remove_schedule = writes(schedules.remove, repeat="never")
    _nothing_to_fire = glances(schedules.idle)
    _fire_due = writes(schedules.fire, repeat="never")
    schedules = reads(schedules.every)

    def fire(self) -> Fired:
        """Deal with every fire time that has come."""
        # Read first: a fleet with nothing to do must not queue for a lock to find that out.
        return self._nothing_to_fire() or self._fire_due()

    # --- who may, and who did ---

    add_api_key = writes(access.add_api_key, repeat="never")
    api_keys = reads(access.api_keys)
    revoke_api_key = writes(access.revoke_api_key, repeat="never")
    api_keys_used = writes(access.api_keys_used, repeat="never")
    note_action = writes(access.note, repeat="never")
    audit = reads(access.audit)

    # --- upkeep ---

    settings = asks(upkeep.settings)
    promote = beats(upkeep.promote)
    set_settings = writes(upkeep.set_settings, repeat="same")

    def set_setting(self, name: str, value: str | None, *, by: str = "", why: str = "") -> None:
        """Store a setting, or with None forget it."""
        self.set_settings({name: value}, by=by, why=why)

    @abstractmethod
    def now(self) -> datetime:
        """The store's time."""

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
