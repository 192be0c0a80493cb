"""The Queue that an application holds: register handlers, enqueue (see Producer), look, run a worker.

A Client is the same where the store is reached only through a server.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, Unpack, overload
from urllib.parse import quote

from windlass import connect
from windlass.checks import check_app_version, check_limit_key
from windlass.context import Context
from windlass.duration import Duration, parse_duration
from windlass.errors import JobNotFound, WaitTimeout, must_be
from windlass.job import Job, JobState
from windlass.policy import make_limit
from windlass.queue.backend import Opening
from windlass.queue.jobs import ContextJobType, JobHandle, JobType
from windlass.queue.options import (
    ScheduleOptions,
    TypeOptions,
    WorkerOptions,
    make_schedule,
    of_handler,
    type_options,
    worker_config,
)
from windlass.queue.producer import Producer
from windlass.registry import Registry, make_handler, shell_handler
from windlass.store.jobs import Filter
from windlass.store.store import Store
from windlass.worker.worker import Worker

if TYPE_CHECKING:
    from windlass.clock import Clock
    from windlass.store.engine import Acted
    from windlass.wakeup import Wakeup

P = ParamSpec("P")
R = TypeVar("R")
Hook = TypeVar("Hook", bound=Callable[[], object])
_PAGE = 200
# One request of a Client waits so long at most.
_WAIT_SECONDS = 20.0


class Decorator(Protocol):
    """What `@queue.job(...)` gives: turns a function into a JobType."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> ContextJobType[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> JobType[P, R]: ...


class Queue(Producer):
    """All jobs of one store, and the handlers of this process.

    Nothing is opened before it is first used, and a forked process opens its own; so a Queue can stand at
    the top of a module, before any fork.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        shell: bool = False,
        patience: Duration | None = None,
        version: str = "",
        clock: Clock | None = None,
    ) -> None:
        """Without a URL: WINDLASS_DATABASE_URL, then windlass.toml, then windlass.db in the current folder.

        A file may also be named by its path, as text or as a `Path`.
        `shell` lets this queue take and run shell commands. `patience` is how long a call waits for a store
        that is busy or away, 30 s by default. `version` is your application's release: attempts and workers
        carry it, unless WINDLASS_APP_VERSION says another one.
        """
        wait = None if patience is None else parse_duration(patience, "patience")
        super().__init__(Opening(url, clock, wait), Registry())
        self.registry.app_version = check_app_version(version)
        # Named by the store: for a queue that was made before its URL was known, and for tests.
        self.stand_at, self.instead = self._opening.stand_at, self._opening.instead
        self._shell = shell
        if shell:
            self.registry.add(shell_handler())

    # --- handlers ---

    @overload
    def job(self, function: Callable[Concatenate[Context, P], R], /) -> ContextJobType[P, R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> JobType[P, R]: ...
    @overload
    def job(self, /, **options: Unpack[TypeOptions]) -> Decorator: ...
    def job(self, function: Callable[..., Any] | None = None, /, **options: Unpack[TypeOptions]) -> Any:
        """Register a function as the handler of a type; as `@queue.job` or `@queue.job(timeout=30, ...)`."""
        said, timing = type_options(options)
        # Annotations in text may name what stands around the function.
        caller = getattr(inspect.currentframe(), "f_back", None)
        names = {} if caller is None else dict(caller.f_locals)

        def register(function: Callable[..., Any]) -> JobType[..., Any] | ContextJobType[..., Any]:
            made = make_handler(self.dress(function), said, names)
            handler = replace(made, check_draft=self._check_made_here)
            schedule = of_handler(handler, timing) if timing else None
            self.registry.add(handler)
            if schedule is not None:
                self.registry.add_schedule(schedule)
            kind = ContextJobType if handler.signature.context_first else JobType
            return kind(self, handler, function)

        return register if function is None else register(function)

    def schedule(
        self,
        name: str,
        of: str | JobType[..., Any] | ContextJobType[..., Any],
        payload: Mapping[str, Any] | None = None,
        /,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Let jobs of a type come by themselves: `queue.schedule("weekly", report, {"days": 7}, cron=...)`.

        Workers enter it in the store when they start, and there it follows the code.
        """
        self.registry.add_schedule(make_schedule(self.registry, name, of, payload or {}, options))

    def dress(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What a worker calls for a handler; the queue of a framework puts its own around the function."""
        return function

    is_async = staticmethod(inspect.iscoroutinefunction)

    def limit(
        self, key: str, *, concurrency: int | None = None, rate: str | None = None, burst: int | None = None
    ) -> None:
        """Limit all types with `limit_key=key` together, over all workers; operators may set it otherwise."""
        self.registry.add_limit(check_limit_key(key), make_limit(concurrency, rate, burst))

    def on_worker_start(self, hook: Hook) -> Hook:
        """Call a function in each worker before it claims its first job."""
        self.registry.on_start.append(hook)
        return hook

    def on_worker_stop(self, hook: Hook) -> Hook:
        """Call a function in each worker after its last job."""
        self.registry.on_stop.append(hook)
        return hook

    # --- looking ---

    def get(self, name: str, *, tenant: str | None = None) -> Job:
        """A job by its id or key; JobNotFound if there is none.

        AmbiguousKey if several tenants have the key and none is named; `tenant=""` means no tenant.
        """
        job = self._opening.use(lambda opened: opened.front.get(name, tenant=tenant))
        if job is None:
            raise JobNotFound(name)
        return job

    def wait(self, name: str, timeout: Duration | None = None, *, tenant: str | None = None) -> Job:
        """Wait for the end of a job that is known by its id or key."""
        job = self.get(name, tenant=tenant)
        return JobHandle(self._opening, job.id, job.key, created=False).wait(timeout)

    def cancel(self, name: str, *, tenant: str | None = None) -> Acted:
        """End a pending job by its id or key as cancelled, or ask the worker of a running one to."""
        found = self.get(name, tenant=tenant).id
        return self._opening.use(lambda opened: opened.front.cancel(found))

    def confirm(self, name: str, *, tenant: str | None = None) -> bool:
        """Report that the effect of a job, by its id or key, arrived: a receipt, a webhook of the provider.

        Counted once for each job, by type (`windlass_jobs_confirmed_total`); False if it was reported before.
        """
        found = self.get(name, tenant=tenant).id
        return self._opening.use(lambda opened: opened.front.confirm(found))

    # --- working ---

    @property
    def shell(self) -> bool:
        """Whether the application's code has switched shell commands on."""
        return self._shell

    @contextlib.contextmanager
    def worker(self, **options: Unpack[WorkerOptions]) -> Iterator[Worker]:
        """Run a worker in this process for as long as the block lasts."""
        connect.check_direct(self.url, "a worker")
        config = worker_config({"shell": self._shell, **options})
        if config.shell:
            self.registry.add(shell_handler())
        from windlass.ops.bulk import carrying  # noqa: PLC0415 - producers need none of it

        worker = Worker(self.store, self.wakeup, self.registry, config, clock=self._opening.clock)
        with carrying(self.store, self.wakeup), worker:
            self.publish()
            yield worker

    # --- the store behind it ---

    @property
    def url(self) -> str:
        """Where its store is, whether it is open or not; may carry a password."""
        return self._opening.url

    @property
    def store(self) -> Store:
        """The store of this process, opened if need be; Refused if its URL names a server."""
        return self._opening.get().store

    @property
    def front(self) -> connect.Front:
        """The same store, or the server that its URL names."""
        return self._opening.get().front

    @property
    def wakeup(self) -> Wakeup:
        """The hints that belong to the store."""
        return self._opening.get().wakeup

    def open(self) -> Self:
        """Open the store now rather than on first use: a wrong URL or a missing file is noticed at once.

        A new file or database is given its tables.
        """
        self._opening.get()
        return self

    def close(self) -> None:
        """Let go of the store; the next use opens it again. Stop this queue's workers first."""
        self._opening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
