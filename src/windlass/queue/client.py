"""What does a producer hold that reaches the store only through a server?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from time import monotonic
from typing import Any
from urllib.parse import quote

from windlass.duration import Duration, parse_duration
from windlass.errors import JobNotFound, WaitTimeout, must_be
from windlass.job import Job, JobState
from windlass.queue.queue import Queue
from windlass.store.jobs import Filter
from windlass.store.store import Store

_PAGE = 200
# One request waits so long at most.
_WAIT_SECONDS = 20.0


class Client(Queue):
    """A Queue over HTTP: the same typed handlers, enqueue and handles, with an API key.

    While the server is away, busy or asks for a moment's peace, calls try again for `patience`, 30 s by
    default. A job carries its own id, so however often it is sent it is made once.
    """

    def __init__(self, url: str, key: str | None = None, *, patience: Duration = "30s") -> None:
        """`url` as in https://queue.example; without a key, WINDLASS_API_KEY."""
        scheme, found, rest = url.partition("://")
        if not found or scheme not in ("http", "https"):
            raise must_be("url", url.partition("@")[2] or url, "http://host:port or https://host")
        super().__init__(
            url if key is None else f"{scheme}://{quote(key, safe='')}@{rest}", patience=patience
        )

    def wait(self, name: str, timeout: Duration | None = None, *, tenant: str | None = None) -> Job:
        """Wait for the end of a job that is known by its id or key; the server tells when it comes."""
        front = self.front
        if isinstance(front, Store):
            return super().wait(name, timeout, tenant=tenant)
        end = None if timeout is None else monotonic() + parse_duration(timeout, "timeout").total_seconds()
        while True:
            left = _WAIT_SECONDS if end is None else min(_WAIT_SECONDS, max(0.0, end - monotonic()))
            job = front.get(name, tenant=tenant, wait=left)
            if job is None:
                raise JobNotFound(name)
            if job.ended:
                return job
            if end is not None and monotonic() >= end:
                raise WaitTimeout(
                    f"job {job.id} had not ended after {timeout}; it is {job.state} and goes on"
                )

    async def wait_async(
        self,
        name: str,
        timeout: Duration | None = None,  # noqa: ASYNC109 - the word of `wait`
        *,
        tenant: str | None = None,
    ) -> Job:
        """For async callers."""
        return await asyncio.to_thread(self.wait, name, timeout, tenant=tenant)

    def jobs(
        self,
        *,
        types: tuple[str, ...] = (),
        states: tuple[JobState, ...] = (),
        tenant: str | None = None,
        error: str | None = None,
    ) -> Iterator[Job]:
        """Every job that matches, newest first, page by page."""
        where = Filter(types=types, states=states, tenant=tenant, error=error)
        cursor: str | None = None
        while True:
            page = self.front.find(where, limit=_PAGE, cursor=cursor)
            yield from page.jobs
            cursor = page.next
            if cursor is None:
                return

    async def jobs_async(self, **choice: Any) -> AsyncIterator[Job]:
        """For async callers."""
        found = self.jobs(**choice)
        while (job := await asyncio.to_thread(next, found, None)) is not None:
            yield job
