"""What does a worker do when a handler blocks the event loop, or cancels what is not its own?"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tests.waiting import PATIENCE, until
from tests.worker.scene import Still, let_time_be_over
from windlass.job import Job, JobState, Reason
from windlass.queue import Queue
from windlass.worker.claimer import GIVEN_BACK_AFTER
from windlass.worker.coroutines import BLOCKED_SECONDS, STALLED_SECONDS
from windlass.worker.health import examine
from windlass.worker.timeouts import ENDLESS_SECONDS
from windlass.worker.worker import Shutdown


class Blocked:
    """A worker whose event loop is blocked by a handler until the test lets it go on."""

    def __init__(self, still: Still, **config: int) -> None:
        self.still = still
        self._entered, self.release = threading.Event(), threading.Event()
        self.ran: list[str] = []
        still.handler(self._block, "block")
        still.handler(self._quick, "quick")
        self.parts = still.build(**config)
        [self.job] = still.put(job_type="block")
        self.parts.claimer.tick()
        assert self._entered.wait(PATIENCE)
        [self.run] = [run for run in self.parts.runs.values() if run.lease.id == self.job.id]

    async def _block(self) -> None:
        self._entered.set()
        self.release.wait(PATIENCE)

    async def _quick(self) -> None:
        self.ran.append("quick")

    def claim(self) -> None:
        self.parts.triggers.hint()
        self.parts.claimer.tick()

    def pass_time(self, seconds: float) -> None:
        """Time in which the timeouts look each second, and the heart beats."""
        for _ in range(int(seconds)):
            self.still.pass_time(1)
            self.parts.timeouts.tick()

    def stall(self) -> None:
        """Let the loop be asked, and not answer."""
        self.parts.timeouts.tick()
        self.pass_time(STALLED_SECONDS)
        assert self.parts.runner.coroutines.stalled

    def states(self, jobs: list[Job]) -> set[tuple[JobState, int]]:
        self.still.settle()
        found = [self.still.job(job) for job in jobs]
        return {(job.state, job.attempts) for job in found}


@pytest.fixture
def releases() -> Iterator[list[threading.Event]]:
    """Whatever a test blocks goes on when it is over."""
    made: list[threading.Event] = []
    yield made
    for each in made:
        each.set()


@pytest.fixture
def blocked(still: Still, releases: list[threading.Event]) -> Blocked:
    made = Blocked(still, concurrency=10, most_held=3)
    releases.append(made.release)
    return made


def test_what_was_handed_to_a_blocked_loop_goes_back_with_its_attempt(blocked: Blocked) -> None:
    jobs = blocked.still.put(3, job_type="quick")
    blocked.claim()
    assert blocked.states(jobs) == {(JobState.PROCESSING, 1)}
    blocked.still.clock.advance(GIVEN_BACK_AFTER + 0.5)
    blocked.claim()
    assert blocked.states(jobs) == {(JobState.PENDING, 0)}
    assert blocked.parts.pools[0].busy == 1, "only the blocker has a slot"


def test_nothing_more_is_claimed_for_a_blocked_loop_and_the_rest_goes_on(blocked: Blocked) -> None:
    blocked.stall()
    quick, others = blocked.still.put(2, job_type="quick"), blocked.still.put(2)
    blocked.claim()
    blocked.still.gate.reach(2)
    assert blocked.states(quick) == {(JobState.PENDING, 0)}
    assert blocked.states(others) == {(JobState.PROCESSING, 1)}


def test_a_loop_that_answers_again_is_served_again(blocked: Blocked) -> None:
    blocked.stall()
    blocked.release.set()
    until(lambda: not blocked.parts.runner.coroutines.stalled)
    jobs = blocked.still.put(2, job_type="quick")
    blocked.claim()
    until(lambda: blocked.states([*jobs, blocked.job]) == {(JobState.COMPLETED, 1)})


def test_what_was_given_back_does_not_run_here_when_the_loop_goes_on(blocked: Blocked) -> None:
    jobs = blocked.still.put(2, job_type="quick")
    blocked.claim()
    blocked.still.clock.advance(GIVEN_BACK_AFTER + 0.5)
    blocked.claim()
    blocked.release.set()
    until(blocked.parts.idle)
    assert blocked.ran == []
    assert blocked.states(jobs) == {(JobState.PENDING, 0)}


def test_a_shutdown_gives_back_at_once_what_a_blocked_loop_has_not_begun(blocked: Blocked) -> None:
    jobs = blocked.still.put(3, job_type="quick")
    blocked.claim()
    blocked.parts.claimer.close(PATIENCE)
    assert blocked.states(jobs) == {(JobState.PENDING, 0)}


def test_health_names_the_handler_that_blocks_the_loop(blocked: Blocked) -> None:
    assert examine(blocked.parts, begun=True).ok
    blocked.stall()
    blocked.pass_time(BLOCKED_SECONDS)
    told = examine(blocked.parts, begun=True)
    assert not told.ok
    assert told.why == f"the event loop has been blocked for 4 s by block (job {blocked.job.id})"
    assert told.restart == "", "its time is not over yet"


def test_a_blocker_past_its_timeout_asks_for_a_new_process(blocked: Blocked) -> None:
    blocked.stall()
    blocked.pass_time(BLOCKED_SECONDS)
    let_time_be_over(blocked.parts)
    blocked.pass_time(1)
    [error] = [blocked.still.job(blocked.job).error] if blocked.states([blocked.job]) else []
    assert error is not None
    assert error.reason is Reason.TIMEOUT
    blocked.pass_time(2)
    assert "block (job" in examine(blocked.parts, begun=True).restart


def test_a_task_of_a_handlers_own_that_blocks_the_loop_is_judged_by_the_jobs_behind_it(
    still: Still, releases: list[threading.Event]
) -> None:
    entered, release = threading.Event(), threading.Event()
    releases.append(release)

    async def stray() -> None:
        entered.set()
        release.wait(PATIENCE)

    async def parent() -> None:
        await asyncio.create_task(stray())

    still.handler(parent, "parent")
    parts = still.build(most_held=3)
    still.put(job_type="parent")
    parts.claimer.tick()
    assert entered.wait(PATIENCE)
    parts.timeouts.tick()
    still.pass_time(BLOCKED_SECONDS + 1)
    parts.timeouts.tick()
    assert "a task that is not a job" in parts.leaks.blocked()
    let_time_be_over(parts)
    parts.timeouts.tick()
    parts.timeouts.tick()
    assert parts.leaks.reason == ""
    still.pass_time(ENDLESS_SECONDS)
    parts.timeouts.tick()
    assert parts.leaks.reason != ""


def test_a_worker_inside_a_program_only_reports(still: Still, releases: list[threading.Event]) -> None:
    blocked = Blocked(still)
    releases.append(blocked.release)
    blocked.stall()
    let_time_be_over(blocked.parts)
    blocked.pass_time(ENDLESS_SECONDS)
    told = examine(blocked.parts, begun=True)
    assert (told.ok, told.restart) == (False, "")


def test_jobs_that_a_stuck_loop_cannot_end_are_given_back(blocked: Blocked) -> None:
    """Also those that have begun: they cannot go on."""
    blocked.stall()
    let_time_be_over(blocked.parts)
    blocked.pass_time(BLOCKED_SECONDS + 2)
    assert blocked.parts.leaks.loop_stuck
    Shutdown(blocked.parts).give_up_loop()
    blocked.parts.timeouts.tick()
    assert blocked.parts.idle()


def test_a_coroutine_cancelled_before_its_first_step_is_given_back_and_its_slot_freed(queue: Queue) -> None:
    cancelled: list[int] = []

    @queue.job(priority=9)
    async def cancels_all() -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        cancelled.append(len(tasks))
        for task in tasks:
            task.cancel()

    @queue.job(max_attempts=1)
    async def neighbour() -> str:
        return "ran"

    first = cancels_all.enqueue()
    neighbours = [neighbour.enqueue() for _ in range(5)]
    with queue.worker(concurrency=6) as worker:
        assert [each.result(PATIENCE) for each in neighbours] == ["ran"] * 5
        assert first.wait(PATIENCE).state is JobState.COMPLETED
        until(lambda: worker.parts.pools[0].busy == 0)
    assert cancelled[0] == 5, "they had not begun"
    assert {each.wait(PATIENCE).attempts for each in neighbours} == {1}
