"""One job from its producer's side: the decorated function, the options, and the handle."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
)
from uuid import UUID

import msgspec

from windlass.checks import check_max_attempts, check_moment, check_priority, check_text, one_of, storable
from windlass.clock import SystemClock, uuid7
from windlass.context import Context
from windlass.duration import Duration, parse_duration
from windlass.errors import InvalidValue, JobNotFound, JobUnsuccessful, ResultMissing, WaitTimeout, must_be
from windlass.job import LATEST, MAX_KEY, MAX_TENANT, MAX_UNIQUE, Job, JobState, NewJob
from windlass.payload.codec import check_size
from windlass.payload.seal import check_reference, with_reference
from windlass.payload.upgrades import Step

if TYPE_CHECKING:
    from windlass.queue.backend import Opening, TypeDefaults
    from windlass.queue.producer import Producer
    from windlass.registry import Handler
    from windlass.wakeup import Wakeup

P = ParamSpec("P")
R = TypeVar("R")

_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.25


class JobOptions(TypedDict, total=False):
    """What a producer may say about one job."""

    priority: int | None
    delay: Duration | None
    at: datetime | None
    key: str | None
    id: str | UUID | None
    tenant: str | None
    max_attempts: int | None
    on_conflict: Literal["error", "existing"]
    connection: object | None
    traceparent: str | None
    payload_ref: str | None
    depends_on: Sequence[str | HasId] | None
    on_dead: Literal["wait", "cancel", "run"]
    unique: str | None
    until: Literal["start", "done"] | None
    on_unique: Literal["skip", "replace", "error"] | None


class HasId(Protocol):
    """A job in the caller's hands, such as a JobHandle."""

    id: str


class Choice(NamedTuple):
    """A producer's checked options: fields of a NewJob, and what is none."""

    fields: Mapping[str, Any] = {}
    connection: object | None = None
    payload_ref: str | None = None

    def draft(
        self, job_type: str, payload: bytes, defaults: TypeDefaults, *, fresh: bool, made_for: int = 0
    ) -> NewJob:
        """A job that is ready to be stored."""
        if self.payload_ref is not None:
            payload = check_size(with_reference(payload, self.payload_ref), job_type)
        fields = self.fields
        if not fields:
            # Most jobs: what is left out need not be looked at.
            return NewJob(
                id=uuid7(),
                fresh=fresh,
                type=job_type,
                payload=payload,
                schema_version=defaults.version,
                priority=defaults.priority,
                max_attempts=defaults.max_attempts,
                made_for=made_for,
            )
        if fields.get("priority", 0) > defaults.max_priority:
            allowed = f"at most {defaults.max_priority} for jobs of type {job_type}"
            raise must_be("priority", fields["priority"], allowed)
        own_id = "id" in fields
        given = {"priority": defaults.priority, "max_attempts": defaults.max_attempts, **fields}
        return NewJob(
            id=given.pop("id", None) or uuid7(),
            own_id=own_id,
            fresh=fresh and not own_id,
            type=job_type,
            payload=payload,
            schema_version=defaults.version,
            made_for=made_for,
            **given,
        )


NO_CHOICE = Choice()


def choose(options: Mapping[str, Any]) -> Choice:
    """Options as a producer wrote them, checked; None is the same as left out."""
    if not options:
        return NO_CHOICE
    if not options.keys() <= _CHECKS.keys():
        raise must_be("option", min(options.keys() - _CHECKS.keys()), "one of " + ", ".join(_CHECKS))
    given = {name: value for name, value in options.items() if value is not None}
    if "delay" in given and "at" in given:
        problem = "at= and delay= exclude each other"
        raise InvalidValue(problem, field="at", value=given["at"], allowed="left out when delay is given")
    if "unique" not in given and ("until" in given or "on_unique" in given):
        problem = "until= and on_unique= require unique="
        raise InvalidValue(problem, field="unique", value=None, allowed="given with until and on_unique")
    if given.get("on_unique") == "replace" and "depends_on" in given:
        raise must_be("on_unique", "replace", "skip or error for a job that depends on others")
    # Only what was given costs anything: this is done for every job.
    fields = {_FIELDS.get(name, name): _CHECKS[name](value) for name, value in given.items()}
    return Choice(
        connection=fields.pop("connection", None), payload_ref=fields.pop("payload_ref", None), fields=fields
    )


def without_connection(choice: Choice) -> Choice:
    """The choice, if a draft can carry it: a transaction is chosen when drafts are stored."""
    if choice.connection is not None:
        problem = "a draft cannot carry connection=; pass it to enqueue_many()"
        raise InvalidValue(problem, field="connection", value=choice.connection)
    return choice


def _moment(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise must_be("at", value, "a datetime; one without a zone is taken as UTC")
    return check_moment("at", value)


def _id(value: object) -> str:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, str) and _UUID.fullmatch(value):
        return value.lower()
    raise must_be("id", value, "a UUID; a name of your own is a key")


def _parents(value: object) -> tuple[str, ...]:
    allowed = f"a list of up to {MOST_PARENTS} jobs: handles, ids or keys"
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or len(value) > MOST_PARENTS:
        raise must_be("depends_on", value, allowed)
    names = tuple(each if isinstance(each, str) else getattr(each, "id", None) for each in value)
    for name in names:
        if not storable(name) or not 1 <= len(name) <= MAX_KEY:
            raise must_be("depends_on", value, allowed)
    return tuple(str(name) for name in names)


def _traceparent(value: object) -> str:
    if isinstance(value, str) and TRACEPARENT.fullmatch(value):
        return value
    example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    raise must_be("traceparent", value, f"a W3C trace context such as {example}")


MOST_PARENTS = 1_000
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
# By option, what makes of it what a NewJob holds.
_CHECKS: dict[str, Callable[[Any], Any]] = {
    "priority": check_priority,
    "delay": partial(parse_duration, field="delay", longest=LATEST),
    "at": _moment,
    "key": partial(check_text, "key", longest=MAX_KEY),
    "id": _id,
    "tenant": partial(check_text, "tenant", longest=MAX_TENANT),
    "max_attempts": check_max_attempts,
    "on_conflict": lambda value: one_of("on_conflict", value, ("error", "existing")) == "existing",
    "connection": lambda value: value,
    "traceparent": _traceparent,
    "payload_ref": check_reference,
    "depends_on": _parents,
    "on_dead": partial(one_of, "on_dead", allowed=("wait", "cancel", "run")),
    "unique": partial(check_text, "unique", longest=MAX_UNIQUE),
    "until": partial(one_of, "until", allowed=("start", "done")),
    "on_unique": partial(one_of, "on_unique", allowed=("skip", "replace", "error")),
}
# Where the two have other names.
_FIELDS = {"at": "run_at", "on_conflict": "take_existing", "until": "unique_until"}


# --- job types ----------------------------------------------------------------------------------


class Prepared(Generic[P]):
    """A type together with options for its next jobs."""

    def __init__(self, queue: Producer, handler: Handler, choice: Choice) -> None:
        self._queue = queue
        self._choice = choice
        self.handler = handler

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Store a job with these arguments; it is accepted when this returns.

        With `connection=` it is accepted when the caller commits.
        """
        handler, choice, queue = self.handler, self._choice, self._queue
        draft = queue._draft_for(handler, handler.signature.bind(*args, **kwargs), choice, fresh=True)
        return queue._put(draft, choice.connection)

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """For async callers; one thread hop. `connection=` may be an async one."""
        return await self._queue._put_async(
            lambda: self._draft(args, kwargs, fresh=True), self._choice.connection
        )

    def draft(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """A checked job that is not stored yet, for `queue.enqueue_many`."""
        without_connection(self._choice)
        return self._draft(args, kwargs, fresh=False)

    def _draft(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, fresh: bool) -> NewJob:
        arguments = self.handler.signature.bind(*args, **kwargs)
        return self._queue._draft_for(self.handler, arguments, self._choice, fresh=fresh)


class Enqueueable(Prepared[P]):
    """What can be enqueued with the arguments P: a handler's function, which stays callable."""

    __name__: str

    def __init__(self, queue: Producer, handler: Handler, function: Callable[..., Any]) -> None:
        super().__init__(queue, handler, NO_CHOICE)
        copied: Any = self
        functools.update_wrapper(copied, function, updated=())
        self._function = function

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.handler.name!r})"

    def options(self, **options: Unpack[JobOptions]) -> Prepared[P]:
        """The same with options for the jobs to be enqueued: priority, delay, key and the like."""
        return Prepared(self._queue, self.handler, choose(options))

    def upgrade(self, *, from_version: int) -> Callable[[Step], Step]:
        """Say how a payload of an older version becomes one of the next; a dict comes in, a dict goes out."""

        def add(step: Step) -> Step:
            self.handler.upgrades.add(from_version, step)
            return step

        return add


class JobType(Enqueueable[P], Generic[P, R]):
    """A handler's function, still callable, that can be enqueued with the same arguments."""

    _function: Callable[P, R]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now; no job is made."""
        return self._function(*args, **kwargs)


class ContextJobType(Enqueueable[P], Generic[P, R]):
    """The same for a function that takes a Context: a call gives one, a job gets it from the worker."""

    _function: Callable[Concatenate[Context, P], R]

    def __call__(self, ctx: Context, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now; no job is made."""
        return self._function(ctx, *args, **kwargs)


# --- handles ------------------------------------------------------------------------------------


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
        job = self._opening.use(lambda opened: opened.front.get(self.id, caller=None))
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
        calm = asyncio.Event()
        async with hints(self._opening.get().wakeup, asyncio.to_thread) as hint:
            for pause in _pauses(timeout):
                hint.clear()
                job = await asyncio.to_thread(self.get)
                if job.ended:
                    return job
                await happens(calm, min(pause, _FIRST_PAUSE))
                await happens(hint, max(pause - _FIRST_PAUSE, 0))
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


@contextlib.asynccontextmanager
async def hints(wakeup: Wakeup, run: Callable[..., Awaitable[object]]) -> AsyncIterator[asyncio.Event]:
    """An event that is set at each hint, for as long as the block lasts; `run` calls on another thread."""
    loop, hint = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        # A hint may be on its way when the loop is already closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(hint.set)

    await run(wakeup.subscribe, wake)
    try:
        yield hint
    finally:
        await run(wakeup.unsubscribe, wake)


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, so long; whether it happened."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def result_of(job: Job) -> Any:
    """What the handler of an ended job returned; ResultMissing if it could not be kept."""
    if job.result_missing is not None:
        raise ResultMissing(job.id, job.result_missing)
    if job.state is JobState.COMPLETED:
        return None if job.result is None else msgspec.json.decode(job.result)
    why = ""
    if job.error is not None:
        why = f" ({job.error.reason}): " + ": ".join(filter(None, (job.error.kind, job.error.message)))
    raise JobUnsuccessful(f"job {job.id} ended as {job.state}{why}")
