"""Does looking find the right jobs, newest first, however many there are and whatever happens meanwhile?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.conformance.scene import (
    AGAIN,
    DEAD,
    DONE,
    LATER,
    MAIL,
    REPORT,
    a_job,
    a_payload,
    a_worker,
    ids,
    in_every_state,
    in_state,
    look_up,
    put,
    put_one,
    settle,
    take,
    take_new,
    take_one,
)
from windlass.clock import ManualClock, uuid7
from windlass.errors import InvalidValue
from windlass.job import Error, JobState, Reason
from windlass.ops import Ops
from windlass.outcome import Dead
from windlass.store import jobs
from windlass.store.jobs import Filter
from windlass.store.store import Store


def pages(store: Store, where: Filter, limit: int) -> list[list[str]]:
    found, cursor = [], None
    while True:
        page = store.find(where, limit=limit, cursor=cursor)
        found.append(ids(page.jobs))
        cursor = page.next
        if cursor is None:
            return found


# --- one job ------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", list(JobState))
def test_a_job_is_found_by_id_and_by_key_in_every_state(store: Store, other: Store, state: JobState) -> None:
    job = in_state(store, state, key="signup:789")
    assert other.get(job.id) == other.get("signup:789") == job


def test_what_is_not_there_is_not_found(store: Store) -> None:
    assert store.get(uuid7()) is None
    assert store.get("no such key") is None
    assert store.get("") is None


# --- pages --------------------------------------------------------------------------------------


def test_nothing_is_an_empty_page(store: Store) -> None:
    page = store.find(Filter())
    assert (page.jobs, page.next) == ([], None)


def test_live_and_archived_jobs_are_listed_together_newest_first(store: Store) -> None:
    made = in_every_state(store)
    page = store.find(Filter())
    assert (page.jobs, page.next) == (list(reversed(made)), None)


@pytest.mark.parametrize("limit", [1, 2, 5, 11, 12, 13, 50])
def test_pages_meet_without_gap_or_overlap(store: Store, limit: int) -> None:
    made = ids(reversed(in_every_state(store)))
    found = pages(store, Filter(), limit)
    assert [one for page in found for one in page] == made
    assert all(len(page) == limit for page in found[:-1])


def test_a_page_that_ends_exactly_at_the_end_says_so(store: Store) -> None:
    put(store, *(a_job() for _ in range(4)))
    assert pages(store, Filter(), 2)[-1] != []


def test_jobs_that_arrive_meanwhile_do_not_move_the_pages(store: Store) -> None:
    made = ids(put(store, *(a_job() for _ in range(6))))
    first = store.find(Filter(), limit=2)
    put(store, *(a_job(priority=9) for _ in range(5)))
    second = store.find(Filter(), limit=2, cursor=first.next)
    assert ids(first.jobs) + ids(second.jobs) == made[:1:-1]


def test_a_job_that_ends_meanwhile_is_neither_missed_nor_seen_twice(store: Store) -> None:
    made = ids(put(store, *(a_job() for _ in range(6))))
    first = store.find(Filter(), limit=2)
    for lease in take(store, limit=6):
        assert settle(store, lease, DONE)
    rest = store.find(Filter(), limit=10, cursor=first.next)
    assert ids(first.jobs) + ids(rest.jobs) == list(reversed(made))


def test_a_cursor_works_with_the_filter_it_was_made_for(store: Store) -> None:
    made = put(store, *(a_job(type=(MAIL, REPORT)[number % 2]) for number in range(10)))
    reports = [job.id for job in reversed(made) if job.type == REPORT]
    assert pages(store, Filter(types=(REPORT,)), 2) == [reports[0:2], reports[2:4], reports[4:5]]


@pytest.mark.parametrize("cursor", ["nonsense", "", "-1", "9" * 40, "1; drop table jobs", "\0"])
def test_a_cursor_that_nobody_gave_is_refused(store: Store, cursor: str) -> None:
    put_one(store)
    with pytest.raises(InvalidValue) as refused:
        store.find(Filter(), cursor=cursor)
    assert refused.value.field == "cursor"


def test_a_page_of_a_thousand(store: Store) -> None:
    made = put(store, *(a_job() for _ in range(1005)))
    page = store.find(Filter(), limit=1000)
    assert ids(page.jobs) == ids(reversed(made[5:]))
    assert page.next is not None


# --- filters ------------------------------------------------------------------------------------


@pytest.fixture
def crowd(store: Store, clock: ManualClock) -> dict[str, str]:
    """Jobs by name, each different from the others in many ways."""
    named: dict[str, str] = {}

    def keep(name: str, job_id: str) -> None:
        named[name] = job_id
        clock.advance(60)

    keep("completed", in_state(store, JobState.COMPLETED, tenant="acme").id)
    keep("cancelled", in_state(store, JobState.CANCELLED, type=REPORT).id)
    lease = take_new(store, key="dead-key", payload=a_payload(to="x", deep={"n": 1, "list": [1]}))
    assert settle(store, lease, Dead(Error(Reason.TIMEOUT, "TimeoutError", "too slow for 100% of us")))
    keep("dead", lease.id)
    lease = take_new(store, type=REPORT, tenant="acme")
    assert settle(store, lease, DEAD)
    store.discard(lease.id)
    keep("discarded", lease.id)
    lease = take_new(store)
    assert settle(store, lease, LATER.__class__(timedelta(days=1), LATER.error))
    keep("retrying", lease.id)
    keep("scheduled", put_one(store, delay=timedelta(days=1), payload=a_payload(deep={"n": "1"})).id)
    store.join(a_worker("worker-1"))
    keep("stuck", take_new(store, payload=a_payload(flag=True, n=None)).id)
    keep("running", take_new(store, payload=a_payload(flag=False, big=2**40, f=1.5)).id)
    store.extend(
        [lease for lease in store.held_by("worker-1") if lease.id == named["running"]], timedelta(hours=1)
    )
    clock.advance(60)
    keep("due", put_one(store, tenant="acme", type=REPORT, payload=a_payload(deep={"n": 2})).id)
    return named


FILTERS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["due", "running", "stuck", "scheduled", "retrying", "discarded", "dead", "cancelled", "completed"]),
    ({"types": (REPORT,)}, ["due", "discarded", "cancelled"]),
    (
        {"types": (REPORT, MAIL)},
        ["due", "running", "stuck", "scheduled", "retrying", "discarded", "dead", "cancelled", "completed"],
    ),
    ({"types": ("no.such",)}, []),
    ({"states": (JobState.PENDING,)}, ["due", "scheduled", "retrying"]),
    ({"states": (JobState.PROCESSING,)}, ["running", "stuck"]),
    ({"states": (JobState.DEAD, JobState.DISCARDED)}, ["discarded", "dead"]),
    ({"states": (JobState.COMPLETED, JobState.PENDING)}, ["due", "scheduled", "retrying", "completed"]),
    ({"view": "due"}, ["due"]),
    ({"view": "scheduled"}, ["scheduled"]),
    ({"view": "retrying"}, ["retrying"]),
    ({"view": "stuck"}, ["stuck"]),
    ({"tenant": "acme"}, ["due", "discarded", "completed"]),
    ({"tenant": ""}, ["running", "stuck", "scheduled", "retrying", "dead", "cancelled"]),
    ({"key": "dead-key"}, ["dead"]),
    ({"error": "timeout"}, ["dead"]),
    ({"error": "exception"}, ["retrying", "discarded"]),
    ({"payload": {("deep", "n"): 1}}, ["dead"]),
    ({"payload": {("deep", "n"): "1"}}, ["scheduled"]),
    ({"payload": {("n",): None}}, ["stuck"]),
    ({"payload": {("flag",): True}}, ["stuck"]),
    ({"payload": {("flag",): False}}, ["running"]),
    ({"payload": {("big",): 2**40}}, ["running"]),
    ({"payload": {("f",): 1.5}}, ["running"]),
    ({"payload": {("deep", "n"): 1, ("to",): "x"}}, ["dead"]),
    ({"payload": {("deep", "n"): 1, ("to",): "y"}}, []),
    ({"payload": {("no", "such"): 1}}, []),
    ({"payload": {("deep", "list", "0"): 1}}, []),
    ({"payload": {("flag",): 1}}, []),
    ({"payload": {("big",): float(2**40)}}, ["running"]),
    ({"types": (REPORT,), "tenant": "acme", "states": (JobState.PENDING,)}, ["due"]),
]


@pytest.mark.parametrize(("fields", "expected"), FILTERS, ids=lambda value: str(value)[:60])
def test_a_filter_finds_and_counts_the_same_jobs(
    store: Store, crowd: dict[str, str], fields: dict[str, Any], expected: list[str]
) -> None:
    names = {job_id: name for name, job_id in crowd.items()}
    where = Filter(**fields)
    assert [names[job.id] for job in store.find(where).jobs] == expected
    assert store.count(where, limit=1000) == len(expected)
    assert sum(counted(store, where, window=3)) == len(expected)
    assert [names[one] for page in pages(store, where, 2) for one in page] == expected


def counted(store: Store, where: Filter, window: int) -> Iterator[int]:
    cursor: str | None = None
    while True:
        found = store.count_next(where, window=window, cursor=cursor)
        yield found.count
        cursor = found.next
        if cursor is None:
            return


def test_a_count_goes_on_where_it_has_come_to_and_ends(store: Store) -> None:
    assert list(counted(store, Filter(), window=3)) == [0]
    put(store, *(a_job() for _ in range(8)))
    parts = list(counted(store, Filter(), window=3))
    assert (sum(parts), max(parts)) == (8, 3)


def test_a_filter_of_ids_finds_those_live_or_archived(store: Store, crowd: dict[str, str]) -> None:
    wanted = (crowd["completed"], crowd["due"], uuid7())
    assert ids(store.find(Filter(ids=wanted)).jobs) == [crowd["due"], crowd["completed"]]


def test_a_job_is_older_by_its_making(store: Store, clock: ManualClock) -> None:
    old = put_one(store)
    clock.advance(timedelta(hours=2))
    put_one(store)
    assert ids(store.find(Filter(older_than=timedelta(hours=1))).jobs) == [old.id]
    assert store.find(Filter(older_than=timedelta(hours=3))).jobs == []


def test_counting_stops_at_its_limit(store: Store) -> None:
    put(store, *(a_job() for _ in range(20)))
    assert store.count(Filter(), limit=7) == 7
    assert store.count(Filter(), limit=20) == 20


@pytest.mark.parametrize("text", ["'; drop table jobs; --", '"', "%", "a.b", "$[0]", "\\", "ä\U0001f40d"])
def test_odd_words_in_a_filter_are_only_words(store: Store, text: str) -> None:
    job = put_one(store, tenant=text, key=text, payload=a_payload(**{text: text}))
    put_one(store)
    for fields in ({"tenant": text}, {"key": text}, {"payload": {(text,): text}}):
        assert ids(store.find(Filter(**fields)).jobs) == [job.id], fields
    assert store.find(Filter(types=(text,), error=text)).jobs == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *(("timeout", True), ("builtins.TimeoutError", True), ("timeouterror", True), ('said "no"', True)),
        *(
            ("100% of us", True),
            ("ü", True),
            ("reason", False),
            ("message", False),
            ("%", True),
            ("_", False),
        ),
    ],
)
def test_an_error_is_found_by_its_reason_its_class_and_its_words(
    store: Store, text: str, *, found: bool
) -> None:
    lease = take_new(store)
    error = Error(Reason.TIMEOUT, "builtins.TimeoutError", 'it said "no" to 100% of us, ü')
    assert settle(store, lease, Dead(error))
    put_one(store)
    assert ids(store.find(Filter(error=text)).jobs) == ([lease.id] if found else [])


@pytest.mark.parametrize("value", [[1], {"a": 1}, object(), 2**80, float("nan"), float("inf")])
def test_a_payload_is_compared_with_single_values_only(store: Store, value: object) -> None:
    with pytest.raises(InvalidValue, match="payload"):
        store.find(Filter(payload={("n",): value}))


# --- counts -------------------------------------------------------------------------------------


def test_the_counts_of_an_empty_store_are_empty(store: Store) -> None:
    counts = store.counts()
    assert (counts.counts, counts.capped, counts.now) == ([], False, store.now())


def test_every_job_is_counted_once_where_it_stands(store: Store, crowd: dict[str, str]) -> None:
    counted = {(one.type, one.state, one.view): one.count for one in store.counts().counts if one.count}
    assert counted == {
        (MAIL, JobState.COMPLETED, None): 1,
        (REPORT, JobState.CANCELLED, None): 1,
        (MAIL, JobState.DEAD, None): 1,
        (REPORT, JobState.DISCARDED, None): 1,
        (MAIL, JobState.PENDING, "retrying"): 1,
        (MAIL, JobState.PENDING, "scheduled"): 1,
        (MAIL, JobState.PROCESSING, "stuck"): 1,
        (MAIL, JobState.PROCESSING, None): 1,
        (REPORT, JobState.PENDING, "due"): 1,
    }


def test_counts_of_ended_jobs_are_right_however_many_there_are(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_MOST_ENDED", 2)
    for _ in range(3):
        put_one(store)
        assert settle(store, take_one(store), DONE)
    for job in put(store, *(a_job(type=REPORT) for _ in range(4))):
        store.cancel(job.id)

    def ended() -> dict[tuple[str, JobState], int]:
        return {(one.type, one.state): one.count for one in store.counts().counts}

    # Nobody has told of the completions yet.
    assert ended() == {(REPORT, JobState.CANCELLED): 4}
    store.add_history({(MAIL, "completed"): 3})
    assert ended() == {(MAIL, JobState.COMPLETED): 3, (REPORT, JobState.CANCELLED): 4}
    assert not store.counts().capped


def test_counts_that_may_be_too_low_say_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_MOST_ENDED", 2)
    for number in range(3):
        assert store.counts().capped is (number >= 2)
        put_one(store)
        assert settle(store, take_one(store), DONE)
    store.add_history({(MAIL, "completed"): 3})
    assert not store.counts().capped


def test_a_job_that_came_due_counts_as_due_before_anybody_promoted_it(
    store: Store, clock: ManualClock
) -> None:
    put(store, a_job(), a_job(delay=timedelta(seconds=5)))
    clock.advance(6)
    assert sum(one.count for one in store.counts().counts if one.view == "due") == 2


def oldest(store: Store) -> timedelta | None:
    waits = [one.oldest for one in store.counts().counts if one.view == "due" and one.oldest is not None]
    return max(waits, default=None)


def test_the_oldest_due_job_is_the_one_that_waited_longest(store: Store, clock: ManualClock) -> None:
    put(store, a_job(delay=timedelta(seconds=50)), a_job(priority=8), a_job(priority=9))
    clock.advance(60)
    store.promote()
    assert oldest(store) == timedelta(seconds=60)
    take_one(store)
    assert oldest(store) == timedelta(seconds=60)
    take_one(store)
    assert oldest(store) == timedelta(seconds=10)


def test_a_job_whose_time_has_come_is_due_before_a_worker_lets_it_in(
    store: Store, clock: ManualClock
) -> None:
    def due() -> list[tuple[int, int | None, timedelta | None]]:
        return [(one.count, one.priority, one.oldest) for one in store.counts().counts if one.view == "due"]

    put(store, a_job(delay=timedelta(seconds=50), priority=8))
    assert due() == []
    clock.advance(60)
    seen = due()
    store.promote()
    assert seen == due() == [(1, 8, timedelta(seconds=10))]


def test_a_retried_job_waits_from_the_time_of_its_retry(store: Store, clock: ManualClock) -> None:
    lease = take_new(store)
    clock.advance(100)
    assert settle(store, lease, AGAIN)
    clock.advance(5)
    assert oldest(store) == timedelta(seconds=5)
    assert look_up(store, lease.id).view(store.now()) == "due"


def test_counts_keep_types_apart(store: Store) -> None:
    put(store, a_job(type=MAIL), a_job(type=MAIL), a_job(type=REPORT))
    assert sorted((one.type, one.count) for one in store.counts().counts) == [(MAIL, 2), (REPORT, 1)]


# --- window by window ---------------------------------------------------------------------------


def test_a_window_looks_at_so_many_numbers_and_tells_where_to_go_on(store: Store) -> None:
    jobs = put(store, *(a_job(tenant="rare" if number in {1, 8} else "") for number in range(10)))
    assert settle(store, take_one(store), DONE)
    rare = Filter(tenant="rare")
    looked: list[list[str]] = []
    cursor: str | None = None
    while not looked or cursor is not None:
        page = store.find(rare, limit=5, cursor=cursor, window=3)
        looked.append(ids(page.jobs))
        cursor = page.next
    assert looked[:3] == [[jobs[8].id], [], [jobs[1].id]]
    assert not any(looked[3:])
    # A page that is full goes on behind its last job, wherever the window ends.
    page = store.find(Filter(), limit=2, window=5)
    assert ids(page.jobs) == [jobs[9].id, jobs[8].id]
    assert ids(store.find(Filter(), limit=9, cursor=page.next, window=100).jobs) == ids(reversed(jobs[:8]))


def test_nothing_is_missed_or_met_twice_by_a_search_in_bounded_time(store: Store) -> None:
    jobs = put(store, *(a_job(tenant="rare" if number % 7 == 0 else "") for number in range(50)))
    ops = Ops(store)
    page = ops.find(Filter(tenant="rare"), limit=3, within=timedelta(0))
    found = ids(page.jobs)
    while page.next is not None:
        page = ops.find(Filter(tenant="rare"), limit=3, cursor=page.next, within=timedelta(0))
        found += ids(page.jobs)
    assert found == ids(reversed(jobs[::7]))


def test_an_error_is_found_by_exactly_its_class_or_reason(store: Store) -> None:
    put_one(store)
    first = take_one(store)
    assert settle(store, first, DEAD)
    second = put_one(store)
    store.bury(second.id)
    assert ids(store.find(Filter(error="=ValueError")).jobs) == [first.id]
    assert store.find(Filter(error="=Value")).jobs == []
    assert ids(store.find(Filter(error="=cancelled")).jobs) == [second.id]
