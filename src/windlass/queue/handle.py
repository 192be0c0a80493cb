"""What became of a job that was enqueued?"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.clock import SystemClock
from windlass.duration import Duration, parse_duration
from windlass.errors import JobNotFound, JobUnsuccessful, ResultMissing, WaitTimeout
from windlass.job import Error, Job, JobState

if TYPE_CHECKING:
    from windlass.queue.opening import Opening

_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.25


class JobHandle:
    """One job that was enqueued: `created` is False if it was there before, found by its key or id."""

    def __init__(self, opening: Opening, job_id: str, key: str | None, *, created: bool) -> None:
        self._opening = opening
        self.id = job_id
        self.key = key
        self.created = created

    def __repr__(self) -> str:
        return f"JobHandle(id={self.id!r}, key={self.key!r}, created={self.created})"

    def get(self) -> Job:
        """The job as it stands now; JobNotFound once its record is gone."""
        job = self._opening.use(lambda opened: opened.store.get(self.id, caller=None))
        if job is None:
            raise JobNotFound(self.id)
        return job

    @property
    def state(self) -> JobState:
        """The job's state now."""
        return self.get().state

    def wait(self, timeout: Duration | None = None) -> Job:
        """Wait for the job's end, whatever it is; WaitTimeout if that takes longer than `timeout`."""
        job = self.get()
        if job.ended:
            return job
        calm, hint = threading.Event(), threading.Event()
        wakeup, wake = self._opening.get().wakeup, hint.set
        wakeup.subscribe(wake)
        try:
            for pause in _pauses(timeout):
                hint.clear()
                job = self.get()
                if job.ended:
                    return job
                # However many hints come, the store is not asked more often than that.
                calm.wait(min(pause, _FIRST_PAUSE))
                hint.wait(max(pause - _FIRST_PAUSE, 0))
        finally:
            wakeup.unsubscribe(wake)
        raise self._too_late(timeout)

    def result(self, timeout: Duration | None = None) -> Any:
        """Wait for the job and give what its handler returned.

        JobUnsuccessful if it did not complete; ResultMissing if it did, but its result could not be kept.
        """
        return result_of(self.wait(timeout))

    async def wait_async(self, timeout: Duration | None = None) -> Job:  # noqa: ASYNC109 - the word of `wait`
        """For async callers: wait without a thread of one's own."""
        job = await asyncio.to_thread(self.get)
        if job.ended:
            return job
        calm, hint = asyncio.Event(), asyncio.Event()
        wakeup = self._opening.get().wakeup
        wake = partial(_set_from_any_thread, asyncio.get_running_loop(), hint)
        wakeup.subscribe(wake)
        try:
            for pause in _pauses(timeout):
                hint.clear()
                job = await asyncio.to_thread(self.get)
                if job.ended:
                    return job
                await _wait_for(calm, min(pause, _FIRST_PAUSE))
                await _wait_for(hint, max(pause - _FIRST_PAUSE, 0))
        finally:
            wakeup.unsubscribe(wake)
        raise self._too_late(timeout)

    async def result_async(self, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109 - the word of `result`
        """For async callers: wait for the job and give what its handler returned."""
        return result_of(await self.wait_async(timeout))

    def _too_late(self, timeout: Duration | None) -> WaitTimeout:
        return WaitTimeout(f"job {self.id} had not ended after {timeout}; it is {self.state} and goes on")


def _pauses(timeout: Duration | None) -> Iterator[float]:
    """How long to wait after each look at the store; the last look comes when the time is over."""
    now = SystemClock().monotonic
    end = math.inf if timeout is None else now() + parse_duration(timeout, "timeout").total_seconds()
    pause = _FIRST_PAUSE
    while (left := end - now()) > 0:
        yield min(pause, left)
        pause = min(pause * 2, _LONGEST_PAUSE)
    yield 0


def _set_from_any_thread(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    # A hint may be on its way when the loop is already closed.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(event.set)


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def result_of(job: Job) -> Any:
    """What the handler of an ended job returned; ResultMissing if it could not be kept."""
    if job.result_missing is not None:
        raise ResultMissing(job.id, job.result_missing)
    if job.state is JobState.COMPLETED:
        return None if job.result is None else msgspec.json.decode(job.result)
    raise JobUnsuccessful(f"job {job.id} ended as {job.state}{_why(job.error)}")


def _why(error: Error | None) -> str:
    if error is None:
        return ""
    return f" ({error.reason}): " + ": ".join(filter(None, (error.kind, error.message)))
