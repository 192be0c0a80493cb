"""What may be said about a worker that runs inside the caller's process?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from windlass.config import PoolConfig, WorkerConfig, parse_hang_limit, parse_pool
from windlass.duration import Duration, parse_duration
from windlass.errors import must_be
from windlass.size import Size, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable


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
    unknown = set(options) - set(_READERS)
    if unknown:
        raise must_be("worker option", min(unknown), "one of " + ", ".join(_READERS))
    return WorkerConfig(**{name: _READERS[name](value, name) for name, value in options.items()})


def _whole(value: object, field: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise must_be(field, value, "a whole number")


def _whole_or_none(value: object, field: str) -> int | None:
    return None if value is None else _whole(value, field)


def _switch(value: object, field: str) -> bool:
    if isinstance(value, bool):
        return value
    raise must_be(field, value, "True or False")


def _shell(value: object, field: str) -> Literal["local"] | bool:
    if value == "local":
        return "local"
    if isinstance(value, bool):
        return value
    raise must_be(field, value, 'True, False or "local"')


def _patterns(value: object, field: str) -> tuple[str, ...]:
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        patterns = tuple(value)
        if all(isinstance(pattern, str) and pattern for pattern in patterns):
            return patterns
    raise must_be(field, value, 'a list of types or patterns, such as ["email.*", "report"]')


def _pools(value: object, field: str) -> tuple[PoolConfig, ...]:
    return tuple(parse_pool(pool) for pool in _patterns(value, field))


_READERS: dict[str, Callable[[Any, str], Any]] = {
    "threads": _whole,
    "coroutines": _whole,
    "processes": _whole,
    "child_jobs": _whole,
    "pools": _pools,
    "memory": parse_size,
    "child_growth": parse_size,
    "concurrency": _whole_or_none,
    "types": _patterns,
    "shell": _shell,
    "lease": parse_duration,
    "poll": parse_duration,
    "grace": parse_duration,
    "exit_after": parse_duration,
    "hang_limit": parse_hang_limit,
    "unsafe_lease": _switch,
}
