"""Does every type still work, after a deployment? One sample job each, run by whatever workers there are."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from windlass.clock import SystemClock
from windlass.config import ring
from windlass.errors import WaitTimeout, WindlassError
from windlass.job import Job, JobState
from windlass.ops.remote import verbs_on
from windlass.queue import JobHandle, Queue
from windlass.registry import Handler
from windlass.worker.verifier import ask

_WHY = "smoke test"
_BETWEEN_CHECKS = 0.25


class Smoked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one type's sample job."""

    type: str
    # One of: verified, completed (nobody can say more), mismatched, unsure, failed, late, refused, no_sample.
    outcome: str
    ok: bool
    seconds: float | None = None
    job: str | None = None
    # Who ran it, and which release of the application.
    worker: str | None = None
    app: str | None = None
    detail: str = ""


def smoke(queue: Queue, types: Sequence[str], *, within: timedelta) -> list[Smoked]:
    """Run the sample job of each type; all of them within that time. Whatever fails is tidied up."""
    until = _CLOCK.monotonic() + within.total_seconds()
    known = queue.front.types()
    begun = {name: _begin(queue, name, _sample(queue, name, known)) for name in types}
    return [
        handle if isinstance(handle, Smoked) else _follow(queue, name, handle, until)
        for name, handle in begun.items()
    ]


def with_samples(queue: Queue) -> list[str]:
    """The types that have a sample, in the code or, as told by workers, in the store."""
    known = queue.front.types()
    names = sorted({*known, *queue.registry.names()})
    return [name for name in names if _sample(queue, name, known) is not None]


def _sample(queue: Queue, name: str, known: Mapping[str, Any]) -> Mapping[str, Any] | None:
    handler = queue.registry.get(name)
    if handler is not None and handler.smoke is not None:
        return handler.smoke
    sample: Mapping[str, Any] | None = known[name].options.get("smoke") if name in known else None
    return sample


def _begin(queue: Queue, name: str, sample: Mapping[str, Any] | None) -> JobHandle | Smoked:
    if sample is None:
        return Smoked(type=name, outcome="no_sample", ok=False, detail="@queue.job(smoke={...}) gives one")
    try:
        # A retry that helps would hide what was wrong.
        return queue.enqueue(name, sample, max_attempts=1)
    except WindlassError as error:
        return Smoked(type=name, outcome="refused", ok=False, detail=str(error))


def _follow(queue: Queue, name: str, handle: JobHandle, until: float) -> Smoked:
    try:
        job = handle.wait(max(0.0, until - _CLOCK.monotonic()))
    except WaitTimeout:
        return _late(queue, name, handle)
    attempt = job.history[-1] if job.history else None
    facts: dict[str, Any] = {
        "type": name,
        "job": job.id,
        "seconds": job.finished_at and (job.finished_at - job.enqueued_at).total_seconds(),
        "worker": attempt.worker if attempt else None,
        "app": (attempt.app or None) if attempt else None,
    }
    if job.state is not JobState.COMPLETED:
        detail = f"{job.state}: {job.error.message}" if job.error else job.state.value
        if job.state is JobState.DEAD:
            verbs_on(queue.front).discard(job.id, why=_WHY)
        return Smoked(outcome="failed", ok=False, detail=detail, **facts)
    handler = queue.registry.get(name)
    if handler is None or handler.verify is None:
        return Smoked(outcome="completed", ok=True, **facts)
    return _verified(handler, job, until, facts)


def _verified(handler: Handler, job: Job, until: float, facts: dict[str, Any]) -> Smoked:
    """Ask the type's own check, again and again: what a job does may take a moment to be seen."""
    pause = threading.Event()
    while True:
        try:
            if ask(handler, job, ring, asyncio.run):
                return Smoked(outcome="verified", ok=True, **facts)
        except Exception as error:  # noqa: BLE001 # wall: the application's own code, which may raise anything
            detail = f"its check raised {type(error).__name__}: {error}"
            return Smoked(outcome="unsure", ok=False, detail=detail, **facts)
        if _CLOCK.monotonic() + _BETWEEN_CHECKS >= until:
            detail = "completed, but its check says that it did not do what it should"
            return Smoked(outcome="mismatched", ok=False, detail=detail, **facts)
        pause.wait(_BETWEEN_CHECKS)


def _late(queue: Queue, name: str, handle: JobHandle) -> Smoked:
    """Nobody waits for it any longer, so it shall not run when nobody looks."""
    job = handle.get()
    where = f"running on {job.worker}" if job.state is JobState.PROCESSING else "still waiting"
    if not job.ended:
        verbs_on(queue.front).cancel(job.id, why=_WHY)
    return Smoked(type=name, outcome="late", ok=False, job=job.id, detail=f"{where}; cancelled")


_CLOCK = SystemClock()
