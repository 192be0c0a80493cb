"""Which schedules are there while several releases of an application declare them?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.conformance.scene import MAIL, REPORT, a_worker
from tests.conformance.test_schedules import BEGIN, HOUR, hourly, told
from windlass.clock import ManualClock
from windlass.errors import ScheduleConflict, ScheduleNotFound
from windlass.schedule import NewSchedule
from windlass.store.fleet import Vitals
from windlass.store.schedules import FireOutcome, digest_of
from windlass.store.store import Store

MINUTE = timedelta(minutes=1)

# One schedule at different times, one that only the old release declares, and one of the new one alone.
OLD = [hourly("both"), hourly("dropped")]
NEW = [hourly("added"), hourly("both", cron="30 * * * *")]


class Process:
    """A worker of a release: it declares when it starts and each minute, and beats meanwhile."""

    _count = 0

    def __init__(
        self, store: Store, schedules: Sequence[NewSchedule], types: Sequence[str] = (MAIL,)
    ) -> None:
        self._store = store
        self._schedules = schedules
        self._types = types
        self.id = ""
        self.start()

    def start(self) -> None:
        """Declare, then join the fleet."""
        Process._count += 1
        self.id = f"worker-{Process._count}"
        self.declare()
        declares = tuple(map(digest_of, self._schedules))
        self._store.join(a_worker(self.id, types=tuple(self._types), declares=declares, app="1.0"))

    def declare(self) -> None:
        """What it says each minute."""
        self._store.declare(self._schedules, self._types)

    def tick(self) -> None:
        """A minute of its life."""
        assert self._store.beat(self.id, Vitals())
        if not self._store.declared(self._schedules, self._types):
            self.declare()

    def stop(self) -> None:
        """Stop in good order."""
        self._store.leave(self.id)

    def killed(self) -> None:
        """The fleet notices that it was killed."""
        [beat] = [each.beat for each in self._store.workers() if each.id == self.id]
        assert self._store.declare_dead(self.id, beat)


def live(clock: ManualClock, processes: Sequence[Process], minutes: int) -> None:
    """Time passes, and these processes are there."""
    for _ in range(minutes):
        clock.advance(MINUTE)
        for each in processes:
            each.tick()


def firing(store: Store) -> dict[str, str | None]:
    """The schedules that fire, with their times."""
    return {each.name: each.new.timing.cron for each in store.schedules() if not each.withdrawn}


BOTH = {"added": "0 * * * *", "both": "30 * * * *", "dropped": "0 * * * *"}


@pytest.fixture
def old(store: Store) -> Process:
    return Process(store, OLD)


@pytest.fixture
def new(old: Process, store: Store, clock: ManualClock) -> Process:
    """A deploy rolls: the old release has been there for a while, and the new one comes."""
    live(clock, [old], 30)
    return Process(store, NEW)


def test_during_a_roll_the_schedules_of_both_releases_fire(
    old: Process, new: Process, store: Store, clock: ManualClock
) -> None:
    assert firing(store) == BOTH
    live(clock, [old, new], 60)
    assert firing(store) == BOTH
    assert len(store.fire().jobs) == 3


def test_an_old_worker_that_restarts_changes_nothing(
    old: Process, new: Process, store: Store, clock: ManualClock
) -> None:
    before = store.schedules()
    for end in (old.stop, old.killed):
        live(clock, [old, new], 2)
        end()
        old.start()
        assert store.schedules() == before
    live(clock, [old, new], 30)
    assert store.schedules() == before


def test_what_only_the_old_release_declares_ends_after_the_grace(
    old: Process, new: Process, store: Store, clock: ManualClock
) -> None:
    old.killed()
    live(clock, [new], 10)
    assert firing(store) == BOTH
    live(clock, [new], 2)
    assert firing(store) == {"added": "0 * * * *", "both": "30 * * * *"}
    assert store.schedule("dropped").withdrawn


def test_after_a_roll_back_the_old_release_rules_when_the_new_one_is_gone(
    old: Process, new: Process, store: Store, clock: ManualClock
) -> None:
    new.stop()
    live(clock, [old], 9)
    assert firing(store) == BOTH
    live(clock, [old], 3)
    assert firing(store) == {"both": "0 * * * *", "dropped": "0 * * * *"}
    # Rolled forward again, the new release is still the newer one.
    Process(store, NEW)
    assert firing(store) == BOTH


def test_a_live_release_keeps_its_schedules_however_short_the_grace_is(
    old: Process, new: Process, store: Store, clock: ManualClock
) -> None:
    store.set_setting("schedules.orphan_after", "6s")
    live(clock, [old, new], 5)
    # The first to beat after a minute finds that the other one has been silent for longer than that.
    clock.advance(MINUTE)
    for each in (old, new):
        assert store.beat(each.id, Vitals())
    new.declare()
    assert firing(store) == BOTH


@pytest.mark.parametrize("grace", ["none", "20m"])
def test_the_grace_can_be_set(
    old: Process, new: Process, store: Store, clock: ManualClock, grace: str
) -> None:
    """Without one, a release is gone when the catalogue forgets it."""
    store.set_setting("schedules.orphan_after", grace)
    old.stop()
    live(clock, [new], 12)
    assert ("dropped" in firing(store)) is (grace == "20m")
    live(clock, [new], 10)
    assert "dropped" not in firing(store)


def test_a_release_that_starts_alone_takes_over_at_once(
    old: Process, store: Store, clock: ManualClock
) -> None:
    """One worker, stopped and started with other code: nobody else is left to declare anything."""
    live(clock, [old], 5)
    old.stop()
    clock.advance(1)
    new = Process(store, NEW)
    expected = {"added": "0 * * * *", "both": "30 * * * *"}
    assert firing(store) == expected
    live(clock, [new], 5)
    assert firing(store) == expected
    # And back, with the definition of before.
    new.stop()
    clock.advance(1)
    Process(store, OLD)
    assert firing(store) == {"both": "0 * * * *", "dropped": "0 * * * *"}


def test_two_releases_that_start_together_are_both_there(store: Store, clock: ManualClock) -> None:
    store.declare(OLD, [MAIL])
    clock.advance(1)
    store.declare(NEW, [MAIL])
    assert firing(store) == BOTH


def test_a_schedule_that_moves_to_another_function_follows_the_newest_release(
    store: Store, clock: ManualClock
) -> None:
    old = Process(store, [hourly("report")])
    live(clock, [old], 1)
    new = Process(store, [hourly("report", type=REPORT)], [REPORT])
    assert store.schedule("report").new.type == REPORT
    old.stop()
    old.start()
    assert store.schedule("report").new.type == REPORT
    new.stop()
    live(clock, [old], 12)
    assert store.schedule("report").new.type == MAIL


def test_a_pause_and_an_operators_schedule_stay_through_a_roll(
    old: Process, store: Store, clock: ManualClock
) -> None:
    store.pause_schedule("both", by="ann")
    store.add_schedule(hourly("added", cron="45 * * * *"))
    live(clock, [old], 1)
    new = Process(store, NEW)
    assert store.declare(NEW, [MAIL]) == ["added"]
    live(clock, [new], 15)
    assert (store.schedule("both").paused, store.schedule("both").new.timing.cron) == (True, "30 * * * *")
    assert store.schedule("added").new.timing.cron == "45 * * * *"


def test_a_schedule_that_is_declared_again_goes_on_from_then(
    old: Process, new: Process, store: Store, clock: ManualClock
) -> None:
    old.stop()
    live(clock, [new], 12)
    clock.advance(HOUR)
    live(clock, [new], 1)
    Process(store, OLD)
    assert told(store.fires("dropped")) == [("01 01:00", FireOutcome.MISSED)]
    assert store.schedule("dropped").next_at == BEGIN + 2 * HOUR


def test_what_nobody_declared_for_a_month_is_forgotten(store: Store, clock: ManualClock) -> None:
    old = Process(store, OLD)
    old.stop()
    for _ in range(2):
        clock.advance(timedelta(days=31))
        Process(store, NEW).stop()
    assert [each["name"] for each in _entries(store)] == ["added", "both"]


def _entries(store: Any) -> list[Any]:
    return sorted(store._read(lambda tx: tx.rows("declarations")), key=lambda row: row["name"])  # noqa: SLF001


# --- beside workers of the release before, which know no declarations ---------------------------


def older(store: Any, name: str = "older") -> None:
    """A worker of the release before joins."""
    store.join(a_worker(name, types=(MAIL,), declares=None))


def withdraw(store: Any, name: str) -> None:
    """What a worker of the release before does to a schedule that it does not declare."""
    store._write(lambda tx: tx.change("withdraw_schedule", name=name, now=tx.now))  # noqa: SLF001


def test_what_an_older_worker_withdraws_comes_back_and_loses_no_fire_time(
    store: Store, clock: ManualClock
) -> None:
    new = Process(store, NEW)
    clock.advance(HOUR - timedelta(seconds=90))
    new.tick()
    clock.advance(timedelta(seconds=80))
    older(store)
    withdraw(store, "added")
    clock.advance(timedelta(seconds=50))
    new.tick()
    assert len(store.fire().jobs) == 2
    assert told(store.fires("added")) == [("01 01:00", FireOutcome.ENQUEUED)]


def test_what_an_older_worker_may_declare_stays_as_long_as_it_is_there(
    store: Store, clock: ManualClock
) -> None:
    # As the release before leaves it: a schedule of the code that nobody has noted as declared.
    passing = Process(store, OLD)
    passing.stop()
    _forget(store, "dropped")
    older(store)
    new = Process(store, NEW)
    for _ in range(20):
        assert store.beat("older", Vitals())
        live(clock, [new], 1)
    assert "dropped" in firing(store)
    with pytest.raises(ScheduleConflict, match="is declared in code by worker older"):
        store.remove_schedule("dropped")
    store.leave("older")
    live(clock, [new], 12)
    assert "dropped" not in firing(store)


def _forget(store: Any, name: str) -> None:
    store._write(lambda tx: tx.change("remove_declarations", name=name))  # noqa: SLF001


# --- removing -----------------------------------------------------------------------------------


def test_what_a_live_worker_declares_is_not_removed_and_it_is_named(
    old: Process, new: Process, store: Store
) -> None:
    with pytest.raises(
        ScheduleConflict, match=rf"is declared in code by worker {old.id} \(release 1.0\): take it out there"
    ):
        store.remove_schedule("dropped")
    with pytest.raises(ScheduleConflict, match=f"by workers {new.id} .*, {old.id} "):
        store.remove_schedule("both")


def test_what_no_live_worker_declares_is_removed_within_the_grace_and_stays_removed(
    old: Process, new: Process, store: Store, clock: ManualClock
) -> None:
    live(clock, [old, new], 1)
    old.killed()
    clock.advance(20)
    store.remove_schedule("dropped", by="ann")
    live(clock, [new], 5)
    with pytest.raises(ScheduleNotFound):
        store.schedule("dropped")
    old.start()
    assert "dropped" in firing(store)


def test_a_schedule_whose_function_was_deleted_is_removed_at_once(store: Store, clock: ManualClock) -> None:
    old = Process(store, OLD)
    live(clock, [old], 5)
    new = Process(store, [], [REPORT])
    live(clock, [old, new], 1)
    old.stop()
    store.remove_schedule("dropped")
    assert "dropped" not in firing(store)


def test_what_a_process_without_a_worker_declares_is_not_removed(store: Store, clock: ManualClock) -> None:
    """`windlass scheduler` fires schedules and has no row in the fleet."""
    store.declare(OLD, [MAIL])
    clock.advance(40)
    with pytest.raises(ScheduleConflict, match="by a process that was seen 40 s ago"):
        store.remove_schedule("dropped")
    clock.advance(5 * MINUTE)
    store.remove_schedule("dropped")
