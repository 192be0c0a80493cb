"""What an operator can do to one job; the same actions for many are in bulk.py."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID, uuid5

import msgspec
from msgspec import Meta

from windlass.checks import Problems, check_moment, check_priority
from windlass.clock import uuid7
from windlass.config import ring
from windlass.duration import parse_duration
from windlass.errors import ConfirmationNeeded, InvalidValue, JobNotFound, must_be
from windlass.job import HIGHEST_PRIORITY, LATEST, Job, NewJob, TypeInfo, View
from windlass.ops.actions import Action, Need, Option, Verbs
from windlass.payload import pack, seal, validate_for
from windlass.registry import SENT_SHELL, SHELL
from windlass.store.chains import BatchInfo
from windlass.store.engine import Acted
from windlass.store.jobs import Edit
from windlass.store.running import Progress

JobName = Annotated[str, Option("", "ID")]
Tenant = Annotated[str | None, Option("Whose key it is, if several tenants have the same one.", "TENANT")]
Why = Annotated[str, Meta(max_length=1000), Option("Noted in the job's record.", "TEXT")]
Confirm = Annotated[bool, Option("For types that are marked as sensitive: you have looked at the job.")]
Payload = Annotated[Mapping[str, Any] | None, Option("The new payload, whole.", "JSON")]
Priority = Annotated[int, Meta(ge=0, le=HIGHEST_PRIORITY), Option("0 to 10, higher first.", "N")]
Delay = Annotated[
    timedelta | None,
    Option("Let it run after this time from now.", "DURATION", short=("--now", "0s", "Let it run at once.")),
]
RunAt = Annotated[
    datetime | None, Option("Let it run at this time; without a zone it is UTC.", "TIME", flag="--at")
]


class Ties(msgspec.Struct, frozen=True, kw_only=True):
    """What ties a job to others, and how far it has come."""

    progress: Progress | None = None
    batch: str | None = None
    waits_for: tuple[str, ...] = ()


class JobVerbs(Verbs):
    """Look at jobs and change them. Jobs are named by id or key; `tenant` says whose key it is."""

    def show(self, name: str, *, tenant: str | None = None) -> Job:
        """One job with its whole story, by id or by a key of any caller; AmbiguousKey if several have it."""
        job = self.front.get(name, caller=None, tenant=tenant)
        if job is None:
            raise JobNotFound(name)
        return job

    @Action("GET jobs/{id}", need=Need.LOOK, command="show", own_route=True)
    def ties(self, job: Job) -> Ties:
        """What a job has to do with others, and how far it said that it had come."""
        waits = self.store.waits_for(job.id) if job.view(self.store.now()) is View.WAITING else []
        progress, batch = self.store.progress(job.id), self.store.batch_of(job.id)
        return Ties(progress=progress, batch=batch, waits_for=tuple(waits))

    def batch(self, batch_id: str) -> BatchInfo:
        """How far a batch has come."""
        found = self.front.batch(batch_id)
        if found is None:
            raise JobNotFound(batch_id, "batch")
        return found

    @Action(
        "POST jobs/{id}/cancel",
        need=Need.ACT,
        bulk=True,
        danger=True,
        past="cancelled",
        participle="cancelled",
        examples="""
            windlass cancel job1 job2
            windlass cancel --type send_email --older-than 2h --dry-run
            windlass cancel --type send_email --where payload.campaign=7 --yes --why "wrong text"
        """,
    )
    def cancel(self, name: JobName, *, tenant: Tenant = None, why: Why = "") -> Acted:
        """End jobs that wait; those that run are stopped by their workers."""
        job = self.show(name, tenant=tenant)
        return self.store.cancel(job.id, by=self._who, why=why, request_id=self.request_id)

    def _check_payload(
        self,
        name: str,
        *,
        tenant: str | None = None,
        payload: Mapping[str, Any] | None = None,
        **_: object,
    ) -> None:
        if payload is not None:
            self.checked_edit(self.show(name, tenant=tenant), payload)

    @Action(
        "POST jobs/{id}/replay",
        bulk=True,
        check=_check_payload,
        past="sent back to be run",
        examples="""
            windlass replay job1
            windlass replay job1 --payload '{"to": "right@b.c"}'
            windlass replay --type send_email --error ConnectionError --limit 100
            windlass replay --all --rate 50/s --yes
            windlass replay payment:17 --confirm
        """,
    )
    def replay(
        self,
        name: JobName,
        *,
        tenant: Tenant = None,
        payload: Annotated[Payload, Option("Run it with this payload instead; for one ID.", "JSON")] = None,
        confirm: Confirm = False,
        why: Why = "",
    ) -> Acted:
        """Send dead jobs back to be run: same job, history kept, attempts counted anew.

        The payload must fit the type's schema as it is now. For a job that waits for its time there is
        `windlass reschedule --now`.
        """
        job = self.show(name, tenant=tenant)
        self._check_confirmed(job, confirm=confirm)
        edit = self.checked_edit(job, payload)
        acted = self.store.replay(job.id, edit=edit, by=self._who, why=why, request_id=self.request_id)
        self._wake()
        return acted

    @Action(
        "POST jobs/{id}/rerun",
        past="run again as a new job",
        examples="""
            windlass rerun job1
            windlass rerun job1 --why "the report was deleted"
        """,
    )
    def rerun(
        self, name: JobName, *, tenant: Tenant = None, confirm: Confirm = False, why: Why = ""
    ) -> Acted:
        """Run a completed, cancelled or discarded job again, as a new job with an id of its own.

        It has the same payload, priority and tenant, and not the key. For dead jobs there is `windlass
        replay`.
        """
        job = self.show(name, tenant=tenant)
        known = self._check_confirmed(job, confirm=confirm)
        self.checked_edit(job, None)
        asked = bool(self.request_id)
        new_id = str(uuid5(_RERUNS, f"{job.id}:{self.request_id}")) if asked else uuid7()
        new = NewJob(
            id=new_id,
            own_id=asked,
            type=job.type,
            payload=_sealed_again(job, new_id, known),
            schema_version=job.schema_version,
            priority=job.priority,
            max_attempts=job.max_attempts,
            caller=job.caller,
            tenant=job.tenant,
        )
        acted = self.store.rerun(job.id, new, by=self._who, why=why, request_id=self.request_id)
        self._wake()
        return acted

    @Action(
        "POST jobs/{id}/discard",
        bulk=True,
        danger=True,
        past="discarded",
        examples="""
            windlass discard job1
            windlass discard --type send_email --older-than 14d --dry-run
            windlass discard --type send_email --older-than 14d --yes
        """,
    )
    def discard(self, name: JobName, *, tenant: Tenant = None, why: Why = "") -> Acted:
        """Close dead jobs for good. Their records stay until their retention ends."""
        job = self.show(name, tenant=tenant)
        return self.store.discard(job.id, by=self._who, why=why, request_id=self.request_id)

    @Action(
        "POST jobs/{id}/bury",
        bulk=True,
        danger=True,
        past="moved to the dead letters",
        participle="buried",
        examples="""
            windlass bury job1 --why "kills its worker"
            windlass bury --type resize --where payload.image=17 --dry-run
        """,
    )
    def bury(self, name: JobName, *, tenant: Tenant = None, why: Why = "") -> Acted:
        """Move jobs that wait to the dead letters; those that run are stopped first."""
        job = self.show(name, tenant=tenant)
        return self.store.bury(job.id, by=self._who, why=why, request_id=self.request_id)

    def _edited(
        self,
        name: str,
        *,
        tenant: str | None = None,
        priority: int | None = None,
        run_at: datetime | None = None,
        delay: timedelta | None = None,
        payload: Mapping[str, Any] | None = None,
        **_: object,
    ) -> tuple[str, Edit]:
        """The job's id, and the change as it is stored; InvalidValue or InvalidValues."""
        job = self.show(name, tenant=tenant)
        problems, change = Problems(), None
        with problems:
            if run_at is not None and delay is not None:
                raise must_be("run_at", run_at, "left out when delay is given")
            if delay is not None:
                run_at = self.store.now() + parse_duration(delay, "delay", LATEST)
            run_at = None if run_at is None else check_moment("run_at", run_at)
        with problems:
            if priority is not None:
                check_priority(priority)
        with problems:
            change = None if payload is None else self.checked_edit(job, payload)
        problems.check()
        return job.id, msgspec.structs.replace(change or Edit(), priority=priority, run_at=run_at)

    @Action(
        "PATCH jobs/{id}",
        need=Need.ACT,
        past="changed",
        check=_edited,
        examples="""
            windlass edit job1 --payload '{"to": "right@b.c"}'
            windlass edit job1 --payload '{"to": "right@b.c"}' --why "the old release has no cc"
            windlass edit job1 --priority 9 --at 2030-01-31T09:00:00Z
        """,
    )
    def edit(
        self,
        name: JobName,
        *,
        tenant: Tenant = None,
        priority: Priority | None = None,
        run_at: RunAt = None,
        delay: Delay = None,
        payload: Payload = None,
        why: Why = "",
    ) -> Acted:
        """Change a waiting job: its payload, priority or time. For dead jobs there is `windlass dlq edit`.

        The new payload must fit the type's schema. The old one stays in the job's record.
        """
        if priority is None and run_at is None and delay is None and payload is None:
            raise must_be("change", "nothing", "one or more of priority, run_at, delay and payload")
        job_id, change = self._edited(
            name, tenant=tenant, priority=priority, run_at=run_at, delay=delay, payload=payload
        )
        # What an edit changed, for the record; the payload before it is kept there anyway.
        changed = [] if priority is None else [f"priority {priority}"]
        changed += [] if change.run_at is None else [f"run at {change.run_at:%Y-%m-%d %H:%M:%S} UTC"]
        why = why or ", ".join(changed)
        acted = self.store.edit(job_id, change, by=self._who, why=why, request_id=self.request_id)
        self._wake()
        return acted

    @Action(
        "PATCH jobs/{id}",
        need=Need.ACT,
        bulk=True,
        past="set to priority {priority}",
        participle="given another priority",
        examples="""
            windlass priority job1 9
            windlass priority --type send_email 9 --dry-run
        """,
    )
    def priority(self, name: JobName, priority: Priority, *, tenant: Tenant = None, why: Why = "") -> Acted:
        """Set the priority of waiting jobs: 0 to 10, higher first."""
        return self.edit(name, tenant=tenant, priority=priority, why=why)

    @Action(
        "PATCH jobs/{id}",
        need=Need.ACT,
        bulk=True,
        past="rescheduled",
        examples="""
            windlass reschedule job1 --now
            windlass reschedule job1 --delay 10m
            windlass reschedule job1 --at 2030-01-31T09:00:00Z
            windlass reschedule --type send_email --delay 1h --yes
        """,
    )
    def reschedule(
        self,
        name: JobName,
        *,
        tenant: Tenant = None,
        delay: Delay = None,
        run_at: RunAt = None,
        why: Why = "",
    ) -> Acted:
        """Change when waiting jobs run."""
        check_reschedule(delay, run_at)
        return self.edit(name, tenant=tenant, delay=delay, run_at=run_at, why=why)

    def check_payload(self, job_type: str, payload: Mapping[str, Any]) -> None:
        """Refuse a payload that does not fit the type's schema as it is now."""
        self._fits(job_type, pack(payload, job_type))

    def _check_confirmed(self, job: Job, *, confirm: bool) -> TypeInfo | None:
        """The job's type; ConfirmationNeeded if that is marked as sensitive and nobody has confirmed."""
        known = self.store.types().get(job.type)
        if known is not None and known.options.get("sensitive") and not confirm:
            raise ConfirmationNeeded(job.id, job.type)
        return known

    def checked_edit(self, job: Job, payload: Mapping[str, Any] | None) -> Edit | None:
        """The change of a payload; InvalidPayload if it, or the one of the job, does not fit the schema."""
        known = self.store.types().get(job.type)
        if payload is None:
            # One that can be upgraded is brought up to date by its worker, and judged there.
            if known is None or job.schema_version not in known.options.get("upgrades", ()):
                self._fits(job.type, bytes(job.payload))
            return None
        packed = pack(seal.restored(payload, msgspec.json.decode(job.payload)), job.type)
        known = self._fits(job.type, packed)
        if self.sent and job.type == SHELL:
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


def check_reschedule(delay: timedelta | None, run_at: datetime | None) -> None:
    """Refuse a new time that is given twice or not at all, or that no job can have."""
    if (delay is None) == (run_at is None):
        words = "use exactly one of --now, --delay and --at"
        raise InvalidValue(words, field="delay", value=None, allowed="given, or else run_at")
    if delay is not None:
        parse_duration(delay, "delay", LATEST)
    if run_at is not None:
        check_moment("run_at", run_at)


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
