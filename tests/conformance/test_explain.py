"""Is every reason why a job does not run told, and rightly? Each is really caused, on every store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest

from tests.conformance.conftest import ENGINES
from tests.conformance.scene import (
    AGAIN,
    DEAD,
    DONE,
    LATER,
    LEASE,
    MAIL,
    REPORT,
    a_job,
    a_worker,
    ids,
    in_state,
    put,
    put_one,
    settle,
    take,
    take_one,
)
from tests.servers import postgres
from windlass.clock import ManualClock
from windlass.job import Error, JobState, Lease, NewJob, Reason, TypeInfo
from windlass.ops import Ops
from windlass.ops.explain import Cause, Explanation, Link
from windlass.outcome import Dead
from windlass.policy import BreakerTerms, Limit, Rate
from windlass.store.engine import Want
from windlass.store.fleet import Vitals
from windlass.store.flow import BreakerState, Restriction, Runs
from windlass.store.jobs import Filter
from windlass.store.store import Store

MINUTE = timedelta(minutes=1)


@pytest.fixture(params=["sqlite", f"postgres-{postgres.MAJORS[-1]}"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """One of each kind: what is asked here is the same in every release."""
    with ENGINES[request.param]() as url:
        yield url


def why(store: Store, job_id: str) -> Explanation:
    return Ops(store).explain(job_id)


def served(store: Store, name: str = "worker-1", **changes: object) -> None:
    """A worker that serves mails, alive at this moment."""
    store.join(a_worker(name, **{"versions": {MAIL: 1}, **changes}))


def claim(store: Store, restricted: dict[str, Restriction], **options: object) -> list[Lease]:
    fields: dict[str, object] = {"limit": 10, "slots": 10, "types": {MAIL: 1}}
    want = Want(worker="worker-1", lease=LEASE, restricted=restricted, **(fields | options))  # type: ignore[arg-type]
    return store.claim(want).leases


def test_a_job_that_waits_for_its_time_says_until_when(store: Store, clock: ManualClock) -> None:
    served(store)
    later = put_one(store, delay=timedelta(hours=3))
    found = why(store, later.id)
    assert (found.cause, found.until, found.also) == (Cause.SCHEDULED, later.run_at, ())
    assert f"windlass reschedule {later.id} --now" in msgspec.structs.astuple(found)
    assert found.sentence == "scheduled for 2026-01-01 03:00:00 UTC (in 3h)"

    put_one(store)
    lease = take_one(store)
    assert settle(store, lease, LATER)
    found = why(store, lease.id)
    assert (found.cause, found.until) == (Cause.RETRY, store.now() + timedelta(seconds=30))
    assert found.sentence == (
        "attempt 2 of 5 comes at 2026-01-01 00:00:30 UTC (in 30s), after ValueError: boom"
    )


def test_what_ended_and_what_runs_say_so(store: Store, clock: ManualClock) -> None:
    served(store)
    done = in_state(store, JobState.COMPLETED)
    clock.advance(180)
    served(store, "worker-2")
    found = why(store, done.id)
    assert (found.cause, found.sentence) == (Cause.ENDED, "completed 3m ago: it does not run again")

    # It runs; then its worker is silent; then its lease has run out; then it is asked to stop.
    put_one(store)
    lease = take_one(store, worker="worker-2")
    clock.advance(5)
    found = why(store, lease.id)
    assert (found.cause, found.link) == (Cause.RUNNING, Link("worker", "worker-2"))
    assert found.sentence == "running for 5s: worker-2 holds its lease until 2026-01-01 00:04:00 UTC"
    clock.advance(30)
    found = why(store, lease.id)
    assert found.cause is Cause.STUCK
    assert "worker-2, last seen 35s ago, and ends at" in found.sentence
    assert "windlass worker start" in found.sentence
    clock.advance(60)
    served(store, "worker-3")
    assert store.beat("worker-2", Vitals())
    found = why(store, lease.id)
    assert found.cause is Cause.STUCK
    assert "alive but has not renewed it, and ran out at" in found.sentence
    assert "another worker takes it back" in found.sentence
    store.cancel(lease.id, by="ann")
    assert why(store, lease.id).cause is Cause.STOPPING


def test_a_silent_worker_stops_nothing_however_much_it_was_asked(store: Store, clock: ManualClock) -> None:
    served(store)
    put_one(store)
    lease = take_one(store)
    store.cancel(lease.id, by="ann")
    assert why(store, lease.id).cause is Cause.STOPPING
    clock.advance(30)
    found = why(store, lease.id)
    assert found.cause is Cause.STUCK
    assert "worker-1, last seen 30s ago (it should cancel it), and ends at" in found.sentence


def test_a_worker_that_drains_takes_nothing(store: Store) -> None:
    served(store)
    job = put_one(store)
    assert why(store, job.id).cause is Cause.NEXT
    assert store.beat("worker-1", Vitals(state="draining"))
    found = why(store, job.id)
    assert (found.cause, found.link) == (Cause.NO_WORKER, Link("worker", "worker-1"))
    assert found.sentence == (
        f"no running worker serves {MAIL}; the last one, worker-1, finishes what it runs and takes no more"
    )
    [told] = [each for each in Ops(store).status().types if each.name == MAIL]
    assert told.workers == 0


def test_what_fails_is_found_behind_whatever_else_waits(store: Store) -> None:
    put(store, *(a_job() for _ in range(3)))
    for lease in take(store, 3):
        assert settle(store, lease, LATER)
    store.enqueue([a_job() for _ in range(3_500)])
    found = Ops(store).status().verdict
    assert found is not None
    [poison] = [each for each in found.findings if each.cause.value == "poison"]
    assert poison.sentence == f"Jobs of {MAIL} keep failing (ValueError: boom): 3 jobs failed"


def test_a_dead_job_says_what_it_died_of_and_who_has_its_name(store: Store) -> None:
    put_one(store, unique="sync:42")
    lease = take_one(store)
    assert settle(store, lease, DEAD)
    found = why(store, lease.id)
    assert (found.cause, found.blockers) == (Cause.DEAD, ())
    assert found.sentence == (
        "dead since 2026-01-01 00:00:00 UTC after 1 attempt, because of ValueError: boom"
    )
    assert found.fix == f"windlass replay {lease.id}"
    other = put_one(store, unique="sync:42")
    found = why(store, lease.id)
    assert (found.blockers, found.fix) == ((other.id,), None)
    assert f"while job {other.id} holds the unique name 'sync:42'" in found.sentence


def test_a_job_that_waits_for_others_names_them(store: Store) -> None:
    parents = put(store, a_job(), a_job())
    child = put_one(store, depends_on=tuple(ids(parents)))
    found = why(store, child.id)
    assert (found.cause, set(found.blockers)) == (Cause.DEPENDENCY, set(ids(parents)))
    assert "(pending) and 1 other job to complete" in found.sentence
    store.bury(parents[1].id)
    found = why(store, child.id)
    assert found.link == Link("job", parents[1].id)
    assert (found.fix, "(dead)" in found.sentence) == (f"windlass replay {parents[1].id}", True)


def test_a_dead_one_is_seen_among_hundreds_that_a_job_waits_for(store: Store) -> None:
    parents = put(store, *(a_job() for _ in range(150)))
    child = put_one(store, depends_on=tuple(ids(parents)))
    last = max(ids(parents))
    store.bury(last)
    found = why(store, child.id)
    assert (found.link, len(found.blockers)) == (Link("job", last), 150)
    assert "and 149 other jobs" in found.sentence


def test_what_is_shut_says_by_whom_and_until_when(store: Store, clock: ManualClock) -> None:
    served(store)
    job = put_one(store)
    store.pause(MAIL, by="ann", why="the relay is down")
    found = why(store, job.id)
    assert (found.cause, found.link, found.fix) == (
        Cause.PAUSED,
        Link("type", MAIL),
        f"windlass resume {MAIL}",
    )
    assert found.sentence == (f"{MAIL} is paused by ann since 2026-01-01 00:00:00 UTC (the relay is down)")
    store.resume(MAIL, by="ann")

    # The breaker is opened by outcomes, lets one through, and is then opened by hand.
    terms = {MAIL: BreakerTerms()}
    failed = tuple(NewJob(id=job.id, type=MAIL, payload=b"{}").id[:-1] + f"{n:x}" for n in range(10))
    store.note_runs("worker-1", [Runs(name=MAIL, stretches=((1, 0, 0, 10),), failed=failed)], terms)
    clock.advance(2)
    [breaker] = store.note_runs("worker-1", [Runs(name=MAIL)], terms)
    assert breaker.open
    found = why(store, job.id)
    assert (found.cause, found.link, found.since) == (Cause.BREAKER, Link("breaker", MAIL), breaker.at)
    assert found.until == breaker.probe_at
    assert "the next probe may start at 2026-01-01 00:01:02 UTC (in 60s)" in found.sentence
    clock.advance(61)
    assert store.beat("worker-1", Vitals())
    waiting = put_one(store)
    [probe] = claim(store, {MAIL: Restriction(limits={}, breaker=MAIL, probe=MINUTE)})
    found = why(store, waiting.id)
    assert (found.cause, found.blockers) == (Cause.BREAKER, (probe.id,))
    assert f"job {probe.id} runs as the probe" in found.sentence
    store.set_breaker(MAIL, BreakerState.OPEN, by="bob", why="maintenance")
    found = why(store, waiting.id)
    assert "by bob (maintenance); nothing is tried until somebody closes it" in found.sentence


def test_a_job_that_nobody_can_run_says_who_was_there_last(store: Store, clock: ManualClock) -> None:
    job = put_one(store)
    found = why(store, job.id)
    assert (found.cause, found.link) == (Cause.NO_WORKER, Link("type", MAIL))
    assert found.sentence == f"no running worker serves {MAIL}; none has been seen lately"
    served(store)
    clock.advance(300)
    store.join(a_worker("worker-2", types=(REPORT,)))
    found = why(store, job.id)
    assert found.link == Link("worker", "worker-1")
    assert found.sentence == f"no running worker serves {MAIL}; the last one, worker-1, was seen 5m ago"

    served(store, "worker-3")
    newer = put_one(store, schema_version=2)
    found = why(store, newer.id)
    assert (found.cause, found.link) == (Cause.VERSION, Link("worker", "worker-3"))
    assert found.sentence == (
        f"its payload is of version 2, and the running workers of {MAIL} know versions up to 1: "
        "it waits for a worker with newer code"
    )
    served(store, "worker-4", versions={MAIL: 2})
    assert why(store, newer.id).cause is not Cause.VERSION


def test_a_full_limit_names_the_jobs_that_hold_it(store: Store, clock: ManualClock) -> None:
    served(store)
    options = {"concurrency": 2, "limit_key": "crm", "key_limit": {"concurrency": 3}}
    store.register([TypeInfo(name=MAIL, schema={}, options=options)])
    put(store, *(a_job() for _ in range(3)))
    both = {MAIL: Restriction(limits={MAIL: Limit(concurrency=2)}, key="crm")}
    held = claim(store, both)
    waiting = next(job for job in store.find(pending(), limit=5).jobs)
    found = why(store, waiting.id)
    assert (found.cause, found.link) == (Cause.LIMIT, Link("limit", MAIL))
    assert set(found.blockers) == set(ids(held))
    assert found.sentence.startswith(f"{MAIL} may have 2 jobs running at once, and they are ")
    assert found.fix == f"windlass limit {MAIL} --concurrency none"

    # What several types share, and what holds for all of them.
    store.set_settings({f"{MAIL}.concurrency": "none", "key:crm.concurrency": "2"})
    found = why(store, waiting.id)
    assert (found.link, found.fix) == (
        Link("limit", "key:crm"),
        "windlass limit --key crm --concurrency none",
    )
    store.set_settings({"key:crm.concurrency": "none", "*.concurrency": "2"})
    found = why(store, waiting.id)
    assert (found.link, set(found.blockers)) == (Link("limit", "*"), set(ids(held)))
    store.set_settings({"*.concurrency": None, f"{MAIL}.tenant_concurrency": "2"})
    found = why(store, waiting.id)
    assert (found.cause, set(found.blockers)) == (Cause.TENANT_LIMIT, set(ids(held)))
    assert found.sentence.startswith(f"2 jobs of {MAIL} may run at once for jobs without a tenant")
    assert settle(store, held[0], DONE)
    assert why(store, waiting.id).cause is Cause.NEXT


def test_a_blocked_job_is_not_promised_a_start(store: Store, clock: ManualClock) -> None:
    served(store)
    for _ in range(6):
        put_one(store)
        assert settle(store, take_one(store), DONE)
    first, second = put(store, a_job(), a_job())
    clock.advance(20)
    assert store.beat("worker-1", Vitals())
    assert "about" in why(store, second.id).sentence
    store.set_breaker(MAIL, BreakerState.OPEN, by="bob")
    assert why(store, first.id).also == ()
    assert why(store, second.id).also == ("due for 20s, behind 1 job",)
    store.set_breaker(MAIL, BreakerState.CLOSED)
    store.pause(MAIL)
    assert why(store, first.id).also == ()
    assert why(store, second.id).also == ("due for 20s, behind 1 job",)


def test_a_rate_says_when_the_next_token_comes(store: Store, clock: ManualClock) -> None:
    served(store)
    store.set_settings({f"{MAIL}.rate": "6/m"})
    put(store, a_job(), a_job())
    assert len(claim(store, {MAIL: Restriction(limits={MAIL: Limit(rate=Rate(6, 60))})})) == 1
    [waiting] = store.find(pending(), limit=5).jobs
    found = why(store, waiting.id)
    assert (found.cause, found.link) == (Cause.RATE, Link("limit", MAIL))
    assert found.until is not None
    assert timedelta(seconds=9) < found.until - store.now() <= timedelta(seconds=10)
    assert found.sentence.startswith(f"{MAIL} may start 6/m, and the next token comes at ")
    clock.advance(10)
    assert store.beat("worker-1", Vitals())
    assert why(store, waiting.id).cause is Cause.NEXT


def test_a_job_in_line_says_behind_how_many_and_for_about_how_long(store: Store, clock: ManualClock) -> None:
    served(store, slots=1)
    for _ in range(6):
        put_one(store)
        assert settle(store, take_one(store), DONE)
    jobs = put(store, *(a_job() for _ in range(4)), a_job(priority=9))
    clock.advance(20)
    assert store.beat("worker-1", Vitals())
    found = why(store, jobs[3].id)
    assert (found.cause, found.until) == (Cause.BEHIND, store.now() + timedelta(seconds=40))
    assert found.sentence == (
        "due for 20s, behind 4 jobs, 1 of them of a higher priority; at the present rate (6.0/m) about 40s"
    )
    assert why(store, jobs[4].id).cause is Cause.NEXT
    assert store.beat("worker-1", Vitals(busy=1))
    found = why(store, jobs[4].id)
    assert (found.cause, found.link) == (Cause.BUSY, Link("worker", "worker-1"))
    assert found.sentence == "due for 20s and next in line: the only slot is busy"
    clock.advance(60)
    assert store.beat("worker-1", Vitals(busy=1))
    assert "none of those has ended in the last minute" in why(store, jobs[3].id).sentence


def test_other_types_of_the_same_workers_come_first_if_they_are_older_or_more_urgent(store: Store) -> None:
    store.register([TypeInfo(name=name, schema={}) for name in (MAIL, REPORT)])
    put(store, a_job(type=REPORT), a_job(type=REPORT, priority=8))
    job = put_one(store)
    put_one(store, type=REPORT)
    served(store)
    assert why(store, job.id).cause is Cause.NEXT
    served(store, "worker-2", types=(MAIL, REPORT))
    assert "behind 2 jobs, 1 of them of a higher priority" in why(store, job.id).sentence
    store.pause(REPORT)
    assert why(store, job.id).cause is Cause.NEXT


def test_a_tenant_waits_for_its_turn(store: Store) -> None:
    served(store)
    put(store, *(a_job(tenant="acme") for _ in range(50)), a_job(tenant="bolt"))
    job = put_one(store, tenant="crux")
    found = why(store, job.id)
    assert found.cause is Cause.TENANT_TURN
    assert found.sentence.startswith(
        "due for 0ms; it is the first of tenant crux, whose turn comes after 2 jobs of 2 other tenants"
    )
    second = put_one(store, tenant="crux")
    assert "behind 4 jobs" in why(store, second.id).sentence


def test_what_is_counted_is_bounded(store: Store) -> None:
    served(store)
    put(store, *(a_job() for _ in range(1_100)))
    job = put_one(store)
    facts = store.facts(job.id)
    assert facts is not None
    assert facts.ahead.count == 1_000
    assert "behind over 1,000 jobs" in why(store, job.id).sentence


def test_all_that_stands_in_the_way_is_told_the_first_thing_first(store: Store) -> None:
    job = put_one(store, delay=MINUTE)
    store.pause(MAIL, by="ann")
    found = why(store, job.id)
    assert (found.cause, len(found.also)) == (Cause.SCHEDULED, 2)
    assert found.link == Link("job", job.id)
    assert store.facts("nobody") is None


def test_a_job_that_failed_shows_among_the_latest_failures_and_its_group(
    store: Store, clock: ManualClock
) -> None:
    put(store, a_job(), a_job(), a_job(type=REPORT), a_job())
    first, second, third = take(store, 3)
    began = store.now()
    assert settle(store, first, DEAD)
    clock.advance(90)
    assert settle(store, second, DEAD)
    clock.advance(1)
    assert settle(store, third, AGAIN)
    assert ids(store.failures()) == [third.id, second.id, first.id]
    assert ids(store.failures(since=began)) == [third.id, second.id]
    assert ids(store.failures(limit=1)) == [third.id]
    [group] = store.dead_groups().groups
    assert (group.type, group.error, group.reason, group.count) == (MAIL, "ValueError", "exception", 2)
    assert (group.sample, group.message, group.last - group.first) == (
        second.id,
        "boom",
        timedelta(seconds=90),
    )
    assert (sum(group.spark), len(group.spark), group.spark[-2:]) == (2, 24, (1, 1))
    clock.advance(24 * 60)
    put_one(store, type=REPORT)
    store.bury(take_one(store).id)
    [group] = store.dead_groups([MAIL]).groups
    assert (group.count, group.step) == (2, timedelta(minutes=2))
    assert store.dead_groups(["nobody"]).groups == []


def test_a_group_is_exactly_what_the_filter_for_its_error_finds(store: Store) -> None:
    put(store, a_job(), a_job())
    ours, theirs = take(store, 2)
    assert settle(store, ours, Dead(Error(Reason.EXCEPTION, "TimeoutError", "theirs")))
    assert settle(store, theirs, Dead(Error(Reason.TIMEOUT, "TimeoutError", "ours")))
    [group] = store.dead_groups().groups
    found = store.find(Filter(types=(MAIL,), states=(JobState.DEAD,), error=f"={group.error}"), limit=10)
    assert (group.error, group.count, len(found.jobs)) == ("TimeoutError", 2, 2)


def test_the_database_says_how_it_is(store: Store) -> None:
    put_one(store)
    found = store.database()
    assert found.kind in {"sqlite", "postgresql"}
    assert found.size_bytes > 0
    assert {"jobs", "archive"} <= {table.name for table in found.tables}
    # A server that is told not to wait for its disk, as that of these tests is, is told of.
    switched = {setting.name: setting for setting in found.settings if setting.value in {"on", "off"}}
    assert all((each.wanted is None) == (each.value == "on") for each in switched.values())


def pending() -> Filter:
    return Filter(states=(JobState.PENDING,))


def test_a_job_that_dies_again_after_three_replays_is_seen_without_a_sample(
    store: Store, clock: ManualClock
) -> None:
    # As the short run of a worker does it: it samples when it starts, and is gone before anything dies.
    store.take_sample(timedelta(0))
    put_one(store)
    for _ in range(3):
        settle(store, take_one(store), DEAD)
        [job] = store.find(Filter(states=(JobState.DEAD,))).jobs
        assert "WindlassReplaysFail" not in alerts_of(store)
        assert not any("replays" in each for each in Ops(store).status().warnings)
        store.replay(job.id)
    settle(store, take_one(store), DEAD)
    clock.advance(3600)
    assert "WindlassReplaysFail" in alerts_of(store)
    assert any("3 or more replays" in each for each in Ops(store).status().warnings)


def alerts_of(store: Store) -> set[str]:
    return {each.name for each in Ops(store).alerts().alerts}
