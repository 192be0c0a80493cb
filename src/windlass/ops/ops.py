"""What can an operator see and do? Each verb once: it returns values and prints nothing."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from windlass import settings
from windlass.clock import Clock, SystemClock
from windlass.config import ring
from windlass.errors import ConfirmationNeeded, InvalidValue, JobNotFound, WorkerNotFound
from windlass.job import HIGHEST_PRIORITY, Job, TypeInfo, View
from windlass.ops.access import AccessVerbs
from windlass.ops.bulk import Bulk, Verb, act_on_all, matching, narrowed
from windlass.ops.evidence import judged
from windlass.ops.flow import FlowVerbs
from windlass.ops.local import Stop, local_workers, stop, with_the_gone_dead
from windlass.ops.observing import ObservingVerbs
from windlass.ops.oncall import OncallVerbs
from windlass.ops.overview import Overview, TypeStatus, WorkerHealth, health_of, overview
from windlass.ops.schedules import Schedules, schedule_findings, with_schedules
from windlass.ops.search import WITHIN, count_within
from windlass.ops.signals import Signals, gather
from windlass.pace import Pace
from windlass.payload import pack, seal, validate
from windlass.store.batches import BatchInfo
from windlass.store.fleet import WorkerInfo
from windlass.store.handling import Progress
from windlass.store.keeping import Retention, StoreStatus
from windlass.store.protocol import Acted, Counts, Edit, Filter, Store
from windlass.upkeep import ticks
from windlass.wakeup.protocol import Wakeup


class Ties(msgspec.Struct, frozen=True, kw_only=True):
    """What ties a job to others, and how far it has come."""

    progress: Progress | None = None
    batch: str | None = None
    waits_for: tuple[str, ...] = ()


class Ops(OncallVerbs, FlowVerbs, ObservingVerbs, AccessVerbs):
    """Every operator verb. `by` names who acts in the records; without one it is the operating system's user.

    Jobs are named by id or key. Verbs that change one raise JobNotFound and WrongState.
    """

    def __init__(
        self,
        store: Store,
        *,
        wakeup: Wakeup | None = None,
        by: str | None = None,
        clock: Clock | None = None,
        counts: Callable[[], Counts] | None = None,
        request_id: str = "",
    ) -> None:
        """`request_id` names what is asked for, if it may be asked twice: to one job it is done once."""
        self.store = store
        self._counts = counts or store.counts
        self._wakeup = wakeup
        self._by = by
        self._request_id = request_id
        self._clock = clock or SystemClock()
        self.schedules = Schedules(
            store, wakeup=wakeup, who=self._who, fleet=self.workers, request_id=request_id
        )

    # --- looking --------------------------------------------------------------------------------

    def status(self) -> Overview:
        """One look at jobs, types and workers, with what is wrong in words."""
        seen, fleet = self._seen()
        signalled = gather(self.store, seen, fleet, anew=False).findings
        schedules = self.schedules.list()
        told = judged(seen, self.store, (*signalled, *schedule_findings(seen, schedules)))
        return with_schedules(told, schedules)

    def signals(self) -> Signals:
        """What a depth does not tell: starved, untaken, done twice, completed without effect, stopped."""
        seen, fleet = self._seen()
        return gather(self.store, seen, fleet)

    def show(self, name: str) -> Job:
        """One job with its whole story."""
        job = self.store.get(name)
        if job is None:
            raise JobNotFound(name)
        return job

    def ties(self, job: Job) -> Ties:
        """What a job has to do with others, and how far it said that it had come."""
        waits = self.store.waits_for(job.id) if job.view(self.now()) is View.WAITING else []
        return Ties(
            progress=self.store.progress(job.id),
            batch=self.store.batch_of(job.id),
            waits_for=tuple(waits),
        )

    def batch(self, batch_id: str) -> BatchInfo:
        """How far a batch has come."""
        found = self.store.batch(batch_id)
        if found is None:
            raise JobNotFound(batch_id, "batch")
        return found

    def now(self) -> datetime:
        """The store's time, which ages are counted from."""
        return self.store.now()

    def types(self) -> list[TypeStatus]:
        """Every type that is registered or has jobs."""
        return self.status().types

    def workers(self) -> list[WorkerHealth]:
        """Every worker that has a row, newest first."""
        now = self.store.now()
        return [health_of(worker, now) for worker in self._fleet()]

    # --- one job --------------------------------------------------------------------------------

    def cancel(self, name: str, *, by: str | None = None, why: str = "") -> Acted:
        """End a waiting job as cancelled; a running one is stopped by its worker."""
        return self.store.cancel(self._id(name), by=self._who(by), why=why, request_id=self._request_id)

    def bury(self, name: str, *, by: str | None = None, why: str = "") -> Acted:
        """Move a waiting job to the dead letters; a running one is stopped by its worker first."""
        return self.store.bury(self._id(name), by=self._who(by), why=why, request_id=self._request_id)

    def discard(self, name: str, *, by: str | None = None, why: str = "") -> Acted:
        """Close a dead job for good; its record stays until its retention ends."""
        return self.store.discard(self._id(name), by=self._who(by), why=why, request_id=self._request_id)

    def replay(
        self,
        name: str,
        *,
        payload: Mapping[str, Any] | None = None,
        confirm: bool = False,
        by: str | None = None,
        why: str = "",
    ) -> Acted:
        """Make a dead job pending again, with another payload if one is given; a scheduled one is made due.

        The payload, old or new, must fit the type's schema as it is now. Types that are marked as sensitive
        ask whoever replays their jobs to `confirm` it: ConfirmationNeeded.
        """
        job = self.show(name)
        known = self.store.types().get(job.type)
        if known is not None and known.options.get("sensitive") and not confirm:
            raise ConfirmationNeeded(job.id, job.type)
        edit = self._checked(job, payload)
        acted = self.store.replay(job.id, edit=edit, by=self._who(by), why=why, request_id=self._request_id)
        self._wake()
        return acted

    def edit(
        self,
        name: str,
        *,
        priority: int | None = None,
        run_at: datetime | None = None,
        payload: Mapping[str, Any] | None = None,
        by: str | None = None,
        why: str = "",
    ) -> Acted:
        """Change a waiting job's priority, time or payload."""
        if priority is not None and not 0 <= priority <= HIGHEST_PRIORITY:
            raise InvalidValue("priority", priority, f"between 0 and {HIGHEST_PRIORITY}")
        run_at = _in_calendar(run_at)
        job = self.show(name)
        change = (self._checked(job, payload) if payload is not None else None) or Edit()
        change = msgspec.structs.replace(change, priority=priority, run_at=run_at)
        why = why or _described(priority, run_at)
        acted = self.store.edit(job.id, change, by=self._who(by), why=why, request_id=self._request_id)
        self._wake()
        return acted

    def check_payload(self, job_type: str, payload: Mapping[str, Any]) -> None:
        """Refuse a payload that does not fit the type's schema as it is now."""
        self._fits(job_type, pack(payload, job_type))

    def run_now(self, name: str, *, by: str | None = None, why: str = "") -> Acted:
        """Let a job that waits for its time be due at once."""
        return self.edit(name, run_at=self.store.now(), by=by, why=why)

    # --- many jobs ------------------------------------------------------------------------------

    def bulk(
        self,
        verb: Verb,
        where: Filter,
        *,
        limit: int | None = None,
        dry_run: bool = False,
        rate: float | Pace | None = None,
        progress: Callable[[int], None] = lambda _: None,
        confirm: bool = False,
        why: str = "",
    ) -> Bulk:
        """Do a verb to every job that matches, to the oldest `limit` of them, at most `rate` per second.

        A dry run only counts, for as long as one waits at a screen. `progress` is told how many are through.
        `confirm` is for a replay. A Pace that is stopped ends it early.
        """
        if limit is not None and limit < 1:
            raise InvalidValue("limit", limit, "at least 1")
        where = narrowed(verb, where)
        if dry_run:
            matched, all_of_them = self._matching(where, limit or MOST_COUNTED)
            # Whoever wants so many gets so many, however many more there are.
            more = not all_of_them and matched != limit
            return Bulk(verb=verb, dry_run=True, matched=matched, at_least=more)
        act = self._act(verb, confirm=confirm)
        pace = rate if isinstance(rate, Pace) else Pace(rate, clock=self._clock)
        ids = matching(self.store, where, limit)
        done, asked, refusals = act_on_all(lambda job_id: act(job_id, why=why), ids, pace, progress)
        return Bulk(
            verb=verb,
            dry_run=False,
            matched=done + asked + len(refusals),
            done=done,
            asked=asked,
            refused=len(refusals),
            refusals=tuple(refusals[:_QUOTED]),
        )

    def _matching(self, where: Filter, limit: int) -> tuple[int, bool]:
        return count_within(self.store, where, limit=limit, within=WITHIN, clock=self._clock)

    def _act(self, verb: Verb, *, confirm: bool) -> Callable[..., Acted]:
        act: dict[Verb, Callable[..., Acted]] = {
            Verb.CANCEL: self.cancel,
            Verb.REPLAY: partial(self.replay, confirm=confirm),
            Verb.DISCARD: self.discard,
            Verb.BURY: self.bury,
        }
        return act[verb]

    # --- workers --------------------------------------------------------------------------------

    def drain(self, worker: str, *, by: str | None = None, why: str = "") -> str:
        """Ask a worker to finish what runs and exit; answers its id, which may be given cut short."""
        running = [each.info.id for each in self.workers() if each.alive and each.info.id.startswith(worker)]
        if worker in running:
            running = [worker]
        if len(running) != 1:
            raise WorkerNotFound(worker)
        self.store.drain(running[0], by=self._who(by), why=why)
        return running[0]

    def stop_local(self, *, within: timedelta = timedelta(seconds=45)) -> Stop:
        """Stop this store's workers on this machine, each as gently as a shutdown is, and wait for them."""
        return stop(local_workers(self.workers()), within=within, clock=self._clock)

    # --- the store ------------------------------------------------------------------------------

    def retention(self) -> Retention:
        """How long records are kept, as set at run time."""
        chosen = settings.read(self.store.settings())
        return Retention(ended=chosen.keep_ended, dead=chosen.keep_dead)

    def prune(
        self,
        *,
        ended: timedelta | None = None,
        dead: timedelta | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Delete every record past its retention, in small batches; answers how many."""
        standing = self.retention()
        keep = Retention(
            ended=standing.ended if ended is None else ended, dead=standing.dead if dead is None else dead
        )
        total = 0
        while pruned := self.store.prune(keep):
            total += pruned
            progress(total)
        self.store.note_ticks({ticks.PRUNE: timedelta(0)}, self._who(None))
        return total

    def db_status(self) -> StoreStatus:
        """Size, versions and warnings of the store."""
        return self.store.status()

    def backup(self, path: str) -> None:
        """Write a consistent copy of the store while others go on working."""
        self.store.backup(path)

    def check(self) -> list[str]:
        """What is wrong with the stored data; empty is the good answer."""
        return self.store.check()

    # --- shared ---------------------------------------------------------------------------------

    def _seen(self) -> tuple[Overview, list[WorkerHealth]]:
        held, fleet = settings.read(self.store.settings()), self._fleet()
        seen = overview(self._counts(), self.store.types(), fleet, held, self.store.switches())
        return seen, [health_of(worker, seen.now) for worker in fleet]

    def _fleet(self) -> list[WorkerInfo]:
        """The workers' rows; one whose process is gone from this machine is dead, though no row says so."""
        return with_the_gone_dead(self.store.workers())

    def _id(self, name: str) -> str:
        return self.show(name).id

    def _who(self, by: str | None) -> str:
        return by or self._by or _system_user()

    def _wake(self) -> None:
        if self._wakeup is not None:
            self._wakeup.notify()

    def _checked(self, job: Job, payload: Mapping[str, Any] | None) -> Edit | None:
        known = self.store.types().get(job.type)
        if payload is None:
            # One that can be upgraded is brought up to date by its worker, and judged there.
            if known is None or job.schema_version not in known.options.get("upgrades", ()):
                self._fits(job.type, bytes(job.payload))
            return None
        packed = pack(seal.restored(payload, msgspec.json.decode(job.payload)), job.type)
        self._fits(job.type, packed)
        if known is None:
            return Edit(payload=packed)
        secret = known.options.get("encrypt", ())
        sealed = ring().seal(packed, secret, job.id) if secret else packed
        return Edit(payload=sealed, schema_version=known.schema_version)

    def _fits(self, job_type: str, packed: bytes) -> TypeInfo | None:
        """The payload against the schema of today; a type that nobody registered has none."""
        known = self.store.types().get(job_type)
        if known is not None:
            validate(known.schema, packed, job_type)
        return known


def _in_calendar(moment: datetime | None) -> datetime | None:
    """A moment in UTC; one without a zone is taken as UTC."""
    if moment is None:
        return None
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise InvalidValue("run_at", moment, "between the years 1 and 9999 in UTC") from None


def _described(priority: int | None, run_at: datetime | None) -> str:
    """What an edit changed, for the record; the payload before it is kept there anyway."""
    told = [] if priority is None else [f"priority {priority}"]
    return ", ".join(told if run_at is None else [*told, f"run at {run_at:%Y-%m-%d %H:%M:%S} UTC"])


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        return "unknown"


MOST_COUNTED = 1_000_000
_QUOTED = 5
