"""Is what a decorator, a producer or an operator says allowed?"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeVar

from windlass.duration import parse_duration
from windlass.errors import InvalidValue
from windlass.job import (
    HIGHEST_PRIORITY,
    LONGEST_TIMEOUT,
    MAX_APP_VERSION,
    MAX_ATTEMPTS,
    MAX_TYPE,
    SHORTEST_TIMEOUT,
)

_Choice = TypeVar("_Choice", bound=str)
_TYPE = re.compile(r"[a-z][a-z0-9_.-]*")


def check_type(name: object) -> str:
    """A type's name, or InvalidValue."""
    if isinstance(name, str) and len(name) <= MAX_TYPE and _TYPE.fullmatch(name):
        return name
    allowed = f"a letter a-z, then a-z, 0-9, _, . or -, at most {MAX_TYPE} characters"
    raise InvalidValue("type", name, allowed)


def check_limit_key(key: object) -> str:
    """The name of what several types share, or InvalidValue."""
    try:
        return check_type(key)
    except InvalidValue as error:
        raise InvalidValue("limit_key", key, error.allowed) from None


def check_priority(value: object) -> int:
    """A priority, or InvalidValue."""
    return check_whole("priority", value, 0, HIGHEST_PRIORITY)


def check_max_priority(value: object) -> int:
    """The highest priority of a type's jobs, or InvalidValue."""
    return check_whole("max_priority", value, 0, HIGHEST_PRIORITY)


def check_max_attempts(value: object) -> int:
    """A bound for attempts, or InvalidValue."""
    return check_whole("max_attempts", value, 1, MAX_ATTEMPTS)


def check_timeout(value: object) -> timedelta:
    """How long a run may take, or InvalidValue."""
    timeout = parse_duration(value, "timeout")
    if not SHORTEST_TIMEOUT <= timeout <= LONGEST_TIMEOUT:
        raise InvalidValue("timeout", value, "between 1ms and 7d")
    return timeout


def check_app_version(value: object) -> str:
    """The release of an application as it is told, or InvalidValue."""
    if not isinstance(value, str) or len(value) > MAX_APP_VERSION or not value.isprintable():
        raise InvalidValue("version", value, f"a text of up to {MAX_APP_VERSION} printable characters")
    return value


def check_whole(field: str, value: object, least: int, most: int) -> int:
    """A whole number within bounds, or InvalidValue."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise InvalidValue(field, value, f"a whole number between {least} and {most}")


def one_of(field: str, value: _Choice, allowed: tuple[_Choice, ...]) -> _Choice:
    """One of these words, or InvalidValue."""
    if value not in allowed:
        raise InvalidValue(field, value, "one of " + ", ".join(allowed))
    return value


def yes_or_no(field: str, value: object) -> bool:
    """Whether; None is no. InvalidValue for anything else."""
    if value is None or isinstance(value, bool):
        return bool(value)
    raise InvalidValue(field, value, "True or False")
