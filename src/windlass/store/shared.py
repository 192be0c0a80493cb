"""Which verbs run alike on every store? Those that are one read or one write of the shared statements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from windlass.errors import StoreMoved
from windlass.store.observing import Sample
from windlass.store.scheduling import REMEMBERED
from windlass.store.verbs import (
    access,
    alerting,
    breaking,
    chaining,
    explaining,
    fleet,
    flow,
    grouping,
    handling,
    history,
    limiting,
    operating,
    producing,
    running,
    sampling,
    scheduling,
    searching,
    signalling,
    upkeep,
)
from windlass.store.verbs.operating import Asked

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from windlass.job import Job, Lease, NewJob, TypeInfo
    from windlass.policy.breaker import BreakerTerms
    from windlass.schedule import NewSchedule
    from windlass.store.access import ApiKey, AuditPage, NewApiKey
    from windlass.store.batches import BatchInfo, NewBatch
    from windlass.store.examining import DeadGroups
    from windlass.store.explaining import Facts
    from windlass.store.fleet import WorkerInfo
    from windlass.store.flow import Breaker, BreakerState, Depths, Pause, Restriction, Runs, Switches
    from windlass.store.handling import Once, Progress
    from windlass.store.observing import Flush, Happened, Noticed, Past, Release, Step
    from windlass.store.protocol import Acted, Counted, Counts, Edit, Enqueued, Filter, Page
    from windlass.store.scheduling import Fire, Fired, ScheduleInfo
    from windlass.store.signalling import Check, Sighting, Verdict

T = TypeVar("T")


class SharedVerbs(ABC):
    """A store says how it reads, how it writes and how it enqueues; what follows from that stands here."""

    @abstractmethod
    def _read(self, verb: Callable[..., T], *args: object) -> T:
        """Run a verb that changes nothing; it sees one state of the store."""

    def _ask(self, verb: Callable[..., T], *args: object) -> T:
        """The same where one statement answers, or several that need not see the same state."""
        return self._read(verb, *args)

    @abstractmethod
    def _write(self, verb: Callable[..., T], *args: object) -> T:
        """Run a verb in a transaction of its own."""

    def _rewrite(self, verb: Callable[..., T], *args: object) -> T:
        """Run a verb that may take effect twice without harm."""
        return self._write(verb, *args)

    @property
    @abstractmethod
    def _enqueuing(self) -> Callable[..., list[Enqueued]]:
        """How jobs are enqueued within the transaction of another verb."""

    # --- producing ---

    def enqueue_batch(self, batch: NewBatch, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self._write(chaining.enqueue_batch, batch, jobs, self._enqueuing)

    def batch(self, batch_id: str) -> BatchInfo | None:
        return self._read(chaining.batch, batch_id)

    def batch_of(self, job_id: str) -> str | None:
        return self._read(chaining.batch_of, job_id)

    def waits_for(self, job_id: str) -> list[str]:
        return self._read(chaining.waits_for, job_id)

    def register(self, types: Sequence[TypeInfo]) -> None:
        self._rewrite(producing.register, types)

    def types(self) -> dict[str, TypeInfo]:
        return self._ask(producing.types)

    # --- running ---

    def let_go(self, tokens: Sequence[str]) -> None:
        self._rewrite(limiting.let_go, tokens)

    def orphans(self, *, limit: int) -> list[Lease]:
        return self._read(running.orphans, limit)

    def expired(self, *, limit: int) -> list[Lease]:
        return self._read(running.expired, limit)

    # --- handlers ---

    def progress(self, job_id: str) -> Progress | None:
        return self._read(handling.progress, job_id)

    def begin_once(self, lease: Lease, key: str) -> Once:
        return self._write(handling.begin_once, lease, key)

    def end_once(self, lease: Lease, key: str) -> None:
        self._write(handling.end_once, lease, key)

    def undo_once(self, lease: Lease, key: str) -> None:
        self._write(handling.undo_once, lease, key)

    # --- the fleet ---

    def join(self, worker: WorkerInfo) -> None:
        # Durably, other than a beat: jobs of a worker whose row did not survive a failover would be nobody's.
        self._rewrite(fleet.join, worker)

    def declare_dead(self, worker: str, beat: int) -> bool:
        return self._write(fleet.declare_dead, worker, beat)

    def drain(self, worker: str, *, by: str = "", why: str = "") -> None:
        self._write(fleet.drain, worker, by, why)

    def workers(self) -> list[WorkerInfo]:
        return self._read(fleet.workers)

    # --- operating ---

    def get(self, name: str, *, caller: str = "") -> Job | None:
        return self._read(operating.get, name, caller)

    def find(
        self, where: Filter, *, limit: int = 50, cursor: str | None = None, window: int | None = None
    ) -> Page:
        return self._read(searching.find, where, limit, cursor, window)

    def count(self, where: Filter, *, limit: int) -> int:
        return self._read(searching.count, where, limit)

    def count_next(self, where: Filter, *, window: int, cursor: str | None = None) -> Counted:
        return self._read(searching.count_next, where, cursor, window)

    def counts(self) -> Counts:
        return self._read(operating.counts)

    def cancel(self, job_id: str, *, by: str = "", why: str = "", request_id: str = "") -> Acted:
        return self._end(operating.cancel, job_id, Asked(by, why, request_id))

    def bury(self, job_id: str, *, by: str = "", why: str = "", request_id: str = "") -> Acted:
        return self._end(operating.bury, job_id, Asked(by, why, request_id))

    def replay(
        self, job_id: str, *, edit: Edit | None = None, by: str = "", why: str = "", request_id: str = ""
    ) -> Acted:
        return self._act(operating.replay, job_id, Asked(by, why, request_id), edit)

    def discard(self, job_id: str, *, by: str = "", why: str = "", request_id: str = "") -> Acted:
        return self._end(operating.discard, job_id, Asked(by, why, request_id))

    def edit(self, job_id: str, change: Edit, *, by: str = "", why: str = "", request_id: str = "") -> Acted:
        return self._act(operating.edit, job_id, Asked(by, why, request_id), change)

    def _end(self, verb: Callable[..., Acted], job_id: str, asked: Asked) -> Acted:
        return self._act(chaining.ending, job_id, asked, verb, self._enqueuing)

    def _act(self, verb: Callable[..., Acted], job_id: str, asked: Asked, *args: object) -> Acted:
        write = self._rewrite if asked.request_id else self._write
        return write(operating.once, verb, job_id, asked, *args)

    # --- on call ---

    def facts(self, name: str) -> Facts | None:
        return self._read(explaining.facts, name)

    def failures(self, *, since: datetime | None = None, limit: int = 50) -> list[Job]:
        return self._read(grouping.failures, since, limit)

    def dead_groups(self, types: Sequence[str] = ()) -> DeadGroups:
        return self._read(grouping.dead_groups, types)

    # --- the flow ---

    def switches(self) -> Switches:
        return self._ask(flow.switches)

    def pause(self, job_type: str, *, by: str = "", why: str = "") -> Pause:
        return self._rewrite(flow.pause, job_type, by, why)

    def resume(self, job_type: str, *, by: str = "", why: str = "") -> bool:
        return self._rewrite(flow.resume, job_type, by, why)

    def set_breaker(self, name: str, state: BreakerState, *, by: str = "", why: str = "") -> Breaker:
        return self._rewrite(breaking.set_breaker, name, state, by, why)

    def note_runs(
        self, worker: str, runs: Sequence[Runs], terms: Mapping[str, BreakerTerms]
    ) -> list[Breaker]:
        return self._rewrite(breaking.note_runs, worker, runs, terms)

    def adopt(self, restricted: Mapping[str, Restriction]) -> None:
        self._rewrite(limiting.adopt, restricted)

    def depths(self) -> Depths:
        return self._ask(sampling.depths)

    # --- signals ---

    def sight(self, stalled_for: timedelta) -> Sighting:
        return self._read(signalling.sight, stalled_for)

    def note_ticks(self, ages: Mapping[str, timedelta], who: str) -> None:
        self._rewrite(signalling.note_ticks, ages, who)

    def take_checks(self, types: Sequence[str], *, limit: int, again: timedelta) -> list[Check]:
        # A look first: a fleet with nothing to check must not queue for a lock to find that out.
        found = self._read(signalling.with_checks, types)
        return self._write(signalling.take_checks, found, limit, again) if found else []

    def put_off_check(self, check: Check, by: timedelta) -> None:
        self._rewrite(signalling.put_off_check, check, by)

    def end_check(self, check: Check, verdict: Verdict) -> bool:
        return self._write(signalling.end_check, check, verdict)

    # --- looking at what happened ---

    def add_history(self, happened: Happened, flush: Flush | None = None) -> None:
        if happened and flush is None:
            self._write(history.add, happened)
        elif happened:
            self._rewrite(history.tell, happened, flush)

    def totals(self) -> dict[tuple[str, str], int]:
        return self._read(history.totals)

    def history(
        self, step: Step, since: datetime, before: datetime, *, types: Sequence[str] | None = None
    ) -> list[Past]:
        return self._read(history.history, step, since, before, types)

    def history_of_others(
        self, step: Step, since: datetime, before: datetime, *, types: Sequence[str]
    ) -> list[Past]:
        return self._read(history.history_of_others, step, since, before, types)

    def releases(self) -> list[Release]:
        return self._read(history.releases)

    def increases(self, since: Sequence[timedelta]) -> dict[timedelta, dict[tuple[str, str], int]]:
        return self._read(history.increases, since)

    def gauge_at(self, name: str, ago: timedelta) -> dict[str, int]:
        return self._read(history.gauge_at, name, ago)

    def sample(self) -> Sample:
        return self._read(sampling.sample)

    def take_sample(self, older_than: timedelta) -> Sample:
        began = monotonic()
        seen = self._look_around(older_than)
        if isinstance(seen, Sample):
            return seen
        try:
            noted = self._note_sample(seen, timedelta(seconds=monotonic() - began))
        except StoreMoved:
            # It can still be read, and what was counted last holds for ever.
            return self.sample()
        return noted or self.sample()

    def _look_around(self, older_than: timedelta) -> sampling.Seen | Sample:
        return self._read(sampling.look, older_than)

    def _note_sample(self, seen: sampling.Seen, took: timedelta) -> Sample | None:
        return self._write(sampling.note, seen, took)

    def oldest_record(self) -> datetime | None:
        return self._read(upkeep.oldest_record)

    def noticed(self) -> list[Noticed]:
        return self._read(alerting.noticed)

    def notice(self, holding: Mapping[tuple[str, str], float]) -> list[Noticed]:
        return self._rewrite(alerting.notice, holding)

    def may_tell(self, name: str, labels: str, *, fires: bool) -> bool:
        return self._write(alerting.may_tell, name, labels, fires)

    def told(self, name: str, labels: str, *, fires: bool | None) -> None:
        self._rewrite(alerting.told, name, labels, fires)

    # --- schedules ---

    def declare(self, schedules: Sequence[NewSchedule], types: Sequence[str]) -> list[str]:
        return self._rewrite(scheduling.declare, schedules, types)

    def add_schedule(
        self, new: NewSchedule, *, replace: bool = False, by: str = "", why: str = ""
    ) -> ScheduleInfo:
        return self._write(scheduling.add, new, replace, by, why)

    def schedules(self) -> list[ScheduleInfo]:
        return self._read(scheduling.every)

    def schedule(self, name: str) -> ScheduleInfo:
        return self._read(scheduling.get, name)

    def fires(self, name: str, *, limit: int = REMEMBERED) -> list[Fire]:
        return self._read(scheduling.fires, name, limit)

    def pause_schedule(self, name: str, *, by: str = "", why: str = "") -> ScheduleInfo:
        return self._write(scheduling.pause, name, by, why)

    def resume_schedule(self, name: str, *, by: str = "", why: str = "") -> ScheduleInfo:
        return self._write(scheduling.resume, name, by, why)

    def run_schedule(self, name: str, *, by: str = "", why: str = "", request_id: str = "") -> str:
        write = self._rewrite if request_id else self._write
        return write(scheduling.run, name, Asked(by, why, request_id), self._enqueuing)

    def remove_schedule(self, name: str, *, by: str = "", why: str = "") -> None:
        self._write(scheduling.remove, name, by, why)

    def fire(self) -> Fired:
        # A look first: a fleet with nothing to do must not queue for a lock to find that out.
        return self._read(scheduling.idle) or self._write(scheduling.fire, self._enqueuing)

    # --- who may, and who did ---

    def add_api_key(self, key: NewApiKey, *, by: str, why: str = "") -> ApiKey:
        return self._write(access.add_api_key, key, by, why)

    def api_keys(self) -> list[ApiKey]:
        return self._read(access.api_keys)

    def revoke_api_key(self, key_id: str, after: timedelta, *, by: str, why: str = "") -> ApiKey:
        return self._write(access.revoke_api_key, key_id, after, by, why)

    def api_keys_used(self, ids: Collection[str]) -> None:
        self._write(access.api_keys_used, ids)

    def audit(
        self, *, target: str = "", who: str = "", verb: str = "", limit: int = 50, cursor: str | None = None
    ) -> AuditPage:
        return self._read(access.audit, target, who, verb, limit, cursor)

    # --- upkeep ---

    def settings(self) -> dict[str, str]:
        return self._ask(upkeep.settings)

    def set_setting(self, name: str, value: str | None, *, by: str = "", why: str = "") -> None:
        self.set_settings({name: value}, by=by, why=why)

    def set_settings(self, changes: Mapping[str, str | None], *, by: str = "", why: str = "") -> None:
        self._rewrite(upkeep.set_settings, changes, by, why)
