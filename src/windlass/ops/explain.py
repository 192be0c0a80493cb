"""Why does this job not run, and what would let it? One sentence from the facts; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from windlass.job import Error, Job, JobState, View
from windlass.ops.overview import WorkerHealth, health_of
from windlass.settings import ALL, KEY
from windlass.store.explaining import MOST_AHEAD, Ahead, Facts, Held
from windlass.store.flow import Breaker, Pause
from windlass.store.protocol import WorkerInfo


class Cause(StrEnum):
    """What it is, for programs."""

    ENDED = "ended"
    DEAD = "dead"
    RUNNING = "running"
    STUCK = "stuck"
    STOPPING = "stopping"
    DEPENDENCY = "dependency"
    SCHEDULED = "scheduled"
    RETRY = "retry"
    PAUSED = "paused"
    BREAKER = "breaker"
    NO_WORKER = "no_worker"
    VERSION = "version"
    LIMIT = "limit"
    RATE = "rate"
    TENANT_LIMIT = "tenant_limit"
    TENANT_TURN = "tenant_turn"
    BEHIND = "behind"
    BUSY = "busy"
    # Nothing stands in its way.
    NEXT = "next"


class Link(msgspec.Struct, frozen=True):
    """Where the cause can be looked at: a type, job, worker, limit or breaker."""

    kind: str
    name: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: one sentence, and where to look. `also`: what would stand in its way next."""

    sentence: str
    cause: Cause
    link: Link | None = None
    since: datetime | None = None
    until: datetime | None = None
    # Jobs that it waits for.
    blockers: tuple[str, ...] = ()
    # What to type, if anything mends it.
    mend: str | None = None
    also: tuple[str, ...] = ()


def explain(facts: Facts) -> Explanation:
    """What holds the job back first; what would come next stands beside it."""
    first, *others = _reasons(facts)
    return msgspec.structs.replace(first, also=tuple(each.sentence for each in others))


def explanation_document(found: Explanation) -> dict[str, Any]:
    """The answer as plain values, on every surface."""
    return {
        "sentence": found.sentence,
        "cause": found.cause.value,
        "link": None if found.link is None else {"kind": found.link.kind, "name": found.link.name},
        "since": found.since,
        "until": found.until,
        "blockers": list(found.blockers),
        "mend": found.mend,
        "also": list(found.also),
    }


def _reasons(facts: Facts) -> Iterator[Explanation]:
    job = facts.job
    if job.state is JobState.PROCESSING:
        yield _running(facts)
    elif job.state is JobState.DEAD:
        yield _dead(facts)
    elif job.state is not JobState.PENDING:
        yield _ended(job, facts.now)
    else:
        yield from _pending(facts)


# --- not waiting --------------------------------------------------------------------------------


def _ended(job: Job, now: datetime) -> Explanation:
    ended = job.finished_at or job.updated_at
    words = f"{job.state.value} {_ago(ended, now)}: it does not run again"
    return Explanation(sentence=words, cause=Cause.ENDED, link=Link("job", job.id), since=ended)


def _dead(facts: Facts) -> Explanation:
    job = facts.job
    died = job.finished_at or job.updated_at
    tries = "1 attempt" if job.attempts == 1 else f"{job.attempts} attempts"
    words = f"dead since {_clock(died)} after {tries}, because of {told_error(job.error)}"
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
    if job.request is not None:
        words = f"running on {job.worker}, which was asked to {job.request.value} it: it does within seconds"
        return Explanation(
            sentence=words, cause=Cause.STOPPING, link=worker, since=job.started_at, until=until
        )
    silent = next((each for each in _fleet(facts) if each.info.id == job.worker), None)
    gone = silent is None or not silent.alive
    if job.view(facts.now) is View.STUCK or gone:
        last = silent.info.beat_at if silent is not None else None
        seen = f"last seen {_ago(last, facts.now)}" if last is not None else "of which nothing is known"
        how = seen if gone else "which is alive but has not renewed it"
        end = "ran out" if until <= facts.now else "ends"
        words = f"its lease is held by {job.worker}, {how}, and {end} at {_clock(until)}; " + (
            "another worker takes it back within seconds"
            if any(each.alive for each in _fleet(facts))
            else "a running worker would take it back: windlass worker start"
        )
        return Explanation(sentence=words, cause=Cause.STUCK, link=worker, since=job.started_at, until=until)
    since = "" if job.started_at is None else f" for {_span(facts.now - job.started_at)}"
    words = f"running{since}: {job.worker} holds its lease until {_clock(until)}"
    return Explanation(sentence=words, cause=Cause.RUNNING, link=worker, since=job.started_at, until=until)


# --- waiting ------------------------------------------------------------------------------------


def _pending(facts: Facts) -> Iterator[Explanation]:
    view = facts.job.view(facts.now)
    if view is View.WAITING:
        yield _waiting(facts)
        return
    if view is not View.DUE:
        yield _later(facts, retrying=view is View.RETRYING)
    yield from _shut(facts)
    serving = [each for each in _fleet(facts) if each.alive and each.info.serves(facts.job.type)]
    able = [each for each in serving if each.info.knows(facts.job.type) >= facts.job.schema_version]
    if not serving:
        yield _no_worker(facts)
    elif not able:
        yield _too_new(facts, serving)
    if view is not View.DUE:
        return
    yield from _limits(facts)
    if able:
        yield _in_line(facts, able)


def _waiting(facts: Facts) -> Explanation:
    parents = facts.parents
    if not parents:
        words = "waits for other jobs, all of which have ended by now: it is let go within a minute"
        return Explanation(sentence=words, cause=Cause.DEPENDENCY)
    stood = [each for each in parents if each.state is JobState.DEAD]
    first = (stood or list(parents))[0]
    state = "gone" if first.state is None else first.state.value
    more = f" and {_count(len(parents) - 1, 'other job')}" if len(parents) > 1 else ""
    words = f"waits for job {first.id} ({state}){more} to complete"
    if stood:
        words += "; a dead one must be replayed first"
    return Explanation(
        sentence=words,
        cause=Cause.DEPENDENCY,
        link=Link("job", first.id),
        since=facts.job.enqueued_at,
        blockers=tuple(each.id for each in parents),
        mend=f"windlass replay {first.id}" if stood else None,
    )


def _later(facts: Facts, *, retrying: bool) -> Explanation:
    job = facts.job
    when = f"{_clock(job.run_at)} (in {_span(job.run_at - facts.now)})"
    if not retrying:
        words = f"scheduled for {when}"
        cause, since = Cause.SCHEDULED, job.enqueued_at
    else:
        failed = f"after {told_error(job.error)}" if job.error else "after it was put off"
        words = f"attempt {job.attempts + 1} of {job.max_attempts} comes at {when}, {failed}"
        cause, since = Cause.RETRY, job.updated_at
    return Explanation(
        sentence=words,
        cause=cause,
        link=Link("job", job.id),
        since=since,
        until=job.run_at,
        mend=f"windlass replay {job.id}",
    )


def _shut(facts: Facts) -> Iterator[Explanation]:
    if facts.pause is not None:
        yield _paused(facts.pause)
    if facts.breaker is not None and facts.breaker.open:
        yield _broken(facts, facts.breaker)


def _paused(pause: Pause) -> Explanation:
    why = f" ({pause.why})" if pause.why else ""
    return Explanation(
        sentence=f"{pause.type} is paused by {pause.by} since {_clock(pause.at)}{why}",
        cause=Cause.PAUSED,
        link=Link("type", pause.type),
        since=pause.at,
        mend=f"windlass resume {pause.type}",
    )


def _broken(facts: Facts, breaker: Breaker) -> Explanation:
    why = f" ({breaker.why})" if breaker.why else ""
    who = f" by {breaker.by}" if breaker.by else ""
    words = f"the circuit breaker of {breaker.name} is open since {_clock(breaker.at)}{who}{why}"
    until, blockers = None, ()
    if breaker.by_hand:
        words += "; nothing is tried until somebody closes it"
    elif facts.probing is not None and facts.probing != facts.job.id:
        words += f"; job {facts.probing} runs as the probe"
        blockers = (facts.probing,)
    else:
        until = max(breaker.probe_at or facts.now, facts.now)
        # Further ahead is what was set before, or the time of a clock that was set back.
        until = min(until, facts.now + facts.probe) if facts.probe else until
        words += f"; the next probe may start {_at(until, facts.now)}"
    return Explanation(
        sentence=words,
        cause=Cause.BREAKER,
        link=Link("breaker", breaker.name),
        since=breaker.at,
        until=until,
        blockers=blockers,
        mend=f"windlass breaker {facts.job.type} {'auto' if breaker.by_hand else 'close'}",
    )


def _no_worker(facts: Facts) -> Explanation:
    job = facts.job
    last = _last_seen([each for each in facts.workers if each.serves(job.type)])
    if last is None or last.beat_at is None:
        seen, link = "none has been seen lately", Link("type", job.type)
    else:
        seen = f"the last one, {last.id}, was seen {_ago(last.beat_at, facts.now)}"
        link = Link("worker", last.id)
    return Explanation(
        sentence=f"no running worker serves {job.type}; {seen}",
        cause=Cause.NO_WORKER,
        link=link,
        since=None if last is None else last.beat_at,
        mend="windlass worker start",
    )


def _too_new(facts: Facts, serving: Sequence[WorkerHealth]) -> Explanation:
    job = facts.job
    known = max(each.info.knows(job.type) for each in serving)
    words = (
        f"its payload is of version {job.schema_version}, and the running workers of {job.type} know "
        f"versions up to {known}: it waits for a worker with newer code"
    )
    newest = max(serving, key=lambda each: each.info.knows(job.type))
    return Explanation(
        sentence=words, cause=Cause.VERSION, link=Link("worker", newest.info.id), since=job.enqueued_at
    )


def _limits(facts: Facts) -> Iterator[Explanation]:
    for held in facts.held:
        most = held.limit.concurrency
        if most is not None and held.running >= most:
            yield _full(held, most)
        if held.token_at is not None:
            rate = held.limit.rate
            yield Explanation(
                sentence=f"{_named(held.name)} may start {rate}, and the next token comes "
                f"{_at(held.token_at, facts.now)}",
                cause=Cause.RATE,
                link=Link("limit", held.name),
                until=held.token_at,
                mend=f"windlass limit '{held.name}' --rate none",
            )
    tenant = facts.tenant
    most = None if tenant is None else tenant.limit.per_tenant
    if tenant is not None and most is not None and tenant.running >= most:
        who = f"tenant {facts.job.tenant}" if facts.job.tenant else "jobs without a tenant"
        yield Explanation(
            sentence=f"{_count(tenant.running, 'job')} of {facts.job.type} may run at once for {who}, and "
            f"{_held_by(tenant)}",
            cause=Cause.TENANT_LIMIT,
            link=Link("limit", tenant.name),
            blockers=tenant.jobs,
            mend=f"windlass limit '{tenant.name}' --tenant-concurrency none",
        )


def _full(held: Held, most: int) -> Explanation:
    return Explanation(
        sentence=f"{_named(held.name)} may have {_count(most, 'job')} running at once, and {_held_by(held)}",
        cause=Cause.LIMIT,
        link=Link("limit", held.name),
        blockers=held.jobs,
        mend=f"windlass limit '{held.name}' --concurrency none",
    )


def _held_by(held: Held) -> str:
    if not held.jobs:
        return "so many are"
    more = held.running - len(held.jobs)
    rest = f" and {more} more" if more > 0 else ""
    return f"{'it is' if held.running == 1 else 'they are'} {', '.join(held.jobs)}{rest}"


def _in_line(facts: Facts, able: Sequence[WorkerHealth]) -> Explanation:
    """Nothing holds it back but others, who come first; or nothing at all."""
    ahead = facts.ahead
    slots = sum(each.info.slots for each in able)
    busy = sum(each.info.busy + each.info.held for each in able)
    waited = f"due for {_span(facts.now - facts.job.run_at)}"
    link = Link("type", facts.job.type)
    if not ahead.count:
        if busy < slots:
            words = f"{waited}; nothing stands in its way: a worker claims it within a second"
            return Explanation(sentence=words, cause=Cause.NEXT, link=link, since=facts.job.run_at)
        words = f"{waited} and next in line: all {slots} slots of {_count(len(able), 'worker')} are busy"
        return Explanation(
            sentence=words,
            cause=Cause.BUSY,
            link=Link("worker", able[0].info.id),
            since=facts.job.run_at,
            mend="windlass worker start",
        )
    only_turns = ahead.others and not (ahead.higher or ahead.earlier or ahead.rivals)
    until = _expected(facts)
    if only_turns:
        who = f"tenant {facts.job.tenant}" if facts.job.tenant else "jobs without a tenant"
        words = (
            f"{waited}; it is the first of {who}, whose turn comes after {_count(ahead.others, 'job')} of "
            f"{_count(ahead.tenants, 'other tenant')}{_in_about(facts, until)}"
        )
        return Explanation(
            sentence=words, cause=Cause.TENANT_TURN, link=link, since=facts.job.run_at, until=until
        )
    words = f"{waited}, behind {_many(ahead)}{_in_about(facts, until)}"
    return Explanation(sentence=words, cause=Cause.BEHIND, link=link, since=facts.job.run_at, until=until)


def _many(ahead: Ahead) -> str:
    count = f"over {MOST_AHEAD:,} jobs" if ahead.count >= MOST_AHEAD else _count(ahead.count, "job")
    return count + (f", {ahead.higher:,} of them of a higher priority" if ahead.higher else "")


def _expected(facts: Facts) -> datetime | None:
    """When its turn comes if all goes on so; not known of a line that is not counted to its end."""
    if not facts.pace.ended or facts.ahead.count >= MOST_AHEAD:
        return None
    return facts.now + timedelta(seconds=facts.ahead.count / facts.pace.per_second)


def _in_about(facts: Facts, until: datetime | None) -> str:
    if not facts.pace.ended:
        return "; none of those has ended in the last minute"
    rate = facts.pace.per_second
    told = f"{rate:,.0f}/s" if rate >= 1 else f"{rate * 60:,.1f}/m"
    if until is None:
        least = timedelta(seconds=facts.ahead.count / rate)
        return f"; at the present rate ({told}) more than {_span(least)}"
    return f"; at the present rate ({told}) about {_span(until - facts.now)}"


# --- words --------------------------------------------------------------------------------------


def told_error(error: Error | None) -> str:
    """An error in a few words."""
    if error is None:
        return "no recorded error"
    words = ": ".join(part for part in (error.kind or error.reason.value, error.message) if part)
    line = " ".join(words.split())
    return line if len(line) <= _LONGEST_ERROR else line[: _LONGEST_ERROR - 1] + "…"


def _fleet(facts: Facts) -> list[WorkerHealth]:
    return [health_of(each, facts.now) for each in facts.workers]


def _last_seen(workers: Sequence[WorkerInfo]) -> WorkerInfo | None:
    seen = [each for each in workers if each.beat_at is not None]
    return max(seen, key=lambda each: each.beat_at or _NEVER, default=None)


def _named(name: str) -> str:
    if name == ALL:
        return "all types together"
    return f"what shares {name.removeprefix(KEY)}" if name.startswith(KEY) else name


def _count(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"


def _clock(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _at(moment: datetime, now: datetime) -> str:
    return f"at {_clock(moment)} (in {_span(moment - now)})" if moment > now else "now"


def _ago(moment: datetime, now: datetime) -> str:
    return f"{_span(now - moment)} ago"


def _span(span: timedelta) -> str:
    """A span in one unit, from twice the unit on: 90s says more than 1m."""
    seconds = max(0.0, span.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


_LONGEST_ERROR = 160
_NEVER = datetime.min.replace(tzinfo=UTC)
