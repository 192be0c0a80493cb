"""When is a worker process hung, and which job is the cause? By a clock that the test moves."""

from __future__ import annotations

import os
from typing import cast

import pytest

from windlass.worker.watch import ALARM_SECONDS, Box, Hang, Job, Look, Watch, arranged, look, new_box

LIMIT = 15.0
TICKS = os.sysconf("SC_CLK_TCK")
MAIN, FIRST, SECOND = 10, 11, 12
CURRENT = 'Current thread 0x1 (most recent call first):\n  File "app.py", line 9 in parse'


def a_job(thread: int, name: str, function: str = "parse") -> Job:
    return Job(thread, 1, name, f"token of {name}", function)


class Scene:
    """A worker as the system shows it, and its watch."""

    def __init__(self, *jobs: Job, stacks: str = CURRENT, limit: float = LIMIT) -> None:
        self.armed = True
        self.jobs = jobs
        self.stacks = stacks
        self.asked: list[int] = []
        self.seen: Look | None = Look(stopped=False, waiting=False, cpu={MAIN: 0, FIRST: 0, SECOND: 0})
        self.now = 100.0
        self.signals = 0
        self.watch = Watch(
            MAIN, cast(Box, self), limit, self.now, signals=lambda: self.signals, look=lambda _: self.seen
        )

    def running(self) -> list[Job]:
        return list(self.jobs)

    def ask_for_stacks(self, thread: int) -> str:
        self.asked.append(thread)
        return self.stacks

    def is_like(self, *, stopped: bool = False, waiting: bool = False) -> None:
        assert self.seen is not None
        self.seen = self.seen._replace(stopped=stopped, waiting=waiting)

    def step(
        self, seconds: float = 1.0, *, ticks: bool = False, used: dict[int, float] | None = None
    ) -> Hang | None:
        """Time passes, in which threads use a core for so many seconds."""
        self.now += seconds
        if self.seen is not None:
            cpu = {each: had + int((used or {}).get(each, 0) * TICKS) for each, had in self.seen.cpu.items()}
            self.seen = self.seen._replace(cpu=cpu)
        if ticks:
            self.watch.hear()
        return self.watch.check(self.now)

    def steps(self, count: int, **how: object) -> list[Hang]:
        """What so many seconds bring."""
        found = [self.step(**how) for _ in range(count)]  # type: ignore[arg-type]
        return [each for each in found if each is not None]

    def burns(self, count: int, thread: int = FIRST) -> list[Hang]:
        """A thread uses a core all the time."""
        self.is_like(waiting=True)
        return self.steps(count, used={thread: 1.0})


def events(found: list[Hang]) -> list[str]:
    return [each.event for each in found]


# --- who is hung ---


def test_a_worker_that_ticks_is_never_silent() -> None:
    scene = Scene()
    assert scene.steps(100, ticks=True, used={FIRST: 1.0}) == []


def test_one_that_burns_a_core_in_silence_is_told_of_first_and_hung_at_the_limit() -> None:
    scene = Scene(a_job(FIRST, "a"))
    assert events(scene.burns(int(ALARM_SECONDS) - 1)) == []
    assert events(scene.burns(1)) == ["silent"]
    assert events(scene.burns(9)) == []
    [hung] = scene.burns(1)
    assert (hung.event, hung.seconds) == ("hung", LIMIT)
    assert events(scene.burns(20)) == [], "and that once"


def test_one_that_sleeps_with_the_lock_in_its_hand_is_hung_as_well() -> None:
    scene = Scene(a_job(FIRST, "a"))
    assert events(scene.steps(15)) == ["silent", "hung"]


def test_one_that_answers_again_is_told_of_and_starts_from_nothing() -> None:
    scene = Scene(a_job(FIRST, "a"))
    assert events(scene.burns(12)) == ["silent"]
    found = scene.step(ticks=True)
    assert found is not None
    assert (found.event, [job.id for job in found.jobs]) == ("answers", ["a"])
    assert events(scene.burns(14)) == ["silent"]


# --- who is not ---


def test_one_that_was_asked_to_stop_is_hung_after_15_s_whatever_its_limit() -> None:
    worker = Scene(limit=300.0)
    assert events(worker.burns(40)) == ["silent"]
    worker.signals = 1
    assert events(worker.burns(2)) == ["hung"]


def test_a_second_signal_ends_a_silent_worker_at_once() -> None:
    worker = Scene(limit=300.0)
    worker.signals = 1
    assert events(worker.burns(7)) == ["silent"]
    worker.signals = 2
    assert events(worker.burns(2)) == ["hung"]


def test_a_stopped_process_is_not_hung_however_long_it_stands_still() -> None:
    scene = Scene()
    scene.is_like(stopped=True)
    assert scene.steps(3600) == []
    scene.is_like()
    assert scene.steps(4) == [], "it has as much time as anyone when it goes on"


def test_a_process_that_wants_to_run_and_gets_no_core_is_not_hung() -> None:
    scene = Scene()
    scene.is_like(waiting=True)
    assert scene.steps(60, used={FIRST: 0.01}) == []


def test_a_process_that_gets_a_small_share_of_a_core_and_stays_silent_is_hung() -> None:
    scene = Scene()
    scene.is_like(waiting=True)
    assert events(scene.steps(16, used={FIRST: 0.25})) == ["silent", "hung"]


def test_a_watcher_that_did_not_come_to_look_condemns_nobody() -> None:
    scene = Scene()
    for _ in range(100):
        assert scene.step(10.0) is None


def test_a_step_counts_for_two_seconds_at_most() -> None:
    scene = Scene()
    assert [scene.step(2.9) for _ in range(2)] == [None, None]
    assert scene.watch.silence == 4.0


def test_a_worker_that_has_not_begun_or_that_ends_promises_nothing() -> None:
    scene = Scene()
    scene.armed = False
    assert scene.steps(60) == []


def test_where_the_system_does_not_tell_how_a_process_is_it_is_told_of_and_not_killed() -> None:
    scene = Scene(a_job(FIRST, "a"))
    scene.seen = None
    assert events(scene.steps(60)) == ["silent"]


# --- which job ---


def blamed(found: list[Hang]) -> list[str]:
    [first] = found
    return [job.id for job in first.jobs]


def test_the_job_on_the_busy_thread_is_the_cause_and_its_thread_is_asked_for_the_stacks() -> None:
    scene = Scene(a_job(FIRST, "idle"), a_job(SECOND, "busy"))
    assert blamed(scene.burns(5, thread=SECOND)) == ["busy"]
    assert scene.asked == [SECOND]


def test_two_busy_threads_are_both_suspect() -> None:
    scene = Scene(a_job(FIRST, "a"), a_job(SECOND, "b"))
    assert blamed(scene.steps(5, used={FIRST: 0.9, SECOND: 0.8})) == ["a", "b"]


def test_of_coroutines_that_share_a_thread_those_on_its_stack_are_the_cause() -> None:
    scene = Scene(a_job(FIRST, "a", "fetch"), a_job(FIRST, "b", "parse"))
    assert blamed(scene.burns(5)) == ["b"]


def test_if_no_thread_is_busy_every_job_may_be_the_cause() -> None:
    scene = Scene(a_job(FIRST, "a"), a_job(SECOND, "b"))
    assert blamed(scene.steps(5)) == ["a", "b"]


def test_a_thread_of_the_application_itself_makes_no_job_suspect() -> None:
    scene = Scene(a_job(FIRST, "a"))
    assert blamed(scene.burns(5, thread=SECOND)) == []


def test_a_busy_thread_without_python_leaves_it_open_which_job_it_works_for() -> None:
    scene = Scene(a_job(FIRST, "a"), stacks="Thread 0x1 (most recent call first):\n  File")
    assert blamed(scene.burns(5, thread=SECOND)) == ["a"]


# --- what the processes share ---


def test_a_box_tells_which_jobs_run_on_which_threads() -> None:
    box = Box(new_box())
    first = box.enter(a_job(7, "a"))
    box.enter(a_job(8, "b"))
    assert box.running() == [a_job(7, "a"), a_job(8, "b")]
    box.leave(first)
    assert box.running() == [a_job(8, "b")]
    again = Box(os.dup(box.fd))
    assert again.running() == [a_job(8, "b")], "also to another process"


def test_a_box_that_is_full_forgets_and_does_not_fail() -> None:
    box = Box(new_box())
    slots = [box.enter(a_job(1, "a")) for _ in range(600)]
    assert slots[-1] == -1
    for slot in slots:
        box.leave(slot)
    assert box.running() == []


def test_a_process_can_be_asked_for_its_stacks() -> None:
    box = Box(new_box())
    box.arm()
    try:
        assert box.armed
        stacks = box.ask_for_stacks(os.getpid())
    finally:
        box.disarm()
    assert "in ask_for_stacks" in stacks
    assert (box.take_stacks(), box.take_stacks()) == (stacks, "")
    assert not box.armed


def test_stacks_begin_with_the_thread_that_was_asked_and_tell_equal_ones_once() -> None:
    waiting = '  File "loop.py", line 1 in wait\n  File "threading.py", line 9 in _bootstrap'
    dump = "\n\n".join(f"Thread 0x{number} (most recent call first):\n{waiting}" for number in range(3))
    first, second = arranged(f"{dump}\n\n{CURRENT}\n").split("\n\n")
    assert first == CURRENT
    assert second.startswith("3 threads at one place. Thread 0x0")
    assert second.endswith('  File "loop.py", line 1 in wait')


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="reads /proc")  # noqa: PTH112
def test_this_very_process_is_seen() -> None:
    seen = look(os.getpid())
    assert seen is not None
    assert not seen.stopped
    assert os.getpid() in seen.cpu
    assert look(2**22 + 1) is None
