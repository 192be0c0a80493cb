"""Who is dead, and which leases are given up: rules 1 to 3 of the design, by a clock that the test moves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from tests.unit.scene import THEN, running
from windlass.job import Lease
from windlass.store.fleet import WorkerInfo
from windlass.upkeep.membership import Losses, Pulse, Watchman

ME = "me"


def a_worker(name: str, beat: int = 1) -> WorkerInfo:
    return WorkerInfo(
        id=name, beat=beat, host="h", boot="b", pid_space="p", pid=1, pid_started=1, version="0"
    )


def a_lease(token: str, until: datetime = THEN) -> Lease:
    return Lease(running(token), token, "other", until)


class Watching:
    """A watchman, its clock, and its own worker's beats."""

    def __init__(self, gone: Sequence[str] = ()) -> None:
        self.watchman = Watchman(gone=lambda worker: worker.id in gone)
        self.now = 100.0
        self.sent = 100.0
        self.gaps = 0

    def check(
        self, *workers: WorkerInfo, expired: Sequence[Lease] = (), passed: float = 1.0, beating: bool = True
    ) -> Losses:
        self.now += passed
        if beating:
            self.sent = self.now
        pulse = Pulse(self.sent, self.gaps)
        return self.watchman.check(ME, workers, expired, pulse=pulse, now=self.now)


def dead(losses: Losses) -> list[str]:
    return [worker.id for worker in losses.dead]


# --- rule 1: a process that is seen to be gone ---


def test_a_worker_whose_process_is_gone_is_dead_at_the_first_check() -> None:
    watching = Watching(gone=["a"])
    assert dead(watching.check(a_worker("a"), a_worker("b"))) == ["a"]


def test_a_gone_process_needs_no_watching_so_it_counts_even_while_our_own_beats_fail() -> None:
    watching = Watching(gone=["a"])
    assert dead(watching.check(a_worker("a"), passed=60, beating=False)) == ["a"]


def test_the_watching_worker_never_judges_itself() -> None:
    watching = Watching(gone=[ME])
    for _ in range(30):
        assert dead(watching.check(a_worker(ME))) == []


# --- rule 2: silence ---


def test_a_worker_is_dead_after_ten_seconds_of_silence_and_not_before() -> None:
    watching = Watching()
    watching.check(a_worker("a"))
    for _ in range(9):
        assert dead(watching.check(a_worker("a"))) == []
    assert dead(watching.check(a_worker("a"))) == ["a"]


def test_a_beat_that_moves_starts_the_silence_anew() -> None:
    watching = Watching()
    for beat in (1, 2):
        watching.check(a_worker("a", beat))
        for _ in range(9):
            assert dead(watching.check(a_worker("a", beat))) == []


def test_only_those_who_stand_still_are_silent() -> None:
    watching = Watching()
    found = [dead(watching.check(a_worker("still"), a_worker("beating", beat))) for beat in range(12)]
    assert found[-1] == ["still"]


def test_one_check_adds_two_seconds_at_most() -> None:
    watching = Watching()
    watching.check(a_worker("a"))
    for _ in range(4):
        assert dead(watching.check(a_worker("a"), passed=60)) == []
    assert dead(watching.check(a_worker("a"), passed=60)) == ["a"]


def test_nothing_is_added_while_our_own_last_beat_is_older_than_three_seconds() -> None:
    watching = Watching()
    watching.check(a_worker("a"))
    for _ in range(30):
        assert dead(watching.check(a_worker("a"), beating=False)) == []


def test_our_own_late_beat_sets_every_silence_back() -> None:
    watching = Watching()
    watching.check(a_worker("a"))
    for _ in range(9):
        watching.check(a_worker("a"))
    watching.check(a_worker("a"), passed=4, beating=False)
    for _ in range(9):
        assert dead(watching.check(a_worker("a"))) == []
    assert dead(watching.check(a_worker("a"))) == ["a"]


def test_a_gap_between_our_own_beats_sets_every_silence_back_even_if_the_last_one_is_fresh() -> None:
    watching = Watching()
    watching.check(a_worker("a"))
    for _ in range(9):
        watching.check(a_worker("a"))
    watching.gaps += 1
    assert dead(watching.check(a_worker("a"))) == [], "we were frozen, and so perhaps was everybody"
    for _ in range(9):
        assert dead(watching.check(a_worker("a"))) == []
    assert dead(watching.check(a_worker("a"))) == ["a"]


def test_a_whole_fleet_that_thaws_together_loses_nobody() -> None:
    watching = Watching()
    fleet = [a_worker(name) for name in "abc"]
    watching.check(*fleet)
    watching.check(*fleet, passed=3600, beating=False)
    watching.gaps += 1
    assert dead(watching.check(*fleet)) == []
    moved = [a_worker(name, beat=2) for name in "abc"]
    for _ in range(9):
        assert dead(watching.check(*moved)) == []


def test_a_worker_seen_for_the_first_time_has_not_been_silent() -> None:
    watching = Watching()
    for _ in range(30):
        watching.check(a_worker("a"))
    assert dead(watching.check(a_worker("new"), passed=2)) == []


# --- rule 3: expired leases of workers that beat ---


@pytest.mark.parametrize("seconds", [1.0, 2.0])
def test_an_expired_lease_is_given_up_after_ten_seconds_of_watching(seconds: float) -> None:
    watching = Watching()
    lease = a_lease("x")
    checks = 1
    while not watching.check(expired=[lease], passed=seconds).unrenewed:
        checks += 1
    assert checks * seconds == 10 + seconds, "the first check only begins the watch"


def test_a_renewed_lease_starts_anew_when_it_expires_again() -> None:
    watching = Watching()
    for minute in range(3):
        lease = a_lease("x", THEN + timedelta(minutes=minute))
        for _ in range(10):
            assert watching.check(expired=[lease]).unrenewed == []


def test_a_lease_that_was_not_expired_for_a_moment_starts_anew() -> None:
    watching = Watching()
    lease = a_lease("x")
    for _ in range(10):
        watching.check(expired=[lease])
    watching.check(expired=[])
    assert watching.check(expired=[lease]).unrenewed == []


def test_after_an_outage_expired_leases_are_watched_from_the_beginning() -> None:
    watching = Watching()
    leases = [a_lease("x"), a_lease("y")]
    watching.check(expired=leases)
    watching.check(expired=leases, passed=60, beating=False)
    watching.gaps += 1
    for _ in range(10):
        assert watching.check(expired=leases).unrenewed == []
    assert watching.check(expired=leases).unrenewed == leases
