"""What does a store remember of what happened?"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from datetime import datetime, timedelta
from typing import cast

import psycopg
import pytest

from tests.conformance.conftest import ENGINES, Place
from tests.conformance.scene import (
    CANCELLED,
    DEAD,
    DONE,
    GIVEN_BACK,
    LATER,
    MAIL,
    REPORT,
    SNOOZED,
    TYPES,
    a_job,
    put,
    put_one,
    settle,
    take,
)
from windlass.clock import ManualClock
from windlass.errors import JobNotFound, StoreUnavailable, WrongState
from windlass.job import JobState, TypeInfo
from windlass.observe import names
from windlass.observe.ledger import Ledger
from windlass.outcome import Outcome
from windlass.store.engine import Settlement
from windlass.store.history import LOOKED, Flush, Happened, Step, counted_of_release
from windlass.store.jobs import Filter
from windlass.store.samples import Sample
from windlass.store.store import Store
from windlass.store.upkeep import Retention

NOW = timedelta(0)


def counted(store: Store, *wanted: str, job_type: str = MAIL) -> dict[str, int]:
    totals = store.totals()
    return {name: totals.get((job_type, name), 0) for name in wanted}


def test_what_happened_adds_up_in_every_step_and_ever(store: Store, clock: ManualClock) -> None:
    store.add_history({(MAIL, "completed"): 2, ("", "renewed"): 1})
    clock.advance(90)
    store.add_history({(MAIL, "completed"): 3})
    assert store.totals() == {(MAIL, "completed"): 5, ("", "renewed"): 1}
    since, now = store.now() - timedelta(days=1), store.now() + timedelta(seconds=1)
    values = {step: [each.value for each in store.history(step, since, now, types=[MAIL])] for step in Step}
    assert values == {Step.MINUTE: [2, 3], Step.HOUR: [5], Step.DAY: [5]}
    assert store.history(Step.MINUTE, now - timedelta(seconds=31), now)[0].value == 3


def test_two_who_count_at_once_lose_nothing(store: Store, other: Store) -> None:
    for _ in range(5):
        store.add_history({(MAIL, "completed"): 1, (REPORT, "completed"): 1})
        other.add_history({(REPORT, "completed"): 1, (MAIL, "completed"): 1})
    assert store.totals() == {(MAIL, "completed"): 10, (REPORT, "completed"): 10}


def test_a_flush_that_is_told_again_counts_once(store: Store, other: Store) -> None:
    happened = {(MAIL, "completed"): 2}
    for number, told in ((1, happened), (1, happened), (2, happened), (1, happened), (2, happened)):
        store.add_history(told, Flush("a", number))
    other.add_history(happened, Flush("b", 1))
    assert store.totals() == {(MAIL, "completed"): 6}


def test_a_flush_without_an_answer_is_told_again_as_it_was(store: Store) -> None:
    class Deaf:
        """A store that writes, and whose answer is lost as often as the test wants."""

        lost = 2

        def add_history(self, happened: Happened, flush: Flush) -> None:
            store.add_history(happened, flush)
            if self.lost:
                self.lost -= 1
                raise StoreUnavailable("the answer was lost")

    ledger = Ledger(cast("Store", Deaf()), "1.0")
    for _ in range(4):
        ledger.count("renewed")
        with contextlib.suppress(StoreUnavailable):
            ledger.tick()
    assert store.totals() == {("", "renewed"): 4}


def test_who_has_told_nothing_for_a_day_is_forgotten(store: Store, clock: ManualClock) -> None:
    store.add_history({(MAIL, "completed"): 1}, Flush("a", 7))
    clock.advance(86_401)
    store.prune(Retention())
    store.add_history({(MAIL, "completed"): 1}, Flush("a", 1))
    assert store.totals() == {(MAIL, "completed"): 2}


def test_releases_are_known_by_when_they_came_and_the_oldest_are_forgotten(
    store: Store, clock: ManualClock
) -> None:
    for number in range(12):
        version = f"2.{number}"
        amounts = {(MAIL, name): 1 for name in counted_of_release(version)}
        store.add_history({**amounts, (MAIL, "started"): 1}, Flush("a", number + 1, frozenset({version})))
        clock.advance(1)
    # Heard of before.
    store.add_history({(MAIL, "started"): 1}, Flush("b", 1, frozenset({"2.0"})))
    assert [each.version for each in store.releases()] == [f"2.{number}" for number in range(11, -1, -1)]
    store.prune(Retention())
    kept = [each.version for each in store.releases()]
    assert kept == [f"2.{number}" for number in range(11, 1, -1)]
    totals = store.totals()
    assert {name for _, name in totals} == {
        "started",
        *(n for each in kept for n in counted_of_release(each)),
    }
    assert totals[MAIL, "started"] == 13


def test_a_release_that_runs_on_behind_ten_newer_ones_is_not_counted_anew(
    store: Store, clock: ManualClock
) -> None:
    for number in range(12):
        version = f"2.{number}"
        amounts = {(MAIL, name): 1 for name in counted_of_release(version)}
        store.add_history(amounts, Flush("a", number + 1, frozenset({version})))
    clock.advance(3 * 60 * 60)
    oldest = {(MAIL, name): 1 for name in counted_of_release("2.0")}
    store.add_history(oldest, Flush("b", 1, frozenset({"2.0"})))
    store.prune(Retention())
    known = [each.version for each in store.releases()]
    assert known[-1] == "2.0"
    assert len(known) == 10
    assert counted(store, *counted_of_release("2.0")) == dict.fromkeys(counted_of_release("2.0"), 2)
    # What has not run for a day has no such right.
    clock.advance(2 * 24 * 60 * 60)
    newest = {(MAIL, name): 1 for name in counted_of_release("3.0")}
    store.add_history(newest, Flush("c", 1, frozenset({"3.0"})))
    store.prune(Retention())
    assert "2.0" not in {each.version for each in store.releases()}


def test_who_calls_each_run_another_release_makes_few_of_them(store: Store) -> None:
    ledger = Ledger(store)
    put(store, *(a_job(type=MAIL) for _ in range(15)))
    for number, lease in enumerate(take(store, 15)):
        ledger.settled([Settlement(lease, DONE, timedelta(seconds=1))], f"2.{number}")
        ledger.tick()
    ledger.settled([Settlement(lease, DONE, timedelta(seconds=1))], "2.3")
    ledger.tick()
    assert len(store.releases()) == 10
    assert counted(store, "started", "release.2.3.attempts") == {"started": 16, "release.2.3.attempts": 2}


def test_all_types_but_some_are_read_as_one(store: Store, clock: ManualClock) -> None:
    since = store.now()
    store.add_history({(f"t{number}", "completed"): number for number in range(5)} | {("", "renewed"): 9})
    store.add_history({("t1", "run.3"): 7, ("t2", "run.sum"): 5, ("t3", "run.sum"): 6})
    clock.advance(1)
    for step in Step:
        found = store.history_of_others(step, since, store.now(), types=["t4"])
        assert [(each.type, each.name, each.value) for each in found] == [
            ("other", "completed", 0 + 1 + 2 + 3),
            ("other", "run.sum", 11),
        ]


def test_an_increase_is_what_was_counted_since(store: Store, clock: ManualClock) -> None:
    store.add_history({(MAIL, "failed"): 7})
    clock.advance(600)
    store.add_history({(MAIL, "failed"): 1})
    found = store.increases([timedelta(minutes=5), timedelta(minutes=30)])
    assert [each[MAIL, "failed"] for each in found.values()] == [1, 8]


def test_an_increase_over_hours_is_exact_to_the_minute(store: Store, clock: ManualClock) -> None:
    # One more each ten minutes, over the turn of several hours.
    for number in range(24):
        store.add_history({(MAIL, "failed"): 10**6 if number < 5 else 1})
        clock.advance(600)
    spans = [timedelta(minutes=10 * each) for each in (1, 5, 7, 13, 19)]
    assert [each[MAIL, "failed"] for each in store.increases(spans).values()] == [1, 5, 7, 13, 19]
    assert store.increases([timedelta(minutes=200)]).popitem()[1][MAIL, "failed"] == 10**6 + 19


def test_a_chart_does_not_read_the_buckets(store: Store) -> None:
    store.add_history({(MAIL, "run.3"): 1, (MAIL, "run.sum"): 5, (MAIL, "started"): 1, (MAIL, "failed.x"): 1})
    since, before = store.now() - timedelta(hours=1), store.now() + timedelta(hours=1)
    for types in (None, [MAIL]):
        found = store.history(Step.MINUTE, since, before, types=types)
        assert [each.name for each in found] == ["run.sum", "started"]


def test_steps_are_pruned_and_totals_stay(store: Store, clock: ManualClock) -> None:
    store.add_history({(MAIL, "completed"): 1})
    began = store.now()
    for days, left in ((3, {Step.HOUR, Step.DAY}), (70, {Step.DAY}), (900, set())):
        clock.advance(days * 86_400)
        store.prune(Retention())
        assert {step for step in Step if store.history(step, began - timedelta(days=1), store.now())} == left
    assert store.totals() == {(MAIL, "completed"): 1}


# --- samples ------------------------------------------------------------------------------------


def test_a_sample_tells_where_every_live_job_stands(store: Store, other: Store, clock: ManualClock) -> None:
    put(store, a_job(priority=9), a_job(priority=9), a_job(type=REPORT), a_job(delay=timedelta(hours=1)))
    [running, dead] = take(store, 2, types={MAIL: 1})
    settle(store, dead, DEAD)
    again = put_one(store, priority=10)
    [lease] = take(store, 1, types={MAIL: 1})
    assert lease.id == again.id
    settle(store, lease, LATER)
    clock.advance(20)
    sample = store.take_sample(NOW)
    assert {(each.type, each.priority, each.view): each.count for each in sample.standing} == {
        (MAIL, 9, "processing"): 1,
        (MAIL, 9, "dead"): 1,
        (MAIL, 10, "retrying"): 1,
        (MAIL, 5, "scheduled"): 1,
        (REPORT, 5, "due"): 1,
    }
    oldest = {each.view: each.oldest for each in sample.standing}
    assert oldest["due"] == timedelta(seconds=20)
    assert set(map(repr, other.sample().standing)) == set(map(repr, sample.standing))
    assert running.token


def test_a_sample_tells_of_tenants_if_operators_name_them(store: Store, clock: ManualClock) -> None:
    put(store, *(a_job(tenant=tenant) for tenant in ("acme", "acme", "globex", "initech", "")))
    put_one(store, tenant="acme", type=REPORT, delay=timedelta(hours=1))
    [running] = take(store, 1)
    clock.advance(20)
    assert store.take_sample(NOW).tenants == ()
    before = store.take_sample(NOW).standing
    store.set_setting("metrics.tenants", "acme, globex")
    sample = store.take_sample(NOW)
    expected: Counter[tuple[str, str]] = Counter(
        {("acme", "due"): 2, ("acme", "scheduled"): 1, ("globex", "due"): 1, ("other", "due"): 2}
    )
    tenant = running.job.tenant if running.job.tenant in ("acme", "globex") else "other"
    expected[tenant, "due"] -= 1
    expected[tenant, "processing"] += 1
    assert {(each.tenant, each.view): each.count for each in sample.tenants} == +expected
    assert {each.oldest for each in sample.tenants if each.view == "due"} == {timedelta(seconds=20)}
    # Nothing else changes by it.
    assert set(map(repr, sample.standing)) == set(map(repr, before))
    assert store.depths().pending == {MAIL: 4, REPORT: 1}
    assert set(map(repr, store.sample().tenants)) == set(map(repr, sample.tenants))
    store.set_setting("metrics.tenants", None)
    assert store.take_sample(NOW).tenants == store.sample().tenants == ()


def test_a_sample_that_is_fresh_is_not_taken_again(store: Store, other: Store, clock: ManualClock) -> None:
    assert store.sample().at is None
    store.take_sample(NOW)
    put_one(store)
    clock.advance(5)
    assert other.take_sample(timedelta(seconds=10)).standing == ()
    clock.advance(6)
    assert other.take_sample(timedelta(seconds=10)).standing[0].count == 1
    assert store.sample().age == NOW


def test_jobs_that_came_in_are_counted_once_wherever_they_are_by_then(
    store: Store, clock: ManualClock
) -> None:
    put(store, *(a_job() for _ in range(5)))
    for lease in take(store, 2):
        settle(store, lease, DONE)
    for expected in (5, 5, 5):
        clock.advance(15)
        store.take_sample(NOW)
        assert counted(store, "enqueued") == {"enqueued": expected}
    put(store, *(a_job() for _ in range(3)))
    clock.advance(15)
    store.take_sample(NOW)
    clock.advance(15)
    store.take_sample(NOW)
    assert counted(store, "enqueued") == {"enqueued": 8}


def test_two_who_sample_at_once_count_each_job_once(store: Store, other: Store, clock: ManualClock) -> None:
    put(store, *(a_job() for _ in range(4)))
    clock.advance(15)
    store.take_sample(NOW)
    other.take_sample(NOW)
    assert counted(store, "enqueued") == {"enqueued": 4}


# In a file one at a time writes, in the order of the numbers.
@pytest.mark.parametrize("url", [name for name in ENGINES if name != "sqlite"], indirect=True)
def test_a_job_of_a_transaction_that_commits_late_is_counted_too(
    url: str, place: Place, store: Store
) -> None:
    with psycopg.connect(url) as mine:
        store.enqueue_on(mine, [a_job()])
        put(store, a_job(), a_job())
        for _ in range(3):
            store.take_sample(NOW)
        assert counted(store, "enqueued") == {"enqueued": 2}
        mine.commit()
    store.take_sample(NOW)
    assert counted(store, "enqueued") == {"enqueued": 3}
    store.take_sample(NOW)
    assert counted(store, "enqueued") == {"enqueued": 3}


class RandomHistory:
    """Does things to jobs by chance, and keeps count of them."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store = store
        self._chance = random.Random(seed)
        self._ledger = Ledger(store)
        self.expected: Counter[tuple[str, str]] = Counter()

    def step(self) -> None:
        chosen = self._chance.choice(("enqueue", "work", "work", "act", "act", "look"))
        getattr(self, chosen)()

    def enqueue(self) -> None:
        count = self._chance.randrange(1, 6)
        jobs = [
            a_job(type=self._chance.choice((*TYPES,)), priority=self._chance.randrange(11))
            for _ in range(count)
        ]
        put(self._store, *jobs)
        self.expected.update((job.type, "enqueued") for job in jobs)

    def work(self) -> None:
        for lease in take(self._store, self._chance.randrange(1, 4)):
            name = self._chance.choice((*ENDS,))
            settlement = Settlement(lease, ENDS[name], timedelta(seconds=1))
            assert self._store.settle([settlement]) == []
            self._ledger.settled([settlement])
            happened = [name, "started", *(["failed"] if name in ("retried", "dead") else [])]
            self.expected.update((lease.job.type, each) for each in happened)

    def act(self) -> None:
        verb = self._chance.choice((*VERBS,))
        state, name = VERBS[verb]
        for job in self._store.find(Filter(states=(state,)), limit=2).jobs:
            getattr(self._store, verb)(job.id)
            self.expected[job.type, name] += 1

    def look(self) -> Sample:
        self._ledger.tick()
        return self._store.take_sample(NOW)


ENDS: dict[str, Outcome] = {
    "completed": DONE,
    "retried": LATER,
    "dead": DEAD,
    "snoozed": SNOOZED,
    "released": GIVEN_BACK,
    "cancelled": CANCELLED,
}
VERBS = {
    "bury": (JobState.PENDING, "dead"),
    "cancel": (JobState.PENDING, "cancelled"),
    "replay": (JobState.DEAD, "replayed"),
    "discard": (JobState.DEAD, "discarded"),
}


@pytest.mark.parametrize("seed", range(2))
def test_after_a_random_history_every_count_is_what_the_store_holds(
    store: Store, clock: ManualClock, seed: int
) -> None:
    history = RandomHistory(store, seed)
    for number in range(30):
        clock.advance((1, 5, 40)[number % 3])
        history.step()
    sample, totals = history.look(), store.totals()
    counted_names = {name for _, name in history.expected}
    assert {of: value for of, value in totals.items() if of[1] in counted_names} == history.expected
    everything = store.find(Filter(), limit=1_000).jobs
    for job_type in TYPES:
        here = Counter(job.state.value for job in everything if job.type == job_type)
        assert here.total() == totals.get((job_type, names.ENQUEUED), 0)
        for state in ("completed", "cancelled", "discarded"):
            assert here[state] == totals.get((job_type, state), 0)
        standing = Counter[str]()
        for each in sample.standing:
            standing[each.view] += each.count if each.type == job_type else 0
        assert standing["dead"] == here["dead"]
        assert standing.total() == here["pending"] + here["processing"] + here["dead"]


# --- alerts -------------------------------------------------------------------------------------


def test_an_alert_is_known_since_it_first_held_until_whoever_was_told_hears_of_its_end(
    store: Store, other: Store, clock: ManualClock
) -> None:
    began = store.now()
    of = ("QueueDeep", '{"type":"mail"}')
    store.notice({of: 1.0})
    clock.advance(60)
    [_, deep] = other.notice({of: 2.0})
    assert (deep.since, deep.value, deep.told) == (began, 2.0, False)
    assert [store.may_tell(*of, fires=True), other.may_tell(*of, fires=True)] == [True, False]
    store.told(*of, fires=True)
    assert not other.may_tell(*of, fires=True)
    assert [each.told for each in other.notice({}) if each.name] == [True]
    assert store.may_tell(*of, fires=False)
    store.told(*of, fires=False)
    assert [each.name for each in other.notice({})] == [LOOKED]


def test_whoever_is_killed_before_the_word_is_out_is_followed_by_another(
    store: Store, other: Store, clock: ManualClock
) -> None:
    of = ("QueueDeep", '{"type":"mail"}')
    store.notice({of: 1.0})
    assert store.may_tell(*of, fires=True)
    # Killed here. The others wait for a minute, in case it is only slow.
    clock.advance(60)
    assert [each.told for each in other.notice({of: 1.0}) if each.name] == [False]
    assert not other.may_tell(*of, fires=True)
    clock.advance(1)
    other.notice({of: 1.0})
    assert other.may_tell(*of, fires=True)
    # Nobody answered: the next one may try at once.
    other.told(*of, fires=None)
    assert store.may_tell(*of, fires=True)


def test_the_oldest_record_is_known_to_the_day(store: Store, clock: ManualClock) -> None:
    assert store.oldest_record() is None
    put_one(store)
    for lease in take(store):
        settle(store, lease, DONE)
    ended: datetime = store.now()
    clock.advance(3 * 86_400)
    oldest = store.oldest_record()
    assert oldest is not None
    assert timedelta(0) <= ended - oldest < timedelta(days=1)


def test_an_acknowledgement_counts_once_for_each_job_wherever_it_is(store: Store, clock: ManualClock) -> None:
    waiting, ended = put(store, a_job(), a_job())
    assert store.confirm(waiting.id)
    [first, second] = take(store, 2)
    for lease in (first, second):
        assert settle(store, lease, DONE)
    assert store.confirm(ended.id)
    assert not store.confirm(ended.id)
    assert not store.confirm(waiting.id)
    assert store.totals()[MAIL, names.CONFIRMED] == 2
    with pytest.raises(JobNotFound):
        store.confirm("0198c0de-0000-7000-8000-000000000001")
    # What is forgotten with its record can be acknowledged no more.
    clock.advance(10 * 86_400)
    while store.prune(Retention(ended=timedelta(days=1), dead=timedelta(days=1))):
        pass
    with pytest.raises(JobNotFound):
        store.confirm(ended.id)


def test_a_job_that_was_cancelled_or_discarded_cannot_be_acknowledged(store: Store) -> None:
    cancelled, discarded = put(store, a_job(), a_job())
    store.cancel(cancelled.id)
    store.bury(discarded.id)
    store.discard(discarded.id)
    for job, state in ((cancelled, "cancelled"), (discarded, "discarded")):
        with pytest.raises(WrongState, match=f"it is {state}; confirm is for pending, processing, completed"):
            store.confirm(job.id)
    assert (MAIL, names.CONFIRMED) not in store.totals()


def test_how_much_was_due_is_known_by_the_minute(store: Store, clock: ManualClock) -> None:
    store.register([TypeInfo(name=name, schema={}) for name in TYPES])
    for count in (2, 3):
        put(store, *(a_job() for _ in range(count)))
        put_one(store, delay=timedelta(hours=1))
        clock.advance(60)
        store.take_sample(timedelta(0))
    assert store.gauges(names.DUE, timedelta(minutes=5))[MAIL] == [2, 5]
    clock.advance(600)
    assert store.gauges(names.DUE, timedelta(minutes=5)) == {}
