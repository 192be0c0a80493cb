"""Search jobs, group failures, and explain why a job does not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal

import msgspec

from windlass.errors import JobNotFound, must_be
from windlass.job import WAITING_AT, Job, JobState, View
from windlass.ops.actions import Action, Need, Option, Verbs
from windlass.ops.overview import WorkerHealth, health_of, with_the_gone_dead
from windlass.ops.search import WITHIN, find_within
from windlass.ops.words import ago, at, clock, count, serve_type, span, start_worker, told_error
from windlass.registry import SHELL
from windlass.settings import ALL, KEY
from windlass.store.explain import MOST_AHEAD, Facts, Held
from windlass.store.flow import Breaker, Pause
from windlass.store.jobs import Filter, Page
from windlass.store.oncall import DatabaseHealth, DeadGroups
from windlass.store.running import Unread


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
    UNREADABLE = "unreadable"
    LIMIT = "limit"
    RATE = "rate"
    TENANT_LIMIT = "tenant_limit"
    TENANT_TURN = "tenant_turn"
    BEHIND = "behind"
    BUSY = "busy"
    # Nothing stands in its way.
    NEXT = "next"


class Link(msgspec.Struct, frozen=True):
    """Where the cause can be looked at."""

    kind: Literal["type", "job", "worker", "limit", "breaker"]
    name: str


class Explanation(msgspec.Struct, frozen=True):
    """The answer: one sentence, and where to look. `also`: what would stand in its way next."""

    sentence: str
    cause: Cause
    link: Link | None = None
    since: datetime | None = None
    until: datetime | None = None
    # Jobs that it waits for.
    blockers: tuple[str, ...] = ()
    # What to type, if anything fixes it.
    fix: str | None = None
    also: tuple[str, ...] = ()


def explain(facts: Facts) -> Explanation:
    """What holds the job back first; what would come next stands beside it."""
    say = {JobState.PROCESSING: _running, JobState.DEAD: _dead}.get(facts.job.state, _ended)
    if facts.job.state is not JobState.PENDING:
        return say(facts)
    first, *others = _pending(facts)
    return msgspec.structs.replace(first, also=tuple(each.sentence for each in others))


def _pending(facts: Facts) -> Iterator[Explanation]:
    """What a job that waits waits for."""
    view = facts.job.view(facts.now)
    if facts.unread is not None:
        yield _unread(facts, facts.unread)
        return
    if view is View.WAITING:
        yield _waiting(facts)
        return
    if view is not View.DUE:
        yield _later(facts, retrying=view is View.RETRYING)
    blocked = [] if facts.pause is None else [_paused(facts.pause)]
    if facts.breaker is not None and facts.breaker.open:
        blocked.append(_broken(facts, facts.breaker))
    yield from blocked
    serving = [each for each in fleet(facts) if each.takes(facts.job.type)]
    able = [each for each in serving if each.info.knows(facts.job.type) >= facts.job.schema_version]
    if not serving:
        yield _no_worker(facts)
    elif not able:
        yield _too_new(facts, serving)
    if view is not View.DUE:
        return
    limits = list(_limits(facts))
    yield from limits
    if able:
        yield from _in_line(facts, able, blocked=bool(blocked or limits))


def _waiting(facts: Facts) -> Explanation:
    parents = facts.parents
    if not parents:
        words = "waits for other jobs, all of which have ended by now: it is let go within a minute"
        return Explanation(words, Cause.DEPENDENCY)
    stood = [each for each in parents if each.state is JobState.DEAD]
    first = (stood or list(parents))[0]
    state = "gone" if first.state is None else first.state.value
    more = f" and {count(len(parents) - 1, 'other job')}" if len(parents) > 1 else ""
    words = f"waits for job {first.id} ({state}){more} to complete"
    if stood:
        words += "; a dead one must be replayed first"
    return Explanation(
        words,
        Cause.DEPENDENCY,
        Link("job", first.id),
        since=facts.job.enqueued_at,
        blockers=tuple(each.id for each in parents),
        fix=f"windlass replay {first.id}" if stood else None,
    )


def _later(facts: Facts, *, retrying: bool) -> Explanation:
    job = facts.job
    when = f"{clock(job.run_at)} (in {span(job.run_at - facts.now)})"
    words, cause, since = f"scheduled for {when}", Cause.SCHEDULED, job.enqueued_at
    if retrying:
        failed = f"after {told_error(job.error)}" if job.error else "after it was put off"
        words = f"attempt {job.attempts + 1} of {job.max_attempts} comes at {when}, {failed}"
        cause, since = Cause.RETRY, job.updated_at
    fix = f"windlass reschedule {job.id} --now"
    return Explanation(words, cause, Link("job", job.id), since, job.run_at, fix=fix)


def _paused(pause: Pause) -> Explanation:
    why = f" ({pause.why})" if pause.why else ""
    words = f"{pause.type} is paused by {pause.by} since {clock(pause.at)}{why}"
    fix = f"windlass resume {pause.type}"
    return Explanation(words, Cause.PAUSED, Link("type", pause.type), pause.at, fix=fix)


def _broken(facts: Facts, breaker: Breaker) -> Explanation:
    why = f" ({breaker.why})" if breaker.why else ""
    who = f" by {breaker.by}" if breaker.by else ""
    words = f"the circuit breaker of {breaker.name} is open since {clock(breaker.at)}{who}{why}"
    until: datetime | None = None
    blockers: tuple[str, ...] = ()
    if breaker.by_hand:
        words += "; nothing is tried until somebody closes it"
    elif facts.probing is not None and facts.probing != facts.job.id:
        words += f"; job {facts.probing} runs as the probe"
        blockers = (facts.probing,)
    else:
        until = max(breaker.probe_at or facts.now, facts.now)
        # Further ahead is what was set before, or the time of a clock that was set back.
        until = min(until, facts.now + facts.probe) if facts.probe else until
        words += f"; the next probe may start {at(until, facts.now)}"
    fix = f"windlass breaker {facts.job.type} {'auto' if breaker.by_hand else 'close'}"
    link = Link("breaker", breaker.name)
    return Explanation(words, Cause.BREAKER, link, breaker.at, until, blockers, fix)


# How a shell job that no worker takes is told of.
START_SHELL = "start a worker with --shell"


def _no_worker(facts: Facts) -> Explanation:
    job = facts.job
    served = [each for each in facts.workers if each.serves(job.type) and each.beat_at is not None]
    last = max(served, key=lambda each: each.beat_at or facts.now, default=None)
    since = None if last is None else last.beat_at
    seen, link = "none has been seen lately", Link("type", job.type)
    if last is not None and since is not None:
        drains = last.state == "draining" and health_of(last, facts.now).alive
        how = "finishes what it runs and takes no more" if drains else f"was seen {ago(since, facts.now)}"
        seen, link = f"the last one, {last.id}, {how}", Link("worker", last.id)
    words = f"no running worker serves {job.type}; {seen}"
    words += f": {START_SHELL}" if job.type == SHELL else ""
    return Explanation(words, Cause.NO_WORKER, link, since, fix=serve_type(job.type))


def _too_new(facts: Facts, serving: Sequence[WorkerHealth]) -> Explanation:
    job = facts.job
    newest = max(serving, key=lambda each: each.info.knows(job.type)).info
    words = (
        f"its payload is of version {job.schema_version}, and the running workers of {job.type} know "
        f"versions up to {newest.knows(job.type)}: it waits for a worker with newer code"
    )
    fix = None
    if job.type == SHELL:
        alone = "the running workers take commands of this machine alone"
        words = f"it came over HTTP, and {alone}: {START_SHELL}"
        fix = serve_type(job.type)
    return Explanation(words, Cause.VERSION, Link("worker", newest.id), job.enqueued_at, fix=fix)


def _unread(facts: Facts, unread: Unread) -> Explanation:
    job = facts.job
    serving = [each.info for each in fleet(facts) if each.takes(job.type)]
    able = [each for each in serving if unread.is_for(each)]
    words = f"another release of the application made it, and a worker could not read it: {unread.problem}"
    if able:
        words += f"; a worker that has not tried takes it within seconds ({able[0].id})"
        return Explanation(words, Cause.UNREADABLE, Link("worker", able[0].id), unread.since)
    words += (
        "; no running worker can read it: deploy a release that can, edit its payload "
        f"(windlass edit {job.id} --payload JSON), or bury it"
    )
    until = None if job.run_at >= WAITING_AT else job.run_at
    fix = f"windlass bury {job.id}"
    return Explanation(words, Cause.UNREADABLE, Link("type", job.type), unread.since, until, fix=fix)


def _limits(facts: Facts) -> Iterator[Explanation]:
    for held in facts.held:
        link, (named, command) = Link("limit", held.name), _limited(held.name)
        most = held.limit.concurrency
        if most is not None and held.running >= most:
            words = f"{named} may have {count(most, 'job')} running at once, and {_held_by(held)}"
            fix = f"{command} --concurrency none"
            yield Explanation(words, Cause.LIMIT, link, blockers=held.jobs, fix=fix)
        if held.token_at is not None:
            comes = f"the next token comes {at(held.token_at, facts.now)}"
            words = f"{named} may start {held.limit.rate}, and {comes}"
            yield Explanation(words, Cause.RATE, link, until=held.token_at, fix=f"{command} --rate none")
    tenant = facts.tenant
    most = None if tenant is None else tenant.limit.per_tenant
    if tenant is not None and most is not None and tenant.running >= most:
        running = f"{count(tenant.running, 'job')} of {facts.job.type}"
        words = f"{running} may run at once for {_tenant(facts.job)}, and {_held_by(tenant)}"
        fix = f"{_LIMIT} {tenant.name} --tenant-concurrency none"
        link = Link("limit", tenant.name)
        yield Explanation(words, Cause.TENANT_LIMIT, link, blockers=tenant.jobs, fix=fix)


def _tenant(job: Job) -> str:
    return f"tenant {job.tenant}" if job.tenant else "jobs without a tenant"


def _held_by(held: Held) -> str:
    if not held.jobs:
        return "so many are"
    more = held.running - len(held.jobs)
    rest = f" and {more} more" if more > 0 else ""
    return f"{'it is' if held.running == 1 else 'they are'} {', '.join(held.jobs)}{rest}"


def _in_line(facts: Facts, able: Sequence[WorkerHealth], *, blocked: bool) -> Iterator[Explanation]:
    """Where it stands in the queue. Of a job that something blocks, nobody can say when it starts."""
    job, ahead = facts.job, facts.ahead
    slots = sum(each.info.slots for each in able)
    busy = sum(each.info.busy + each.info.held for each in able)
    waited = f"due for {span(facts.now - job.run_at)}"
    link = Link("type", job.type)
    if not ahead.count and busy < slots:
        if not blocked:
            words = f"{waited}; nothing blocks it: a worker claims it within a second"
            yield Explanation(words, Cause.NEXT, link, job.run_at)
        return
    if not ahead.count:
        full = "the only slot is" if slots == 1 else f"all {slots} slots of {count(len(able), 'worker')} are"
        words, link = f"{waited} and next in line: {full} busy", Link("worker", able[0].info.id)
        yield Explanation(words, Cause.BUSY, link, job.run_at, fix=serve_type(job.type))
        return
    until, when = (None, "") if blocked else _expected(facts)
    if ahead.others and not (ahead.higher or ahead.earlier or ahead.rivals):
        turn = f"{count(ahead.others, 'job')} of {count(ahead.tenants, 'other tenant')}"
        words = f"{waited}; it is the first of {_tenant(job)}, whose turn comes after {turn}{when}"
        yield Explanation(words, Cause.TENANT_TURN, link, job.run_at, until)
        return
    line = f"over {MOST_AHEAD:,} jobs" if ahead.count >= MOST_AHEAD else count(ahead.count, "job")
    line += f", {ahead.higher:,} of them of a higher priority" if ahead.higher else ""
    yield Explanation(f"{waited}, behind {line}{when}", Cause.BEHIND, link, job.run_at, until)


def _expected(facts: Facts) -> tuple[datetime | None, str]:
    """When its turn comes if all goes on so; not known of a line that is not counted to its end."""
    if not facts.pace.ended:
        return None, "; none of those has ended in the last minute"
    rate = facts.pace.per_second
    rated = f"{rate:,.0f}/s" if rate >= 1 else f"{rate * 60:,.1f}/m"
    least = timedelta(seconds=facts.ahead.count / rate)
    if facts.ahead.count >= MOST_AHEAD:
        return None, f"; at the present rate ({rated}) more than {span(least)}"
    return facts.now + least, f"; at the present rate ({rated}) about {span(least)}"


def fleet(facts: Facts) -> list[WorkerHealth]:
    """The workers, and whether they are alive."""
    return [health_of(each, facts.now) for each in facts.workers]


_LIMIT = "windlass limit"


def _limited(name: str) -> tuple[str, str]:
    """What a limit is for, and the command that changes it."""
    if name == ALL:
        return "all types together", f"{_LIMIT} --all"
    key = name.removeprefix(KEY)
    return (
        (name, f"windlass limit {name}")
        if key == name
        else (f"what shares {key}", f"windlass limit --key {key}")
    )


# --- not waiting --------------------------------------------------------------------------------


def _ended(facts: Facts) -> Explanation:
    job = facts.job
    ended = job.finished_at or job.updated_at
    words = f"{job.state.value} {ago(ended, facts.now)}: it does not run again"
    return Explanation(words, Cause.ENDED, Link("job", job.id), ended)


def _dead(facts: Facts) -> Explanation:
    job = facts.job
    died = job.finished_at or job.updated_at
    tries = count(job.attempts, "attempt")
    words = f"dead since {clock(died)} after {tries}, because of {told_error(job.error)}"
    holder = facts.unique_holder
    if holder is None or holder == job.id:
        fix = f"windlass replay {job.id}"
        return Explanation(words, Cause.DEAD, Link("job", job.id), died, fix=fix)
    words += f"; it cannot be replayed while job {holder} holds the unique name {facts.unique!r}"
    return Explanation(words, Cause.DEAD, Link("job", holder), died, blockers=(holder,))


def _running(facts: Facts) -> Explanation:
    job = facts.job
    until = job.lease_until or facts.now
    workers = fleet(facts)
    holder = next((each for each in workers if each.info.id == job.worker), None)
    gone = holder is None or not holder.alive
    if job.request is not None and not gone:
        words = f"running on {job.worker}, which was asked to {job.request.value} it: it does within seconds"
        cause = Cause.STOPPING
    elif job.view(facts.now) is View.STUCK or gone:
        last = holder.info.beat_at if holder is not None else None
        seen = f"last seen {ago(last, facts.now)}" if last is not None else "of which nothing is known"
        how = seen if gone else "which is alive but has not renewed it"
        how += "" if job.request is None else f" (it should {job.request.value} it)"
        end = "ran out" if until <= facts.now else "ends"
        next_one = f"a running worker would take it back: {start_worker([job.type])}"
        if any(each.alive for each in workers):
            next_one = "another worker takes it back within seconds"
        words = f"its lease is held by {job.worker}, {how}, and {end} at {clock(until)}; {next_one}"
        cause = Cause.STUCK
    else:
        since = "" if job.started_at is None else f" for {span(facts.now - job.started_at)}"
        words = f"running{since}: {job.worker} holds its lease until {clock(until)}"
        cause = Cause.RUNNING
    return Explanation(words, cause, Link("worker", job.worker or ""), job.started_at, until)


Types = Annotated[Sequence[str], Option("Types; may be repeated.", field="type")]


class OncallVerbs(Verbs):
    """The verbs that only look. None of them costs more when more jobs wait, or it ends early and says so."""

    def find(
        self, where: Filter, *, limit: int = 50, cursor: str | None = None, within: timedelta = WITHIN
    ) -> Page:
        """Jobs, newest first. A search that is not over in time ends early: its `next` goes on with it."""
        if not 1 <= limit <= LONGEST_PAGE:
            raise must_be("limit", limit, f"between 1 and {LONGEST_PAGE}")
        return find_within(self.front, where, limit=limit, cursor=cursor, within=within, clock=self.clock)

    @Action("GET dlq/groups", command="dlq list", operation="list_dead_groups")
    def dead_groups(self, types: Types = ()) -> DeadGroups:
        """The dead letters by type and error, the largest group first."""
        return self.store.dead_groups(types)

    @Action("GET database", command="db status", operation="show_database")
    def database(self) -> DatabaseHealth:
        """How the database is: sizes, dead rows, who keeps them, settings, room."""
        return self.store.database()

    @Action("GET jobs/{id}/explain", need=Need.LOOK)
    def explain(self, name: str, *, tenant: str | None = None) -> Explanation:
        """Why a job does not run, or what became of it, in one sentence."""
        job = self.store.get(name, caller=None, tenant=tenant)
        facts = None if job is None else self.store.facts(job.id)
        if facts is None:
            raise JobNotFound(name)
        facts = msgspec.structs.replace(facts, workers=tuple(with_the_gone_dead(facts.workers)))
        sees_all = self.tenant is None and self.may(Need.SEE)
        # Who may see only some jobs is told of none that may belong to others.
        return explain(facts if sees_all else facts.without_others())


LONGEST_PAGE = 1000
