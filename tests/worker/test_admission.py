"""Does a worker hold back what operators hold back?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from tests.worker.scene import Still, claim_ahead
from windlass.errors import FatalError, StoreUnavailable
from windlass.job import JobState
from windlass.ops import Ops
from windlass.policy import BreakerTerms, Limit, Retry
from windlass.store.engine import Claimed, Want
from windlass.store.flow import Breaker, Runs, Switches


def test_a_paused_type_is_not_claimed_and_others_are(still: Still) -> None:
    still.handler(still.gate.pass_through, "other")
    still.build()
    held, free = still.put(2)[0], still.put(1, "other")[0]
    still.store.pause("wait")
    still.parts.heartbeat.tick()
    still.parts.live.refresh()

    still.run_claimed(1)

    assert still.job(held).state is JobState.PENDING
    assert still.job(held).attempts == 0
    assert still.job(free).state is JobState.PROCESSING


def test_a_resumed_type_is_claimed_at_once(still: Still) -> None:
    still.store.pause("wait")
    still.build()
    still.parts.live.refresh()
    [job] = still.put()
    still.parts.claimer.tick()
    assert still.job(job).state is JobState.PENDING

    still.store.resume("wait")
    still.parts.live.refresh()
    still.run_claimed(1)

    assert still.job(job).state is JobState.PROCESSING


def test_a_replayed_job_of_a_paused_type_waits_for_the_resume(still: Still) -> None:
    parts = still.build()
    jobs = still.put(3)
    for job in jobs:
        still.store.bury(job.id)
    still.store.pause("wait")
    parts.live.refresh()
    for job in jobs:
        still.store.replay(job.id)
    parts.triggers.hint()
    parts.claimer.tick()
    assert {still.job(job).state for job in jobs} == {JobState.PENDING}

    still.store.resume("wait")
    parts.live.refresh()
    still.run_claimed(3)
    assert {still.job(job).state for job in jobs} == {JobState.PROCESSING}


def test_what_waits_for_a_slot_is_given_back(still: Still) -> None:
    parts = still.build(threads=1)
    claim_ahead(parts, "wait", still.clock.monotonic())
    jobs = still.put(3)
    still.run_claimed(1)
    assert len(parts.pools[0].waiting) == 2

    still.store.pause("wait")
    parts.live.refresh()
    assert parts.triggers.woken.is_set()
    parts.claimer.tick()
    still.settle()

    assert len(parts.pools[0].waiting) == 0
    assert [still.job(job).state for job in jobs] == [
        JobState.PROCESSING,
        JobState.PENDING,
        JobState.PENDING,
    ]
    assert [still.job(job).attempts for job in jobs] == [1, 0, 0]


def test_a_change_that_a_look_tells_of_wakes_who_reads_it(still: Still) -> None:
    parts = still.build()
    woken: list[bool] = []
    parts.live.loop.wake = lambda: woken.append(True)  # type: ignore[method-assign]
    parts.heartbeat.tick()
    assert not woken

    still.store.pause("wait")
    parts.heartbeat.tick()
    assert woken == [True]

    parts.live.refresh()
    parts.heartbeat.tick()
    assert woken == [True]


# --- limits -------------------------------------------------------------------------------------


def test_a_limit_in_code_holds_and_the_end_of_a_job_lets_the_next_one_start(still: Still) -> None:
    still.handler(still.gate.pass_through, "few", concurrency=2)
    still.build(threads=5)
    still.opened.wakeup.subscribe(still.parts.triggers.hint)
    still.parts.live.refresh()
    jobs = still.put(5, "few")
    still.run_claimed(2)
    still.parts.claimer.tick()
    assert [still.job(job).state.value for job in jobs] == ["processing"] * 2 + ["pending"] * 3

    still.finish()
    still.parts.claimer.tick()
    still.gate.reach(4)
    still.finish()
    assert [still.job(job).state.value for job in jobs] == ["completed"] * 4 + ["pending"]


def test_an_operators_limit_stands_above_the_code_until_it_is_reset(still: Still) -> None:
    still.handler(still.gate.pass_through, "few", concurrency=1)
    still.build(threads=5)
    ops = Ops(still.store, wakeup=still.opened.wakeup)
    still.store.register([still.parts.handlers["few"].info()])
    ops.set_limit("few", {"concurrency": "3"})
    still.parts.live.refresh()
    still.put(5, "few")
    still.run_claimed(3)

    ops.reset_limit("few")
    still.parts.live.refresh()
    assert still.parts.admission.restricted["few"].limits["few"].concurrency == 1


def test_a_key_is_limited_in_code_and_by_operators(still: Still) -> None:
    still.handler(still.gate.pass_through, "one", limit_key="crm")
    still.handler(still.gate.pass_through, "two", limit_key="crm")
    still.registry.limits["crm"] = Limit(concurrency=2)
    still.build(threads=5)
    still.parts.live.refresh()
    still.put(2, "one")
    still.put(2, "two")
    still.run_claimed(2)
    still.parts.claimer.tick()
    assert still.parts.pools[0].busy == 2

    still.store.register([still.parts.handlers["one"].info()])
    Ops(still.store).set_limit("key:crm", {"concurrency": "3"})
    still.parts.live.refresh()
    still.parts.claimer.tick()
    still.gate.reach(3)
    assert still.parts.pools[0].busy == 3


def test_a_rate_wakes_the_claimer_when_its_next_token_is_there(still: Still) -> None:
    still.handler(still.gate.pass_through, "slow", rate="1/s")
    still.build(threads=5)
    still.parts.live.refresh()
    still.put(3, "slow")
    still.run_claimed(1)
    wait = still.parts.claimer.tick()
    assert 0 < wait <= 1
    still.clock.advance(1)
    still.parts.heartbeat.tick()
    still.parts.claimer.tick()
    still.gate.reach(2)


def test_what_one_portion_of_a_pool_does_not_find_keeps_no_other_one_waiting(
    still: Still, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        still.handler(still.gate.pass_through, name, concurrency=1)
    parts = still.build(threads=5)
    parts.live.refresh()
    # As for types that declare their memory: each is asked for by itself.
    portions = [({name: 1}, 5) for name in ("one", "two")]
    monkeypatch.setattr(parts.pools[0], "shares_memory", True)
    monkeypatch.setattr(parts.pools[0], "portions", lambda _: iter(portions))
    still.put(1, "two")
    still.run_claimed(1)


def test_limited_types_are_never_claimed_ahead(still: Still) -> None:
    still.handler(still.gate.pass_through, "few", concurrency=50)
    parts = still.build(threads=2)
    parts.live.refresh()
    claim_ahead(parts, "few", still.clock.monotonic())
    still.put(10, "few")
    still.run_claimed(2)
    assert len(parts.pools[0].waiting) == 0


def test_what_runs_when_a_limit_is_set_counts_under_it(still: Still) -> None:
    parts = still.build(threads=5)
    still.put(2)
    still.run_claimed(2)
    still.store.set_setting("wait.concurrency", "3")
    parts.live.refresh()
    still.put(4)
    parts.triggers.hint()
    parts.claimer.tick()
    still.gate.reach(3)
    parts.claimer.tick()
    assert parts.pools[0].busy == 3


# --- breakers -----------------------------------------------------------------------------------


def _fail() -> None:
    raise ConnectionError("it is down")


def test_a_breaker_opens_probes_and_closes(still: Still) -> None:
    down = True

    def call() -> None:
        if down:
            _fail()

    still.handler(call, "sync", retry=Retry(base=1, jitter=0))
    parts = still.build(threads=10)
    parts.live.refresh()
    jobs = still.put(30, "sync", max_attempts=20)

    _work(still)
    parts.live.tick()
    still.pass_time(2)
    parts.live.tick()
    assert still.store.switches().breakers["sync"].open
    spent = sum(still.job(job).attempts for job in jobs)

    for _ in range(5):
        still.pass_time(10)
        _work(still)
    assert sum(still.job(job).attempts for job in jobs) == spent

    still.pass_time(10)
    _work(still)
    parts.live.tick()
    assert sum(still.job(job).attempts for job in jobs) == spent + 1

    down = False
    still.pass_time(60)
    _work(still)
    parts.live.tick()
    assert not still.store.switches().breakers["sync"].open
    still.pass_time(60)
    for _ in range(4):
        _work(still)
    assert all(still.job(job).state is JobState.COMPLETED for job in jobs)


def _work(still: Still) -> None:
    """One claim, and what it claimed to its end."""
    still.parts.triggers.hint()
    still.parts.claimer.tick()
    still.until(still.parts.idle)
    still.settle()


def test_failures_that_the_store_did_not_hear_of_are_told_again(
    still: Still, monkeypatch: pytest.MonkeyPatch
) -> None:
    still.handler(_fail, "sync")
    parts = still.build()
    parts.live.refresh()
    still.put(2, "sync", max_attempts=20)
    _work(still)

    with monkeypatch.context() as away:
        away.setattr(still.store, "note_runs", _be_away)
        with pytest.raises(StoreUnavailable):
            parts.live.tick()
    assert not still.store.switches().failing
    still.pass_time(60)
    parts.live.tick()

    assert still.store.switches().failing == {"sync"}


def test_of_what_was_told_only_the_news_is_told_again(still: Still, monkeypatch: pytest.MonkeyPatch) -> None:
    still.handler(_fail, "sync")
    parts = still.build()
    parts.live.refresh()
    heard: list[int] = []
    note_runs = still.store.note_runs

    def hear(worker: str, runs: Sequence[Runs], terms: Mapping[str, BreakerTerms]) -> list[Breaker]:
        heard.extend(len(each.stretches) for each in runs)
        return note_runs(worker, runs, terms)

    monkeypatch.setattr(still.store, "note_runs", hear)
    for _ in range(3):
        still.put(1, "sync")
        _work(still)
        parts.live.tick()
        still.pass_time(5)
    assert heard == [1, 1, 1]


def test_of_runs_no_more_is_kept_than_a_breaker_looks_at(still: Still) -> None:
    still.handler(lambda: None, "sync")
    parts = still.build()
    parts.live.refresh()
    for _ in range(80):
        still.put(1, "sync")
        _work(still)
        still.pass_time(5)
        parts.live.tick()
    # Five minutes, five seconds each.
    kept = [len(each.stretches) for each in parts.breaker_counts._counts.values()]  # noqa: SLF001 - all there is
    assert 59 <= sum(kept) <= 61


def _be_away(*_: object) -> None:
    raise StoreUnavailable("the store is away")


def test_fatal_errors_and_lost_workers_open_no_breaker(still: Still) -> None:
    def call() -> None:
        raise FatalError("it is the payload's fault")

    still.handler(call, "sync")
    parts = still.build(threads=10)
    still.put(20, "sync")
    _work(still)
    _work(still)
    still.pass_time(3)
    parts.live.tick()
    assert still.store.switches() == Switches()


def test_many_successes_before_a_few_failures_keep_it_closed(still: Still) -> None:
    down = False

    def call() -> None:
        if down:
            _fail()

    still.handler(call, "sync")
    parts = still.build(threads=10)
    still.put(60, "sync")
    for _ in range(6):
        _work(still)
    down = True
    still.put(12, "sync")
    for _ in range(2):
        _work(still)
    parts.live.tick()
    still.pass_time(3)
    parts.live.tick()
    assert still.store.switches().failing == {"sync"}
    assert not still.store.switches().breakers


def test_a_slot_that_an_unlimited_job_leaves_is_taken_by_a_limited_one_at_once(still: Still) -> None:
    still.handler(still.gate.pass_through, "few", concurrency=5)
    parts = still.build(threads=2)
    parts.live.refresh()
    still.put(2, "wait", priority=9)
    [limited] = still.put(1, "few")
    still.run_claimed(2)
    parts.triggers.woken.clear()

    still.gate.let()
    still.until(parts.triggers.woken.is_set)
    parts.claimer.tick()
    still.finish()
    assert still.job(limited).state is JobState.COMPLETED


def test_a_limited_job_is_not_starved_by_what_is_claimed_ahead(still: Still) -> None:
    still.handler(still.gate.pass_through, "few", concurrency=1)
    parts = still.build(threads=4)
    parts.live.refresh()
    claim_ahead(parts, "wait", still.clock.monotonic())
    still.put(60)
    still.run_claimed(4)
    assert len(parts.pools[0].waiting) == 56

    [job] = still.put(1, "few")
    parts.triggers.hint()
    parts.claimer.tick()
    assert still.job(job).state is JobState.PROCESSING
    assert len(parts.pools[0].waiting) == 57


def test_what_came_due_while_enough_wait_is_not_asked_for_again_and_again(still: Still) -> None:
    still.handler(still.gate.pass_through, "few", concurrency=1)
    parts = still.build(threads=4)
    parts.live.refresh()
    claim_ahead(parts, "wait", still.clock.monotonic())
    still.put(400)
    [later] = still.put(1, delay=timedelta(seconds=0.5))
    still.run_claimed(4)
    assert not parts.pools[0].low
    parts.heartbeat.tick()
    parts.claimer.tick()
    still.clock.advance(0.6)
    assert parts.claimer.tick() > 0
    assert parts.claimer.tick() > 0
    assert still.job(later).claims == 0


# --- whose is a permit that came free? ------------------------------------------------------------


class Fleet:
    """What one worker asks for, and how often it tells the others that there may be something for them."""

    def __init__(self, still: Still, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[set[str]] = []
        self._told = 0
        claim = still.store.claim

        def asking(want: Want) -> Claimed:
            self.asked.append(set(want.types))
            return claim(want)

        monkeypatch.setattr(still.store, "claim", asking)
        monkeypatch.setattr(still.opened.wakeup, "notify", self._notify)

    def told(self) -> int:
        """How often so far."""
        return self._told

    def _notify(self) -> None:
        self._told += 1


def test_who_ended_a_limited_job_asks_for_the_next_one_alone_and_tells_nobody(
    still: Still, monkeypatch: pytest.MonkeyPatch
) -> None:
    still.handler(lambda: None, "few", concurrency=1)
    fleet = Fleet(still, monkeypatch)
    parts = still.build(threads=3)
    parts.live.refresh()
    jobs = still.put(3, "few")
    parts.claimer.tick()
    fleet.asked.clear()

    for _ in range(2):
        still.until(parts.idle)
        still.settle()
        parts.claimer.tick()
    still.until(parts.idle)

    assert fleet.asked == [{"few"}] * 2, "nothing new is known of the others"
    assert [still.job(job).claims for job in jobs] == [1, 1, 1]
    assert not fleet.told(), "its permit was never free"


def test_others_are_told_of_a_permit_that_is_not_used_here(
    still: Still, monkeypatch: pytest.MonkeyPatch
) -> None:
    still.handler(still.gate.pass_through, "few", concurrency=1)
    fleet = Fleet(still, monkeypatch)
    parts = still.build(threads=3)
    parts.live.refresh()
    still.put(1, "few")
    still.run_claimed(1)
    parts.claimer.tick()
    assert not fleet.told()

    still.finish()
    parts.claimer.tick()
    assert fleet.told() == 1
    parts.claimer.tick()
    assert fleet.told() == 1, "once"


def test_others_are_told_of_a_permit_whose_slot_here_went_to_a_job_under_another_limit(
    still: Still, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("few", "rare"):
        still.handler(still.gate.pass_through, name, concurrency=1)
    fleet = Fleet(still, monkeypatch)
    parts = still.build(threads=1)
    parts.live.refresh()
    still.put(1, "few")
    still.run_claimed(1)
    [rare], [few] = still.put(1, "rare"), still.put(1, "few")

    still.finish()
    parts.claimer.tick()
    assert [still.job(job).claims for job in (rare, few)] == [1, 0]
    assert fleet.told() == 1


@pytest.mark.parametrize(("served", "told"), [(("one", "two"), 0), (("one",), 1)])
def test_who_serves_only_some_of_the_types_that_share_a_limit_keeps_no_permit_to_itself(
    still: Still, monkeypatch: pytest.MonkeyPatch, served: tuple[str, ...], told: int
) -> None:
    for name in ("one", "two"):
        still.handler(lambda: None, name, limit_key="crm")
    still.registry.limits["crm"] = Limit(concurrency=1)
    infos = [handler.info() for name in ("one", "two") if (handler := still.registry.get(name)) is not None]
    still.store.register(infos)
    fleet = Fleet(still, monkeypatch)
    parts = still.build(types=served)
    parts.live.refresh()
    jobs = still.put(2, "one")
    parts.claimer.tick()
    still.until(parts.idle)
    still.settle()
    parts.claimer.tick()
    assert [still.job(job).claims for job in jobs] == [1, 1]
    assert fleet.told() == told


def test_others_are_told_of_a_permit_that_comes_free_while_this_worker_stops(
    still: Still, monkeypatch: pytest.MonkeyPatch
) -> None:
    still.handler(still.gate.pass_through, "few", concurrency=1)
    fleet = Fleet(still, monkeypatch)
    parts = still.build(threads=3)
    parts.live.refresh()
    still.put(2, "few")
    still.run_claimed(1)
    parts.claimer.close(timeout=1)
    still.finish()
    assert fleet.told() == 1


def test_others_are_told_of_a_permit_that_came_free_just_before_this_worker_stopped(
    still: Still, monkeypatch: pytest.MonkeyPatch
) -> None:
    still.handler(still.gate.pass_through, "few", concurrency=1)
    fleet = Fleet(still, monkeypatch)
    parts = still.build(threads=3)
    parts.live.refresh()
    still.put(2, "few")
    still.run_claimed(1)
    still.finish()
    assert not fleet.told()
    parts.claimer.close(timeout=1)
    assert fleet.told() == 1


def test_the_end_of_a_job_frees_nothing_where_only_the_rate_is_limited(still: Still) -> None:
    still.handler(lambda: None, "often", rate="50/s")
    still.handler(lambda: None, "few", concurrency=1)
    parts = still.build()
    parts.live.refresh()
    assert not parts.admission.limited("often")
    assert parts.admission.limited("few")
    assert not parts.admission.limited("wait")


def test_who_took_the_last_token_of_a_rate_asks_first_for_the_next_one(still: Still) -> None:
    still.handler(still.gate.pass_through, "slow", rate="1/s")
    parts = still.build(threads=5)
    parts.live.refresh()
    still.put(3, "slow")
    first = parts.claimer.tick()
    assert 0 < first <= 1
    # As one that was not the last to take one.
    parts.triggers.permit()
    assert first + 0.024 <= parts.claimer.tick() <= first + 0.051


# --- work that goes on after its time -----------------------------------------------------------


def test_a_thread_past_its_time_keeps_its_permit_until_it_ends(still: Still) -> None:
    still.handler(still.gate.pass_through, "few", concurrency=1, timeout=5)
    parts = still.build(threads=3)
    parts.live.refresh()
    first, second = still.put(2, "few")
    still.run_claimed(1)
    still.clock.advance(6)
    parts.heartbeat.tick()
    parts.timeouts.tick()
    still.settle()
    assert still.job(first).state is JobState.PENDING, "its attempt has ended"

    parts.triggers.hint()
    parts.claimer.tick()
    assert still.job(second).attempts == 0, "the thread of the first one still runs"

    still.gate.let()
    still.until(lambda: parts.pools[0].held == 0)
    still.settle()
    parts.claimer.tick()
    still.gate.reach(2)
