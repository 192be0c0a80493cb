"""What can an operator see and do? Each verb once: it returns values and prints nothing."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid5

import msgspec

from windlass import settings
from windlass.checks import check_moment
from windlass.clock import Clock, SystemClock, uuid7
from windlass.config import ring
from windlass.errors import ConfirmationNeeded, JobNotFound, WorkerNotFound, must_be
from windlass.job import HIGHEST_PRIORITY, Job, NewJob, TypeInfo, View
from windlass.observe.names import PRUNED
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
from windlass.ops.words import span
from windlass.pace import Pace
from windlass.payload import pack, seal, validate_for
from windlass.registry import SENT_SHELL, SHELL
from windlass.store.chains import BatchInfo
from windlass.store.engine import Acted
from windlass.store.fleet import WorkerInfo
from windlass.store.jobs import Counts, Edit, Filter
from windlass.store.running import Progress
from windlass.store.store import Store
from windlass.store.upkeep import Retention, StoreStatus
from windlass.upkeep import ticks
from windlass.wakeup.protocol import Wakeup


class Ties(msgspec.Struct, frozen=True, kw_only=True):
    """What ties a job to others, and how far it has come."""

    progress: Progress | None = None
    batch: str | None = None
    waits_for: tuple[str, ...] = ()


class Ops(OncallVerbs, FlowVerbs, ObservingVerbs, AccessVerbs):
    """Every operator verb. `by` names who acts in the records; without one it is the operating system's user.

    Jobs are named by id or key; `tenant` says whose key it is, where several tenants have the same one. Verbs
    that change a job raise JobNotFound, AmbiguousKey and WrongState.
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
        sent: bool = False,
    ) -> None:
        """`request_id` names what is asked for, if it may be asked twice: to one job it is done once.

        `sent`: the request came over HTTP; commands of shell jobs in it run under --shell alone.
        """
        self.store = store
        self._counts = counts or store.counts
        self._wakeup = wakeup
        self._by = by
        self._request_id = request_id
        self._sent = sent
        self._clock = clock or SystemClock()
        self.schedules = Schedules(
            store, wakeup=wakeup, who=self._who, fleet=self.workers, request_id=request_id, sent=sent
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

    def show(self, name: str, *, tenant: str | None = None) -> Job:
        """One job with its whole story, by id or by a key of any caller; AmbiguousKey if several have it."""
        job = self.store.get(name, caller=None, tenant=tenant)
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

    def cancel(self, name: str, *, tenant: str | None = None, by: str | None = None, why: str = "") -> Acted:
        """End a waiting job as cancelled; a running one is stopped by its worker."""
        job_id = self.show(name, tenant=tenant).id
        return self.store.cancel(job_id, by=self._who(by), why=why, request_id=self._request_id)

    def bury(self, name: str, *, tenant: str | None = None, by: str | None = None, why: str = "") -> Acted:
        """Move a waiting job to the dead letters; a running one is stopped by its worker first."""
        job_id = self.show(name, tenant=tenant).id
        return self.store.bury(job_id, by=self._who(by), why=why, request_id=self._request_id)

    def discard(self, name: str, *, tenant: str | None = None, by: str | None = None, why: str = "") -> Acted:
        """Close a dead job for good; its record stays until its retention ends."""
        job_id = self.show(name, tenant=tenant).id
        return self.store.discard(job_id, by=self._who(by), why=why, request_id=self._request_id)

    def replay(
        self,
        name: str,
        *,
        tenant: str | None = None,
        payload: Mapping[str, Any] | None = None,
        confirm: bool = False,
        by: str | None = None,
        why: str = "",
    ) -> Acted:
        """Make a dead job pending again, with another payload if one is given; a scheduled one is made due.

        The payload, old or new, must fit the type's schema as it is now. Types that are marked as sensitive
        ask whoever replays their jobs to `confirm` it: ConfirmationNeeded.
        """
        job = self.show(name, tenant=tenant)
        known = self.store.types().get(job.type)
        if known is not None and known.options.get("sensitive") and not confirm:
            raise ConfirmationNeeded(job.id, job.type)
        edit = self._checked(job, payload)
        acted = self.store.replay(job.id, edit=edit, by=self._who(by), why=why, request_id=self._request_id)
        self._wake()
        return acted

    def rerun(
        self,
        name: str,
        *,
        tenant: str | None = None,
        confirm: bool = False,
        by: str | None = None,
        why: str = "",
    ) -> Acted:
        """Run a completed, cancelled or discarded job once more, as a new job; answers the new one's id.

        It has the old one's payload, priority, attempts and tenant, but not its key or unique name. The
        payload must fit the type's schema as it is now; sensitive types ask for `confirm`.
        """
        job = self.show(name, tenant=tenant)
        known = self.store.types().get(job.type)
        if known is not None and known.options.get("sensitive") and not confirm:
            raise ConfirmationNeeded(job.id, job.type)
        self._checked(job, None)
        own = f"{job.id}:{self._request_id}" if self._request_id else ""
        new_id = str(uuid5(_RERUNS, own)) if own else uuid7()
        new = NewJob(
            id=new_id,
            own_id=bool(own),
            type=job.type,
            payload=_sealed_again(job, new_id, known),
            schema_version=job.schema_version,
            priority=job.priority,
            max_attempts=job.max_attempts,
            caller=job.caller,
            tenant=job.tenant,
        )
        before = self.store.get(new_id, caller=None) if own else None
        if before is not None:
            # The same request, sent again.
            return Acted(before.id, before.state)
        acted = self.store.rerun(job.id, new, by=self._who(by), why=why, request_id=self._request_id)
        self._wake()
        return acted

    def edit(
        self,
        name: str,
        *,
        tenant: str | None = None,
        priority: int | None = None,
        run_at: datetime | None = None,
        payload: Mapping[str, Any] | None = None,
        by: str | None = None,
        why: str = "",
    ) -> Acted:
        """Change a waiting job's priority, time or payload."""
        if priority is not None and not 0 <= priority <= HIGHEST_PRIORITY:
            raise must_be("priority", priority, f"between 0 and {HIGHEST_PRIORITY}")
        run_at = None if run_at is None else check_moment("run_at", run_at)
        job = self.show(name, tenant=tenant)
        change = (self._checked(job, payload) if payload is not None else None) or Edit()
        change = msgspec.structs.replace(change, priority=priority, run_at=run_at)
        why = why or _described(priority, run_at)
        acted = self.store.edit(job.id, change, by=self._who(by), why=why, request_id=self._request_id)
        self._wake()
        return acted

    def check_payload(self, job_type: str, payload: Mapping[str, Any]) -> None:
        """Refuse a payload that does not fit the type's schema as it is now."""
        self._fits(job_type, pack(payload, job_type))

    def run_now(self, name: str, *, tenant: str | None = None, by: str | None = None, why: str = "") -> Acted:
        """Let a job that waits for its time be due at once."""
        return self.edit(name, tenant=tenant, run_at=self.store.now(), by=by, why=why)

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
            raise must_be("limit", limit, "at least 1")
        where = narrowed(verb, where)
        if dry_run:
            matched, all_of_them = self._matching(where, limit or MOST_COUNTED)
            # Whoever wants so many gets so many, however many more there are.
            more = not all_of_them and matched != limit
            return Bulk(verb=verb, dry_run=True, matched=matched, at_least=more)
        act = self._act(verb, confirm=confirm)
        pace = rate if isinstance(rate, Pace) else Pace(rate, clock=self._clock)
        ids = matching(self.store, where, limit)
        reached = act_on_all(lambda job_id: act(job_id, why=why), ids, pace, progress)
        return Bulk(
            verb=verb,
            dry_run=False,
            matched=reached.matched,
            done=reached.done,
            asked=reached.asked,
            moved_on=reached.moved_on,
            refused=len(reached.refusals),
            refusals=tuple(reached.refusals[:_QUOTED]),
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
        """Ask a worker to finish what runs and exit; answers its id, which may be given cut short.

        Of a dead worker it says that nobody misses it: its alert is over.
        """
        named = [each for each in self.workers() if each.info.id.startswith(worker)]
        running = [each.info.id for each in named if each.alive]
        found = running or [each.info.id for each in named if each.info.state == "dead"]
        if worker in found:
            found = [worker]
        if len(found) != 1:
            raise WorkerNotFound(worker)
        self.store.drain(found[0], by=self._who(by), why=why)
        return found[0]

    def stop_local(self, *, within: timedelta = timedelta(seconds=45)) -> Stop:
        """Stop this store's workers on this machine, each as gently as a shutdown is, and wait for them."""
        found = local_workers(self.workers())
        for worker in found:
            self.store.note_action("stop", "worker", worker.id, by=self._who(None))
        return stop(found, within=within, clock=self._clock)

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
        total, who = 0, self._who(None)
        while pruned := self.store.prune(keep, by=who):
            total += pruned
            progress(total)
        self.store.note_ticks({ticks.PRUNE: timedelta(0)}, who)
        kept = {"ended": span(keep.ended), "dead": span(keep.dead)}
        self.store.note_action("prune", "store", "records", by=who, after={"jobs": total, "kept": kept})
        if total:
            self.store.add_history({("", PRUNED): total})
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
        known = self._fits(job.type, packed)
        if self._sent and job.type == SHELL:
            return Edit(payload=packed, schema_version=SENT_SHELL)
        if known is None:
            return Edit(payload=packed)
        secret = known.options.get("encrypt", ())
        sealed = ring().seal(packed, secret, job.id) if secret else packed
        return Edit(payload=sealed, schema_version=known.schema_version)

    def _fits(self, job_type: str, packed: bytes) -> TypeInfo | None:
        """The type as a live release knows it that takes the payload; one that nobody registered has none."""
        known = self.store.types().get(job_type)
        return None if known is None else validate_for(known, packed)


def _sealed_again(job: Job, new_id: str, known: TypeInfo | None) -> bytes:
    """A job's payload for another job: what is encrypted belongs to one job alone."""
    if not seal.has_seal(job.payload):
        return bytes(job.payload)
    stored = msgspec.json.decode(job.payload)
    sealed = {name for name, value in stored.items() if seal.is_sealed(value)}
    sealed |= set(() if known is None else known.options.get("encrypt", ()))
    keys = ring()
    return keys.seal(msgspec.json.encode(keys.open(stored, job.id)), sorted(sealed), new_id)


# Where the ids of new runs come from that a request asked for.
_RERUNS = UUID("1b0b3a52-5c0e-4b6f-9a57-6f1f0c6b7a11")


def _described(priority: int | None, run_at: datetime | None) -> str:
    """What an edit changed, for the record; the payload before it is kept there anyway."""
    told = [] if priority is None else [f"priority {priority}"]
    return ", ".join(told if run_at is None else [*told, f"run at {run_at:%Y-%m-%d %H:%M:%S} UTC"])


def _system_user() -> str:
    """Who runs this process, as the system knows it: variables such as LOGNAME say what anybody wants."""
    if not hasattr(os, "getuid"):
        return getpass.getuser()
    import pwd  # noqa: PLC0415 - not there on Windows

    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's user need not have a name
        name = "unknown"
    return f"{name} (uid {uid})"


MOST_COUNTED = 1_000_000
_QUOTED = 5
