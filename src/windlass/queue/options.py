"""What code may say about a type, a schedule and a worker; all of it is checked here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from windlass.checks import yes_or_no
from windlass.config import WorkerConfig, parse_hang_limit, parse_pool
from windlass.duration import Duration, parse_duration
from windlass.errors import InvalidPayload, InvalidValue, UnknownType, must_be
from windlass.queue.jobs import choose
from windlass.registry import SHELL, Handler, Options, Registry
from windlass.schedule import NewSchedule, TimingOptions, check_name, read_timing
from windlass.size import Size, parse_size

if TYPE_CHECKING:
    from windlass.queue.jobs import Enqueueable

_TIMING = frozenset(TimingOptions.__annotations__)


class TypeOptions(TimingOptions, Options, total=False):
    """What a decorator may say about a type; with times, its jobs come by themselves."""


def type_options(options: TypeOptions) -> tuple[Options, TimingOptions]:
    """A type's options, and the times of its schedule if it has any."""
    _check_known("job option", options, TypeOptions)
    timing: Any = {name: value for name, value in options.items() if name in _TIMING and value is not None}
    said: Any = {name: value for name, value in options.items() if name not in _TIMING}
    return said, timing


def _check_known(what: str, options: Iterable[str], known: type) -> None:
    names = known.__annotations__
    if unknown := set(options) - set(names):
        raise must_be(what, min(unknown), "one of " + ", ".join(names))


class ScheduleOptions(TimingOptions, total=False):
    """What may be said about a schedule: its times, and what holds for its jobs."""

    priority: int | None
    max_attempts: int | None
    tenant: str


def of_handler(handler: Handler, timing: TimingOptions) -> NewSchedule:
    """The schedule that a decorator gives its function, under the type's own name."""
    checked = read_timing(timing)
    try:
        payload = handler.signature.encode({})
    except InvalidPayload:
        field, value = ("cron", checked.cron) if checked.cron else ("every", timing.get("every"))
        problem = (
            f"{field}= needs a function that can be called without arguments; "
            "use queue.schedule(name, function, payload, ...)"
        )
        raise InvalidValue(problem, field=field, value=value) from None
    return NewSchedule(
        name=handler.name, timing=checked, type=handler.name, payload=payload, schema_version=handler.version
    )


def make_schedule(
    registry: Registry,
    name: str,
    of: str | Enqueueable[...],
    payload: Mapping[str, Any],
    options: ScheduleOptions,
) -> NewSchedule:
    """A schedule from what the code says, all of it checked."""
    handler = _handler(registry, of)
    secret = sorted(set(handler.encrypt) & set(payload))
    if secret:
        allowed = "a payload without encrypted fields: a schedule keeps it in the clear"
        raise must_be(f"payload.{secret[0]}", "(hidden)", allowed)
    rest: dict[str, Any] = {key: value for key, value in options.items() if key not in _TIMING}
    timing: Any = {key: value for key, value in options.items() if key in _TIMING}
    _check_known("schedule option", rest, ScheduleOptions)
    return NewSchedule(
        name=check_name(name),
        timing=read_timing(timing),
        type=handler.name,
        payload=handler.signature.encode(payload),
        schema_version=handler.version,
        **choose(rest).fields,
    )


def _handler(registry: Registry, of: str | Enqueueable[...]) -> Handler:
    name = of if isinstance(of, str) else of.handler.name
    handler = registry.get(name)
    if name == SHELL:
        raise must_be("type", name, "a function of this queue; `windlass schedule add` takes commands")
    if handler is None:
        raise UnknownType(name, registry.names())
    return handler


class WorkerOptions(TypedDict, total=False):
    """The options of a worker; what they mean stands in WorkerConfig."""

    threads: int
    coroutines: int
    processes: int
    child_jobs: int
    pools: Iterable[str]
    memory: Size
    child_growth: Size
    concurrency: int | None
    types: Iterable[str]
    shell: Literal["local"] | bool
    lease: Duration
    poll: Duration
    grace: Duration
    exit_after: Duration
    hang_limit: Duration | None
    unsafe_lease: bool


def worker_config(options: Mapping[str, Any]) -> WorkerConfig:
    """A worker's options, checked."""
    _check_known("worker option", options, WorkerOptions)
    return WorkerConfig(**{name: _READERS[name](value, name) for name, value in options.items()})


def _whole(value: object, field: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise must_be(field, value, "a whole number")


def _shell(value: Any, field: str) -> Any:
    if value == "local" or isinstance(value, bool):
        return value
    raise must_be(field, value, 'True, False or "local"')


def _patterns(value: object, field: str) -> tuple[str, ...]:
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        patterns = tuple(value)
        if all(isinstance(pattern, str) and pattern for pattern in patterns):
            return patterns
    raise must_be(field, value, 'a list of types or patterns, such as ["email.*", "report"]')


_READERS: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("threads", "coroutines", "processes", "child_jobs"), _whole),
    **dict.fromkeys(("lease", "poll", "grace", "exit_after"), parse_duration),
    **dict.fromkeys(("memory", "child_growth"), parse_size),
    "concurrency": lambda value, field: None if value is None else _whole(value, field),
    "pools": lambda value, field: tuple(map(parse_pool, _patterns(value, field))),
    "types": _patterns,
    "shell": _shell,
    "hang_limit": parse_hang_limit,
    "unsafe_lease": lambda value, field: yes_or_no(field, value),
}
