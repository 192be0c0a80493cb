"""Leave jobs whose payload only another release of the application can read to its workers."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Collection, Sequence
from datetime import timedelta

import msgspec

from windlass.config import ring
from windlass.errors import InvalidPayload, KeyMissing
from windlass.job import Job, Reason, Shape
from windlass.outcome import Dead, Left, clean
from windlass.payload import problem_of, seal
from windlass.store.engine import Settlement
from windlass.worker.run import Env

log = logging.getLogger("windlass.worker")

_LONGEST = 200
# One log line per type and minute, however many jobs are left.
_LOGGED_EVERY = 60.0


class OtherReleases:
    """Jobs that another release made, and that only its workers can read, are left to them."""

    def __init__(self, env: Env) -> None:
        self._store = env.store
        self._handlers = env.handlers
        self._clock = env.clock
        # What tells apart workers that can read different payloads.
        read = [(name, each.version, each.signature.schema) for name, each in sorted(env.handlers.items())]
        self.reader = hashlib.blake2b(msgspec.json.encode(read), digest_size=8).hexdigest()
        # By type: when the log last named it, and the jobs since then with the last one's problem.
        self._logged_at: dict[str, float] = {}
        self._unlogged: dict[str, tuple[int, str]] = {}
        self._lock = threading.Lock()

    def reconsider(self, settlements: Sequence[Settlement]) -> Sequence[Settlement]:
        """The same, but what was refused for its payload and fits another release goes back unharmed."""
        # Read now, not remembered: a job must not die because its release is news to this worker.
        types = {each.lease.job.type for each in settlements if _refused(each)}
        shapes = {name: self._store.shapes(name) for name in types}
        return [
            self._reconsidered(each, shapes[each.lease.job.type]) if _refused(each) else each
            for each in settlements
        ]

    def _reconsidered(self, settlement: Settlement, shapes: Sequence[Shape]) -> Settlement:
        job = settlement.lease.job
        handler = self._handlers[job.type]
        if job.schema_version != handler.version:
            # It was upgraded here: what came out of that is this release's own doing.
            return settlement
        try:
            # In the clear: the problem may be in an encrypted field.
            payload = bytes(handler.current(job, ring))
        except (InvalidPayload, KeyMissing):
            return settlement
        problem = problem_of(handler.signature.schema, payload, job.type)
        if problem is None:
            return settlement
        fits = (
            shape.schema_version == job.schema_version and problem_of(shape.schema, payload, job.type) is None
            for shape in shapes
        )
        if not any(fits):
            return settlement
        # Another release may have encrypted what is no secret here.
        secret = {*handler.signature.secret, *_sealed(job)}
        shown = clean(problem.hiding(secret), _LONGEST)
        field = clean(_field(problem.path, secret), _LONGEST)
        outcome = Left(self._ends_in(job), reader=self.reader, field=field, problem=shown)
        return msgspec.structs.replace(settlement, outcome=outcome)

    def note(self, jobs: Sequence[tuple[str, str]]) -> None:
        """Jobs were left, each by its type and problem: count them for the log."""
        with self._lock:
            for job_type, problem in jobs:
                number, _ = self._unlogged.get(job_type, (0, ""))
                self._unlogged[job_type] = (number + 1, problem)
        self.log()

    def log(self, *, last: bool = False) -> None:
        """Log how many jobs were left, at most once a minute for each type; `last`: the worker stops."""
        now = self._clock.monotonic()
        with self._lock:
            due = {
                name: self._unlogged.pop(name)
                for name in sorted(self._unlogged)
                if last or now - self._logged_at.get(name, -_LOGGED_EVERY) >= _LOGGED_EVERY
            }
            self._logged_at |= dict.fromkeys(due, now)
        for name, (number, problem) in due.items():
            extra = {"type": name, "jobs": number, "problem": problem, "reader": self.reader}
            log.info("job.left", extra=extra)

    def _ends_in(self, job: Job) -> timedelta | None:
        """When its age ends it: it is then offered to everybody, and the first who takes it says so."""
        max_age = self._handlers[job.type].policy.max_age
        if max_age is None:
            return None
        now = job.started_at or job.updated_at
        # A little later, so that the worker that takes it then finds that its time is over.
        return max(job.enqueued_at + max_age - now, timedelta(0)) + timedelta(seconds=1)


def _sealed(job: Job) -> set[str]:
    if not seal.has_seal(job.payload):
        return set()
    stored: dict[str, object] = msgspec.json.decode(job.payload)
    return {name for name, value in stored.items() if seal.is_sealed(value)}


def _field(path: str, secret: Collection[str]) -> str:
    """The field that a problem is about. All items of a list are one field, and a secret one has no parts."""
    name = re.split(r"[.\[]", path.removeprefix("payload."), maxsplit=1)[0]
    return f"payload.{name}" if name in secret else re.sub(r"\[\d+\]", "[]", path)


def _refused(settlement: Settlement) -> bool:
    outcome = settlement.outcome
    return isinstance(outcome, Dead) and outcome.error.reason is Reason.INVALID_PAYLOAD
