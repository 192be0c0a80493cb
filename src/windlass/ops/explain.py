"""Why does this job not run, and what would let it? One sentence from the facts; pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from windlass.job import Job, JobState, View
from windlass.ops.explanation import Cause, Explanation, Link
from windlass.ops.waiting import fleet, pending
from windlass.ops.words import ago, clock, count, span, start_worker, told_error
from windlass.store.explain import Facts


def explain(facts: Facts) -> Explanation:
    """What holds the job back first; what would come next stands beside it."""
    first, *others = _reasons(facts)
    return msgspec.structs.replace(first, also=tuple(each.sentence for each in others))


def _reasons(facts: Facts) -> Iterator[Explanation]:
    job = facts.job
    if job.state is JobState.PROCESSING:
        yield _running(facts)
    elif job.state is JobState.DEAD:
        yield _dead(facts)
    elif job.state is not JobState.PENDING:
        yield _ended(job, facts.now)
    else:
        yield from pending(facts)


# --- not waiting --------------------------------------------------------------------------------


def _ended(job: Job, now: datetime) -> Explanation:
    ended = job.finished_at or job.updated_at
    words = f"{job.state.value} {ago(ended, now)}: it does not run again"
    return Explanation(sentence=words, cause=Cause.ENDED, link=Link("job", job.id), since=ended)


def _dead(facts: Facts) -> Explanation:
    job = facts.job
    died = job.finished_at or job.updated_at
    tries = count(job.attempts, "attempt")
    words = f"dead since {clock(died)} after {tries}, because of {told_error(job.error)}"
    holder = facts.unique_holder if facts.unique_holder != job.id else None
    if holder is not None:
        words += f"; it cannot be replayed while job {holder} holds the unique name {facts.unique!r}"
    return Explanation(
        sentence=words,
        cause=Cause.DEAD,
        link=Link("job", holder or job.id),
        since=died,
        blockers=() if holder is None else (holder,),
        mend=f"windlass replay {job.id}" if holder is None else None,
    )


def _running(facts: Facts) -> Explanation:
    job = facts.job
    until = job.lease_until or facts.now
    worker = Link("worker", job.worker or "")
    silent = next((each for each in fleet(facts) if each.info.id == job.worker), None)
    gone = silent is None or not silent.alive
    if job.request is not None and not gone:
        words = f"running on {job.worker}, which was asked to {job.request.value} it: it does within seconds"
        return Explanation(
            sentence=words, cause=Cause.STOPPING, link=worker, since=job.started_at, until=until
        )
    if job.view(facts.now) is View.STUCK or gone:
        last = silent.info.beat_at if silent is not None else None
        seen = f"last seen {ago(last, facts.now)}" if last is not None else "of which nothing is known"
        how = seen if gone else "which is alive but has not renewed it"
        how += "" if job.request is None else f" (it should {job.request.value} it)"
        end = "ran out" if until <= facts.now else "ends"
        words = f"its lease is held by {job.worker}, {how}, and {end} at {clock(until)}; " + (
            "another worker takes it back within seconds"
            if any(each.alive for each in fleet(facts))
            else f"a running worker would take it back: {start_worker([job.type])}"
        )
        return Explanation(sentence=words, cause=Cause.STUCK, link=worker, since=job.started_at, until=until)
    since = "" if job.started_at is None else f" for {span(facts.now - job.started_at)}"
    words = f"running{since}: {job.worker} holds its lease until {clock(until)}"
    return Explanation(sentence=words, cause=Cause.RUNNING, link=worker, since=job.started_at, until=until)
