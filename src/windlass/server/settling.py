"""What comes of a run over HTTP? The same decisions as for our own workers, by what the catalogue says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass import settings
from windlass.errors import LeaseLost
from windlass.job import Job, JobState, Lease, TypeInfo
from windlass.outcome import Done, Outcome, Policy, Result, Returned, Stopped, Unstarted, decide
from windlass.policy.retry import Retry
from windlass.policy.verify import check_in
from windlass.settings import Effective
from windlass.store.protocol import Settlement

if TYPE_CHECKING:
    from windlass.server.parts import Parts


def settle(parts: Parts, lease: Lease, result: Result, app: str = "") -> Outcome | None:
    """What it amounts to; None if this lease was settled before, and nothing is written now.

    `app`: the release of the program that ran it, as far as it says.
    """
    store = parts.store
    now, job = store.now(), lease.job
    held = job.state is JobState.PROCESSING and lease.token in {
        each.token for each in store.held_by(lease.worker)
    }
    if job.request is not None and not isinstance(result, Returned):
        # An operator's request stands: whatever ended the run, it is carried out.
        result = Stopped(job.request)
    known = store.types().get(job.type)
    outcome = decide(job, result, _policy(parts, job, known), now=now, chance=random.random)
    ran = None if job.started_at is None or isinstance(result, Unstarted) else now - job.started_at
    # Whoever ran it, a worker that knows the type checks what came of it.
    check = check_in(known.options, job.id) if known is not None and isinstance(outcome, Done) else None
    if store.settle([Settlement(lease, outcome, ran, check_in=check, app=app)]):
        raise LeaseLost(job.id)
    flow = parts.flow
    if held:
        flow.settled(lease, outcome, app)
    if not isinstance(outcome, Done) or flow.limited(job.type):
        parts.queue.wakeup.notify()
    return outcome if held else None


def end_leases(parts: Parts, leases: Sequence[Lease], result: Result) -> None:
    """Settle leases that nobody is there for."""
    now = parts.store.now()
    outcomes = [
        decide(lease.job, result, policy(parts, lease.job), now=now, chance=random.random) for lease in leases
    ]
    parts.store.settle([Settlement(lease, outcome) for lease, outcome in zip(leases, outcomes, strict=True)])
    parts.queue.wakeup.notify()


def policy(parts: Parts, job: Job) -> Policy:
    """What the type's code has put into the catalogue, under what operators have set."""
    return _policy(parts, job, parts.store.types().get(job.type))


def _policy(parts: Parts, job: Job, known: TypeInfo | None) -> Policy:
    held = settings.read(parts.store.settings())
    max_age = None if known is None else known.options.get("max_age")
    return Policy(
        retry=effective(known, job.type, held).retry,
        max_age=None if max_age is None else timedelta(seconds=max_age),
    )


def effective(known: TypeInfo | None, job_type: str, held: settings.Settings) -> Effective:
    """What holds for a type: what operators have set, else its code, else the default."""
    options = {} if known is None else known.options
    said = options.get("said", ())
    return held.effective(
        job_type,
        timeout=timedelta(seconds=options["timeout"]) if "timeout" in said else None,
        retry=msgspec.convert(options["retry"], Retry) if "retry" in said else None,
    )
