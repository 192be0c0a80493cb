"""Does every fire time come to something exactly once, and is what became of it told?"""

from __future__ import annotations

import itertools
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from tests.conformance.conftest import Place
from tests.conformance.contenders import at_once, won
from tests.conformance.scene import DEAD, DONE, MAIL, REPORT, a_worker, look_up, settle, take, take_one
from windlass.clock import ManualClock
from windlass.errors import ScheduleConflict, ScheduleNotFound
from windlass.job import JobState, TypeInfo, View
from windlass.outcome import Left
from windlass.schedule import NewSchedule, Timing
from windlass.store.engine import Want
from windlass.store.fleet import Vitals
from windlass.store.jobs import Filter
from windlass.store.schedules import REMEMBERED, Fire, Fired, FireOutcome, Origin
from windlass.store.store import Store

HOUR = timedelta(hours=1)
# The test's clock begins at midnight, the first of January 2026.
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ENQUEUED, SKIPPED, MISSED = FireOutcome.ENQUEUED, FireOutcome.SKIPPED, FireOutcome.MISSED


def hourly(name: str = "hourly", **changes: Any) -> NewSchedule:
    """A schedule that fires on the hour."""
    timing = {name: changes.pop(name) for name in list(changes) if name in Timing.__struct_fields__}
    fields: dict[str, Any] = {"name": name, "type": MAIL, "payload": b'{"to":"ann"}'}
    return NewSchedule(timing=Timing(**({"cron": "0 * * * *"} | timing)), **(fields | changes))


def told(fires: list[Fire]) -> list[tuple[str, FireOutcome]]:
    return [(f"{fire.at:%d %H:%M}", fire.outcome) for fire in fires]


def jobs(store: Store) -> list[str]:
    """The keys of all jobs, oldest first."""
    return [job.key or "" for job in store.find(Filter(), limit=1000).jobs][::-1]


# --- firing -------------------------------------------------------------------------------------


def test_a_schedule_makes_its_job_at_its_time_once(store: Store, clock: ManualClock) -> None:
    store.add_schedule(
        hourly(payload=b'{"to":"bob"}', schema_version=3, tenant="t", priority=7, max_attempts=2)
    )
    assert store.fire() == Fired((), HOUR)
    clock.advance(HOUR)
    fired = store.fire()
    assert fired.next_in == HOUR
    assert store.fire().jobs == ()
    [job_id] = fired.jobs
    job = look_up(store, "schedule:hourly:2026-01-01T01:00:00Z")
    assert (job.id, job.type, bytes(job.payload), job.schema_version) == (job_id, MAIL, b'{"to":"bob"}', 3)
    assert (job.tenant, job.priority, job.max_attempts, job.run_at) == ("t", 7, 2, BEGIN + HOUR)
    assert take(store, types={MAIL: 3})[0].id == job_id


def test_without_schedules_there_is_nothing_to_wait_for(store: Store) -> None:
    assert store.fire() == Fired((), None)


def test_a_worker_s_look_tells_when_the_next_one_fires(store: Store, clock: ManualClock) -> None:
    assert store.look("me", {}).next_fire is None
    store.add_schedule(hourly())
    store.add_schedule(hourly("paused", cron="* * * * *"))
    store.pause_schedule("paused")
    assert store.look("me", {}).next_fire == HOUR
    clock.advance(HOUR + timedelta(seconds=1))
    assert store.look("me", {}).next_fire == timedelta(seconds=-1)


def test_a_fire_takes_what_holds_for_the_type_then(store: Store, clock: ManualClock) -> None:
    said = {"priority": 8, "max_attempts": 3, "said": ["priority", "max_attempts"]}
    store.register([TypeInfo(name=MAIL, schema={}, options=said)])
    store.add_schedule(hourly(overlap="queue"))
    clock.advance(HOUR)
    store.fire()
    store.set_setting(f"{MAIL}.max_attempts", "11")
    clock.advance(HOUR)
    store.fire()
    made = [look_up(store, f"schedule:hourly:2026-01-01T0{hour}:00:00Z") for hour in (1, 2)]
    assert [(job.priority, job.max_attempts) for job in made] == [(8, 3), (8, 11)]


def test_jitter_moves_the_run_and_not_the_fire_time(store: Store, clock: ManualClock) -> None:
    store.add_schedule(hourly(jitter=timedelta(minutes=30)))
    clock.advance(HOUR)
    store.fire()
    job = look_up(store, "schedule:hourly:2026-01-01T01:00:00Z")
    assert BEGIN + HOUR < job.run_at <= BEGIN + HOUR + timedelta(minutes=30)
    assert take(store) == []
    assert store.schedule("hourly").next_at == BEGIN + 2 * HOUR


@pytest.mark.parametrize(
    ("catch_up", "made", "history"),
    [
        ("none", [], [("01 01:00", MISSED)]),
        ("last", ["04:00"], [("01 04:00", ENQUEUED), ("01 01:00", MISSED)]),
        (
            "all",
            ["01:00", "02:00", "03:00", "04:00"],
            [(f"01 0{hour}:00", ENQUEUED) for hour in (4, 3, 2, 1)],
        ),
    ],
)
def test_what_passed_while_nobody_was_there(
    store: Store, clock: ManualClock, catch_up: str, made: list[str], history: list[tuple[str, FireOutcome]]
) -> None:
    store.add_schedule(hourly(catch_up=catch_up, overlap="queue"))
    clock.advance(4.5 * 3600)
    assert len(store.fire().jobs) == len(made)
    assert jobs(store) == [f"schedule:hourly:2026-01-01T{time}:00Z" for time in made]
    assert told(store.fires("hourly")) == history
    assert store.schedule("hourly").next_at == BEGIN + 5 * HOUR


def test_catching_up_with_thousands_takes_several_turns_and_leaves_none_out(
    store: Store, clock: ManualClock
) -> None:
    store.add_schedule(hourly(cron=None, every=timedelta(minutes=1), catch_up="all", overlap="queue"))
    clock.advance(5 * HOUR)
    made: list[str] = []
    while fired := store.fire().jobs:
        made += fired
    assert len(made) == len(set(jobs(store))) == 300
    assert len(store.fires("hourly", limit=1000)) == 300
    # Of runs that have ended only the last are remembered; the others go little by little.
    for lease in take(store, 300):
        assert settle(store, lease, DONE)
    for _ in range(3):
        clock.advance(60)
        store.fire()
    assert len(store.fires("hourly", limit=1000)) == REMEMBERED + 1


def test_a_run_that_takes_long_is_not_forgotten(store: Store, clock: ManualClock) -> None:
    store.add_schedule(hourly(cron=None, every=timedelta(minutes=1)))
    for _ in range(REMEMBERED + 20):
        clock.advance(60)
        store.fire()
    assert len(jobs(store)) == 1


def test_a_run_that_has_not_ended_lets_the_next_be_skipped(store: Store, clock: ManualClock) -> None:
    store.add_schedule(hourly())
    clock.advance(HOUR)
    store.fire()
    lease = take_one(store)
    clock.advance(HOUR)
    assert store.fire().jobs == ()
    settle(store, lease, DONE)
    clock.advance(HOUR)
    assert len(store.fire().jobs) == 1
    # Dead is ended, too.
    settle(store, take_one(store), DEAD)
    clock.advance(HOUR)
    assert len(store.fire().jobs) == 1
    assert told(store.fires("hourly")) == [
        ("01 04:00", ENQUEUED),
        ("01 03:00", ENQUEUED),
        ("01 02:00", SKIPPED),
        ("01 01:00", ENQUEUED),
    ]
    states = [fire.job_state for fire in store.fires("hourly")]
    assert states == [JobState.PENDING, JobState.DEAD, None, JobState.COMPLETED]


# The payload of a newer release. The release that is there reads `to` alone.
NEWER = b'{"to":"ann","copy":"bob"}'
UNREADABLE = Left(None, reader="old", field="payload.copy", problem="payload.copy is unknown")


def test_an_unreadable_run_does_not_hold_up_runs_with_another_payload(
    store: Store, clock: ManualClock
) -> None:
    store.add_schedule(hourly(payload=NEWER))
    clock.advance(HOUR)
    store.fire()
    aside = take_one(store)
    assert settle(store, aside, UNREADABLE)
    store.add_schedule(hourly(), replace=True)
    clock.advance(HOUR)
    [fired] = store.fire().jobs
    assert take_one(store).id == fired
    assert look_up(store, aside.id).view(store.now()) is View.UNREADABLE
    # The run that works is a run like any other: the next one does not start beside it.
    clock.advance(HOUR)
    assert store.fire().jobs == ()
    assert told(store.fires("hourly")) == [
        ("01 03:00", SKIPPED),
        ("01 02:00", ENQUEUED),
        ("01 01:00", ENQUEUED),
    ]


def test_unreadable_runs_with_the_same_payload_do_not_pile_up(store: Store, clock: ManualClock) -> None:
    store.add_schedule(hourly(payload=NEWER))
    clock.advance(HOUR)
    store.fire()
    assert settle(store, take_one(store), UNREADABLE)
    clock.advance(HOUR)
    assert store.fire().jobs == ()
    assert told(store.fires("hourly")) == [("01 02:00", SKIPPED), ("01 01:00", ENQUEUED)]


def test_an_unreadable_run_that_another_release_has_taken_holds_up_the_next(
    store: Store, clock: ManualClock
) -> None:
    store.add_schedule(hourly(payload=NEWER))
    clock.advance(HOUR)
    store.fire()
    assert settle(store, take_one(store), UNREADABLE)
    assert store.claim(Want(worker="new", types={MAIL: 1}, limit=1, lease=HOUR * 9, reader="new")).leases
    store.add_schedule(hourly(), replace=True)
    clock.advance(HOUR)
    assert store.fire().jobs == ()


def test_a_run_of_a_newer_schema_version_does_not_hold_up_older_ones(
    store: Store, clock: ManualClock
) -> None:
    store.add_schedule(hourly(schema_version=2))
    clock.advance(HOUR)
    store.fire()
    assert take(store) == []
    store.add_schedule(hourly(), replace=True)
    clock.advance(HOUR)
    [fired] = store.fire().jobs
    assert take_one(store).id == fired


def test_runs_that_may_overlap_stand_in_line(store: Store, clock: ManualClock) -> None:
    store.add_schedule(hourly(overlap="queue"))
    for _ in range(3):
        clock.advance(HOUR)
        store.fire()
    assert len(take(store, 10)) == 3


def test_no_schedule_passes_the_highest_priority_of_its_type(store: Store, clock: ManualClock) -> None:
    store.register([TypeInfo(name=MAIL, schema={}, options={"priority": 5, "max_priority": 3})])
    store.add_schedule(hourly("silent"))
    store.add_schedule(hourly("urgent", priority=9))
    store.add_schedule(hourly("lazy", priority=1))
    clock.advance(HOUR)
    store.fire()
    found = {str(job.key).split(":")[1]: job.priority for job in store.find(Filter(), limit=10).jobs}
    assert found == {"silent": 3, "urgent": 3, "lazy": 1}


def test_many_schedules_fire_each_for_itself(store: Store, clock: ManualClock) -> None:
    for number in range(120):
        store.add_schedule(hourly(f"s{number}"))
    clock.advance(HOUR)
    made = [*store.fire().jobs, *store.fire().jobs]
    assert len(made) == len(set(made)) == 120


def test_one_that_cannot_be_fired_says_so_and_keeps_nobody_else_from_it(
    store: Store, clock: ManualClock
) -> None:
    store.add_schedule(hourly("good"))
    store.add_schedule(hourly("lost"))
    # As if another machine, with zones that this one has not got, had made it.
    store.add_schedule(hourly("odd"))
    _give_zone(store, "odd", "Atlantis/Capital")
    clock.advance(HOUR)
    assert len(store.fire().jobs) == 2
    odd = store.schedule("odd")
    assert odd.problem is not None
    assert "tz must be the name of a time zone" in odd.problem
    assert odd.next_at == BEGIN + HOUR
    # Fixed, it catches up.
    _give_zone(store, "odd", "UTC")
    assert len(store.fire().jobs) == 1
    assert store.schedule("odd").problem is None


def test_those_that_cannot_be_fired_do_not_stand_before_the_others(store: Store, clock: ManualClock) -> None:
    for number in range(100):
        store.add_schedule(hourly(f"odd{number}"))
        _give_zone(store, f"odd{number}", "Atlantis/Capital")
    clock.advance(HOUR)
    assert store.fire().jobs == ()
    store.add_schedule(hourly("good"))
    clock.advance(HOUR)
    assert len(store.fire().jobs) == 1


def _give_zone(store: Any, name: str, zone: str) -> None:
    """Write a zone that no verb would take."""

    def write(tx: Any) -> None:
        row = tx.row("schedule", name=name)
        tx.change("change_schedule", **{**row, "tz": zone, "now": tx.now})

    store._write(write)  # noqa: SLF001


# --- races --------------------------------------------------------------------------------------


def test_ten_schedulers_at_one_instant_fire_once(store: Store, other: Store, clock: ManualClock) -> None:
    for number in range(3):
        store.add_schedule(hourly(f"s{number}", overlap="queue"))
    for hour in range(1, 21):
        clock.advance(HOUR)
        answers = won(at_once(*(opening.fire for opening in (store, other) * 5)))
        made = list(itertools.chain.from_iterable(answer.jobs for answer in answers))
        assert len(made) == len(set(made)) == 3, f"hour {hour}"
    assert len(jobs(store)) == len(set(jobs(store))) == 60


def test_a_fire_and_a_pause_at_one_instant(store: Store, other: Store, clock: ManualClock) -> None:
    store.add_schedule(hourly(overlap="queue"))
    for _ in range(30):
        clock.advance(HOUR)
        fired, paused = at_once(store.fire, partial(other.pause_schedule, "hourly"))
        assert not isinstance(fired, Exception), fired
        assert not isinstance(paused, Exception), paused
        # Paused is paused: whoever came first, nothing comes after it.
        assert store.fire().jobs == ()
        store.resume_schedule("hourly")
    outcomes = {fire.at: fire.outcome for fire in store.fires("hourly")}
    assert len(outcomes) == 30
    assert set(outcomes.values()) <= {ENQUEUED, MISSED}


def test_a_change_and_a_fire_at_one_instant_deal_with_a_fire_time_once(
    store: Store, other: Store, clock: ManualClock
) -> None:
    store.add_schedule(hourly(overlap="queue"))
    for hour in range(1, 31):
        clock.advance(HOUR)
        cron = f"{hour % 2} * * * *"
        changed = hourly(overlap="queue", cron=cron)
        won(at_once(store.fire, partial(other.add_schedule, changed, replace=True)))
        store.fire()
        found = [fire for fire in store.fires("hourly") if fire.at == BEGIN + hour * HOUR]
        assert len(found) <= 1
    assert len(jobs(store)) == len(set(jobs(store)))


def test_many_who_declare_the_same_at_one_instant(store: Store, place: Place) -> None:
    stores = [store, *(place.open() for _ in range(3))]
    wanted = [hourly(f"s{number}") for number in range(5)]
    won(at_once(*(partial(each.declare, wanted, [MAIL]) for each in stores)))
    assert [each.name for each in store.schedules()] == [f"s{number}" for number in range(5)]


def test_schedulers_that_run_while_schedules_come_and_go(
    store: Store, other: Store, clock: ManualClock
) -> None:
    stop = threading.Event()

    def keep_firing(opening: Store) -> int:
        count = 0
        while not stop.is_set():
            count += len(opening.fire().jobs)
        return count

    def come_and_go() -> int:
        for number in range(40):
            store.add_schedule(hourly(f"s{number}"))
            clock.advance(HOUR)
            if number % 3 == 0:
                store.remove_schedule(f"s{number}")
        stop.set()
        return 0

    counts = won(at_once(partial(keep_firing, store), partial(keep_firing, other), come_and_go))
    assert sum(counts) == len(jobs(store))


# --- what code declares -------------------------------------------------------------------------


def test_what_code_declares_is_entered_and_follows_the_code(store: Store, clock: ManualClock) -> None:
    assert store.declare([hourly()], [MAIL]) == []
    assert store.schedule("hourly").origin is Origin.CODE
    clock.advance(HOUR / 2)
    # The same again changes nothing, other options change it, other times start from now.
    before = store.schedule("hourly")
    store.declare([hourly()], [MAIL])
    assert store.schedule("hourly") == before
    store.declare([hourly(priority=9)], [MAIL])
    assert store.schedule("hourly").new.priority == 9
    assert store.schedule("hourly").next_at == BEGIN + HOUR
    clock.advance(1)
    store.declare([hourly(cron="15 * * * *")], [MAIL])
    assert store.schedule("hourly").next_at == BEGIN + 1.25 * HOUR


def test_a_deploy_after_an_outage_still_catches_up(store: Store, clock: ManualClock) -> None:
    store.declare([hourly()], [MAIL])
    clock.advance(3 * HOUR)
    store.declare([hourly(priority=9)], [MAIL])
    assert len(store.fire().jobs) == 1


def test_times_that_passed_before_they_were_changed_are_told(store: Store, clock: ManualClock) -> None:
    store.declare([hourly()], [MAIL])
    clock.advance(1.5 * 3600)
    store.declare([hourly(cron="0 12 * * *")], [MAIL])
    assert store.fire().jobs == ()
    [missed] = store.fires("hourly")
    assert (missed.at, missed.outcome, missed.until) == (BEGIN + HOUR, MISSED, BEGIN + 1.5 * HOUR)


def test_a_pause_survives_what_code_declares(store: Store, clock: ManualClock) -> None:
    store.declare([hourly()], [MAIL])
    store.pause_schedule("hourly", by="ann")
    store.declare([hourly(cron="5 * * * *")], [MAIL])
    clock.advance(3 * HOUR)
    assert store.fire().jobs == ()
    found = store.schedule("hourly")
    assert (found.paused, found.paused_by, found.paused_at) == (True, "ann", BEGIN)


def test_what_code_declares_no_more_is_kept_and_fires_no_more(store: Store, clock: ManualClock) -> None:
    store.declare([hourly(), hourly("report", type=REPORT)], [MAIL, REPORT])
    clock.advance(HOUR / 2)
    # Whoever has not got the type knows nothing about it.
    store.declare([], [REPORT])
    assert [each.withdrawn for each in store.schedules()] == [False, True]
    clock.advance(HOUR / 2)
    assert len(store.fire().jobs) == 1
    # Declared again, it goes on from then.
    store.declare([hourly("report", type=REPORT)], [REPORT])
    assert not store.schedule("report").withdrawn
    assert store.schedule("report").next_at == BEGIN + 2 * HOUR


# --- functions that are gone --------------------------------------------------------------------


def declared(store: Store, clock: ManualClock) -> None:
    """A worker of the old code has declared an hourly schedule and left; one of the new code has not."""
    store.join(a_worker("old", types=(MAIL,)))
    store.declare([hourly()], [MAIL])
    clock.advance(HOUR)
    store.beat("old", Vitals())
    store.leave("old")
    store.join(a_worker("new", types=(REPORT,)))


def still_there(store: Store) -> None:
    assert store.beat("new", Vitals())


def test_a_schedule_whose_function_is_gone_stops_after_a_grace(store: Store, clock: ManualClock) -> None:
    declared(store, clock)
    assert len(store.fire().jobs) == 1, "the old worker was there a moment ago"
    assert not store.schedule("hourly").orphaned
    clock.advance(HOUR)
    still_there(store)
    assert store.schedule("hourly").orphaned
    assert store.fire() == Fired((), None)
    assert store.look("new", {}).next_fire is None
    assert len(jobs(store)) == 1


def test_a_function_that_comes_back_fires_by_its_catch_up_policy(
    store: Store, other: Store, clock: ManualClock
) -> None:
    declared(store, clock)
    store.fire()
    clock.advance(4 * HOUR)
    still_there(store)
    assert store.fire().jobs == ()
    other.join(a_worker("back", types=(MAIL,)))
    other.declare([hourly()], [MAIL])
    settle(store, take_one(store), DONE)
    assert len(other.fire().jobs) == 1
    assert not store.schedule("hourly").orphaned
    assert told(store.fires("hourly"))[:2] == [("01 05:00", ENQUEUED), ("01 02:00", MISSED)]


def test_one_live_worker_with_the_function_is_enough(store: Store, clock: ManualClock) -> None:
    declared(store, clock)
    store.join(a_worker("one", types=("mail.*",)))
    clock.advance(HOUR)
    still_there(store)
    assert store.beat("one", Vitals())
    assert len(store.fire().jobs) == 1


def test_a_fleet_that_is_scaled_down_to_none_keeps_its_schedules(store: Store, clock: ManualClock) -> None:
    declared(store, clock)
    store.leave("new")
    clock.advance(HOUR)
    assert not store.schedule("hourly").orphaned
    assert len(store.fire().jobs) == 1


def test_an_operators_schedule_is_never_orphaned(store: Store, clock: ManualClock) -> None:
    declared(store, clock)
    store.add_schedule(hourly("mine"))
    clock.advance(HOUR)
    still_there(store)
    assert len(store.fire().jobs) == 1
    assert not store.schedule("mine").orphaned


def test_the_grace_can_be_set(store: Store, clock: ManualClock) -> None:
    declared(store, clock)
    clock.advance(HOUR)
    still_there(store)
    store.set_setting("schedules.orphan_after", "none")
    assert not store.schedule("hourly").orphaned
    store.set_setting("schedules.orphan_after", "2h")
    assert not store.schedule("hourly").orphaned
    store.set_setting("schedules.orphan_after", "30m")
    assert store.schedule("hourly").orphaned


def test_an_orphaned_schedule_can_be_removed(store: Store, clock: ManualClock) -> None:
    declared(store, clock)
    clock.advance(HOUR)
    still_there(store)
    store.remove_schedule("hourly", by="ann")
    with pytest.raises(ScheduleNotFound):
        store.schedule("hourly")


def test_an_operators_schedule_stands_above_the_codes(store: Store) -> None:
    store.declare([hourly()], [MAIL])
    store.add_schedule(hourly(cron="30 * * * *"), replace=True)
    assert store.declare([hourly()], [MAIL]) == ["hourly"]
    assert store.schedule("hourly").new.timing.cron == "30 * * * *"
    # Removed, it makes way for the code's.
    store.remove_schedule("hourly")
    assert store.declare([hourly()], [MAIL]) == []
    assert store.schedule("hourly").new.timing.cron == "0 * * * *"


# --- what operators do --------------------------------------------------------------------------


def test_a_name_is_given_once_unless_it_is_to_be_replaced(store: Store) -> None:
    store.add_schedule(hourly())
    with pytest.raises(ScheduleConflict, match="schedule 'hourly' exists already; --replace puts"):
        store.add_schedule(hourly(type=REPORT))
    assert store.add_schedule(hourly(type=REPORT), replace=True).new.type == REPORT


def test_what_passes_during_a_pause_is_told_and_not_caught_up_with(store: Store, clock: ManualClock) -> None:
    store.add_schedule(hourly(catch_up="all", overlap="queue"))
    store.pause_schedule("hourly", by="ann")
    clock.advance(3.5 * 3600)
    assert store.fire().next_in is None
    resumed = store.resume_schedule("hourly")
    assert (resumed.paused, resumed.paused_by, resumed.next_at) == (False, None, BEGIN + 4 * HOUR)
    assert store.fire().jobs == ()
    assert told(store.fires("hourly")) == [("01 01:00", MISSED)]
    # Resumed once more it is only where it was.
    assert store.resume_schedule("hourly") == resumed


def test_a_run_by_hand_stands_beside_the_fire_times(store: Store, clock: ManualClock) -> None:
    store.add_schedule(hourly(jitter=HOUR))
    store.pause_schedule("hourly")
    clock.advance(90)
    first = store.run_schedule("hourly", by="ann")
    second = store.run_schedule("hourly", by="bob")
    assert take_one(store).id == first
    assert store.schedule("hourly").next_at == BEGIN + HOUR
    fires = store.fires("hourly")
    assert [(fire.made_by, fire.job_id) for fire in fires] == [("bob", second), ("ann", first)]


def test_one_request_makes_one_run_by_hand(store: Store, other: Store) -> None:
    store.add_schedule(hourly())
    first = store.run_schedule("hourly", by="ann", request_id="r1")
    assert other.run_schedule("hourly", by="ann", request_id="r1") == first
    assert [fire.job_id for fire in store.fires("hourly")] == [first]
    assert [each.verb for each in store.audit(target="hourly").entries].count("run") == 1
    assert store.run_schedule("hourly", by="ann", request_id="r2") != first


def test_a_run_by_hand_that_has_not_ended_is_a_run(store: Store, clock: ManualClock) -> None:
    store.add_schedule(hourly())
    store.run_schedule("hourly", by="ann")
    clock.advance(HOUR)
    assert store.fire().jobs == ()


def test_a_schedule_that_is_removed_leaves_its_jobs(store: Store, clock: ManualClock) -> None:
    store.add_schedule(hourly())
    clock.advance(HOUR)
    [job_id] = store.fire().jobs
    store.remove_schedule("hourly")
    assert look_up(store, job_id).state is JobState.PENDING
    with pytest.raises(ScheduleNotFound):
        store.schedule("hourly")


def test_a_fire_time_whose_job_is_known_makes_no_second_one(store: Store, clock: ManualClock) -> None:
    store.add_schedule(hourly(overlap="queue"))
    clock.advance(HOUR)
    [job_id] = store.fire().jobs
    store.remove_schedule("hourly")
    clock.advance(-timedelta(seconds=10))
    store.add_schedule(hourly(payload=b'{"to":"somebody else"}'))
    clock.advance(timedelta(seconds=10))
    assert store.fire().jobs == ()
    [found] = store.fires("hourly")
    assert (found.outcome, found.job_id) == (FireOutcome.FOUND, job_id)


def test_verbs_on_no_schedule_say_so(store: Store) -> None:
    for verb in (
        *(store.schedule, store.fires, store.pause_schedule, store.resume_schedule),
        *(store.run_schedule, store.remove_schedule),
    ):
        with pytest.raises(ScheduleNotFound, match="no schedule has the name 'none'"):
            verb("none")
