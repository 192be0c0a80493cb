"""What comes of a run over HTTP? The same decisions as for our own workers, by what the catalogue says."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from windlass import settings
from windlass.errors import LeaseLost
from windlass.job import Job, JobState, Keep, Lease
from windlass.outcome import Done, Outcome, Policy, Result, Returned, Stopped, Unstarted, decide
from windlass.policy.verify import check_in
from windlass.store.protocol import Settlement
from windlass.worker.live_settings import policy_of

if TYPE_CHECKING:
    from windlass.server.parts import Parts


def settle(parts: Parts, lease: Lease, result_for: Callable[[Keep], Result], app: str = "") -> Outcome | None:
    """What it amounts to; None if this lease was settled before, and nothing is written now.

    `result_for` gives the result by what the type keeps of it; `app` is the release of the program that ran
    it, as far as it says.
    """
    store = parts.store
    now, job = store.now(), lease.job
    known = store.types().get(job.type)
    result = result_for(True if known is None else known.options.get("result", True))
    held = job.state is JobState.PROCESSING and lease.token in {
        each.token for each in store.held_by(lease.worker)
    }
    if job.request is not None and not isinstance(result, Returned):
        # An operator's request stands: whatever ended the run, it is carried out.
        result = Stopped(job.request)
    outcome = decide(job, result, policy_of(job.type, known, _held(parts)), now=now, chance=random.random)
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
    return policy_of(job.type, parts.store.types().get(job.type), _held(parts))


def _held(parts: Parts) -> settings.Settings:
    return settings.read(parts.store.settings())
