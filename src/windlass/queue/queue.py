"""What does an application hold? One Queue: decorate, enqueue, look, run a worker."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import FrameType, TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from windlass.checks import check_app_version, check_limit_key
from windlass.context import Context
from windlass.duration import Duration, parse_duration
from windlass.errors import JobNotFound, must_be
from windlass.policy.limit import make_limit
from windlass.policy.rules import Rules
from windlass.queue.batch import Batch
from windlass.queue.handle import JobHandle
from windlass.queue.jobtype import ContextJobType, JobType
from windlass.queue.opening import Opening
from windlass.queue.options import JobOptions, choose, without_connection
from windlass.queue.producer import Producer
from windlass.queue.schedules import TIMING, ScheduleOptions, make_schedule, of_handler
from windlass.queue.working import WorkerOptions, worker_config
from windlass.registry import (
    Executor,
    Options,
    Registry,
    WhenUnsure,
    make_handler,
    shell_handler,
)
from windlass.schedule import TimingOptions
from windlass.worker.worker import Worker

if TYPE_CHECKING:
    from windlass.clock import Clock
    from windlass.connect import Opened
    from windlass.job import Job, Keep, NewJob
    from windlass.policy.retry import Retry
    from windlass.size import Size
    from windlass.store.chains import BatchInfo
    from windlass.store.engine import Acted
    from windlass.store.store import Store
    from windlass.wakeup.protocol import Wakeup

P = ParamSpec("P")
R = TypeVar("R")
Hook = TypeVar("Hook", bound=Callable[[], object])


class TypeOptions(TimingOptions, total=False):
    """What a decorator may say about a type; with times, its jobs come by themselves."""

    name: str
    executor: Executor
    memory: Size
    cpu_time: Duration
    timeout: Duration
    max_attempts: int
    retry: Retry
    rules: Rules
    max_age: Duration
    priority: int
    version: int
    when_unsure: WhenUnsure
    encrypt: Sequence[str]
    concurrency: int
    tenant_concurrency: int
    rate: str
    burst: int
    limit_key: str
    max_priority: int
    sensitive: bool
    result: Keep
    verify: Callable[..., bool | Awaitable[bool]]
    sample: float
    verify_after: Duration
    smoke: Mapping[str, Any]


class Decorator(Protocol):
    """What `@queue.job(...)` gives: turns a function into a JobType."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> ContextJobType[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> JobType[P, R]: ...


class Queue:
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
        self.registry = Registry()
        self.registry.app_version = check_app_version(version)
        self._shell = shell
        self._opening = Opening(
            url, clock, None if patience is None else parse_duration(patience, "patience")
        )
        self._producer = Producer(self._opening, self.registry)
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
        said, timing = _checked(options)
        # Annotations in text may name what stands around the function.
        names = _names_around(inspect.currentframe())

        def register(function: Callable[..., Any]) -> JobType[..., Any] | ContextJobType[..., Any]:
            made = make_handler(self.dress(function), said, names)
            handler = replace(made, check_draft=self._producer.check_made_here)
            schedule = of_handler(handler, timing) if timing else None
            self.registry.add(handler)
            if schedule is not None:
                self.registry.add_schedule(schedule)
            kind = ContextJobType if handler.signature.context_first else JobType
            return kind(self._producer, handler, function)

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

    @staticmethod
    def is_async(function: Callable[..., Any]) -> bool:
        """Whether a handler is `async def`."""
        return inspect.iscoroutinefunction(function)

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

    # --- producing ---

    def publish(self) -> None:
        """Tell the store of this process's handlers, as the first enqueue and every worker do."""
        self._producer.publish()

    def enqueue(self, name: str, payload: Mapping[str, Any], **options: Unpack[JobOptions]) -> JobHandle:
        """Store a job by its type's name; the handler may be here, or only known to the store."""
        choice = choose(options)
        draft = self._producer.draft_by_name(name, payload, choice, fresh=True)
        return self._producer.enqueue(draft, choice.connection)

    async def enqueue_async(
        self, name: str, payload: Mapping[str, Any], **options: Unpack[JobOptions]
    ) -> JobHandle:
        """For async callers; `connection=` may be an async one."""
        choice = choose(options)
        return await self._producer.enqueue_async(
            lambda: self._producer.draft_by_name(name, payload, choice, fresh=True), choice.connection
        )

    def draft(self, name: str, payload: Mapping[str, Any], **options: Unpack[JobOptions]) -> NewJob:
        """A checked job that is not stored yet, by its type's name."""
        return self._producer.draft_by_name(name, payload, without_connection(choose(options)))

    def draft_sent(self, name: str, text: bytes, options: Mapping[str, Any]) -> NewJob:
        """A checked job whose payload came as JSON, to be stored by the same call; for servers."""
        return self._producer.draft_sent(name, text, without_connection(choose(options)))

    def draft_at_hand(self, name: str, text: bytes, options: Mapping[str, Any]) -> NewJob:
        """The same, or NotAtHand if the store must be asked for it: a server's loop must not wait."""
        return self._producer.draft_at_hand(name, text, without_connection(choose(options)))

    def admit(self, drafts: Sequence[NewJob]) -> None:
        """Refuse drafts with QueueFull if too many jobs wait, at soft_depth already; for servers."""
        self._producer.admit(drafts, soft=True)

    def enqueue_many(
        self,
        drafts: Iterable[NewJob],
        *,
        connection: object | None = None,
        max_per_second: float | None = None,
    ) -> list[JobHandle]:
        """Store drafts in their order: all or none up to 10,000, beyond that all or none of each 10,000.

        With `max_per_second` they are stored little by little. If a draft is refused, what was stored before
        it stays: the error has the draft's `index` in your list, and how many were `stored`. Sending the same
        drafts again stores none of them twice. With `connection` your transaction decides about all of them.
        """
        return self._producer.enqueue_many(drafts, connection, max_per_second)

    async def enqueue_many_async(
        self,
        drafts: Iterable[NewJob],
        *,
        connection: object | None = None,
        max_per_second: float | None = None,
    ) -> list[JobHandle]:
        """For async callers; `connection=` may be an async one."""
        return await self._producer.enqueue_many_async(drafts, connection, max_per_second)

    def batch(self, name: str = "") -> Batch:
        """`with queue.batch() as batch: batch.add(...)`: jobs stored together, with progress to ask for."""
        return Batch(self._producer, name)

    # --- looking ---

    def batch_status(self, batch_id: str) -> BatchInfo:
        """How many jobs of a batch stand in which state; JobNotFound if there is none."""
        return self._producer.batch_status(batch_id)

    def get(self, name: str, *, tenant: str | None = None) -> Job:
        """A job by its id or key; JobNotFound if there is none.

        AmbiguousKey if several tenants have the key and none is named; `tenant=""` means no tenant.
        """
        job = self._opening.use(lambda opened: opened.store.get(name, tenant=tenant))
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
        return self._opening.use(lambda opened: opened.store.cancel(found))

    def confirm(self, name: str, *, tenant: str | None = None) -> bool:
        """Report that the effect of a job, by its id or key, arrived: a receipt, a webhook of the provider.

        Counted once for each job, by type (`windlass_jobs_confirmed_total`); False if it was reported before.
        """
        found = self.get(name, tenant=tenant).id
        return self._opening.use(lambda opened: opened.store.confirm(found))

    # --- working ---

    @property
    def shell(self) -> bool:
        """Whether the application's code has switched shell commands on."""
        return self._shell

    @contextlib.contextmanager
    def worker(self, **options: Unpack[WorkerOptions]) -> Iterator[Worker]:
        """Run a worker in this process for as long as the block lasts."""
        config = worker_config({"shell": self._shell, **options})
        if config.shell:
            self.registry.add(shell_handler())
        worker = Worker(self.store, self.wakeup, self.registry, config, clock=self._opening.clock)
        worker.start()
        try:
            self._producer.publish()
            yield worker
        finally:
            worker.stop()

    # --- the store behind it ---

    def stand_at(self, url: str) -> None:
        """Say where the store is, for a queue that was made before that was known."""
        self._opening.stand_at(url)

    @property
    def url(self) -> str:
        """Where its store is, whether it is open or not; may carry a password."""
        return self._opening.url

    @property
    def store(self) -> Store:
        """The store of this process, opened if need be."""
        return self._opening.get().store

    @property
    def wakeup(self) -> Wakeup:
        """The hints that belong to the store."""
        return self._opening.get().wakeup

    def instead(self, opened: Opened, url: str, clock: Clock) -> AbstractContextManager[None]:
        """Stand on another store, under another clock, for as long as the block lasts; for tests."""
        return self._opening.instead(opened, url, clock)

    def open(self) -> Self:
        """Open the store now rather than on first use: a wrong URL or a missing file is noticed at once.

        A new file or database is given its tables.
        """
        self._opening.get()
        return self

    def close(self) -> None:
        """Let go of the store; the next use opens it again."""
        self._opening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _names_around(frame: FrameType | None) -> dict[str, Any]:
    """The caller's local names, seen from the frame that it called."""
    return {} if frame is None or frame.f_back is None else dict(frame.f_back.f_locals)


def _checked(options: TypeOptions) -> tuple[Options, TimingOptions]:
    unknown = set(options) - set(TypeOptions.__annotations__)
    if unknown:
        raise must_be("job option", min(unknown), "one of " + ", ".join(TypeOptions.__annotations__))
    timing: Any = {name: value for name, value in options.items() if name in TIMING and value is not None}
    said: dict[str, Any] = {name: value for name, value in options.items() if name not in TIMING}
    return Options(**said), timing
