"""Is what a decorator, a producer or an operator says allowed?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeGuard, TypeVar

from windlass import job
from windlass.duration import parse_duration
from windlass.errors import InvalidPayload, InvalidValue, UnknownType, must_be

T = TypeVar("T")
_Choice = TypeVar("_Choice", bound=str)
Wrong = InvalidValue | InvalidPayload | UnknownType
_NAME = re.compile(r"[a-z][a-z0-9_.-]*")
_UNSTORABLE = re.compile("[\ud800-\udfff\0]")
_STORABLE = "without NUL or lone surrogates"
# What every text may be that a store is asked for.
TEXT = f"a text {_STORABLE}"


class InvalidValues(InvalidValue):
    """Several values that are not allowed, or payloads that do not fit; it reads as the first of them."""

    def __init__(self, problems: Sequence[Wrong]) -> None:
        self.problems, first = tuple(problems), problems[0]
        super().__init__(
            str(first),
            field=_field(first),
            value=getattr(first, "value", None),
            allowed=getattr(first, "allowed", ""),
        )


class Problems:
    """Collects what is refused within its blocks, so that a caller hears of everything at once."""

    def __init__(self) -> None:
        self.found: list[Wrong] = []
        # Fields that were refused already. The checks after that see a request without them.
        self.known: set[str] = set()

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: object, _trace: object) -> bool:
        if not isinstance(error, Wrong):
            return False
        each = error.problems if isinstance(error, InvalidValues) else (error,)
        self.found += [wrong for wrong in each if not self.knows(_field(wrong))]
        return True

    def tried(self, check: Callable[..., T | None], *values: object) -> T | None:
        """What a check makes of a value; None if it refuses it."""
        with self:
            return check(*values)
        return None

    def refuse(self, wrong: Iterable[InvalidValue]) -> None:
        """Add fields that are wrong in themselves; what later checks say about the same ones is left out."""
        self.found += (found := list(wrong))
        self.known |= {each.field for each in found}

    def knows(self, fields: str) -> bool:
        """Whether one of these fields was refused, or what it is a part of."""
        return any(
            f"{each}.".startswith((f"{known}.", f"{known}["))
            for each in fields.split(", ")
            for known in self.known
        )

    def check(self) -> None:
        """Refuse it all, if anything was found."""
        if self.found:
            raise self.found[0] if len(self.found) == 1 else InvalidValues(self.found)


def _field(wrong: Wrong) -> str:
    if isinstance(wrong, UnknownType):
        return "type"
    return wrong.field if isinstance(wrong, InvalidValue) else "payload"


def check_name(name: object, field: str, longest: int = job.MAX_TYPE) -> str:
    """The name of a type, of what types share or of a schedule, or InvalidValue."""
    if isinstance(name, str) and len(name) <= longest and _NAME.fullmatch(name):
        return name
    raise must_be(field, name, f"a letter a-z, then a-z, 0-9, _, . or -, at most {longest} characters")


check_type = partial(check_name, field="type")
check_limit_key = partial(check_name, field="limit_key")


def check_text(field: str, value: object, longest: int, *, least: int = 1) -> str:
    """A text that every store can keep, or InvalidValue."""
    if storable(value) and least <= len(value) <= longest:
        return value
    raise must_be(field, value, f"a text of {least} to {longest} characters, {_STORABLE}")


def storable(value: object) -> TypeGuard[str]:
    """Whether it is a text that every store can keep: without NUL and lone surrogates."""
    return isinstance(value, str) and not _UNSTORABLE.search(value)


def check_timeout(value: object) -> timedelta:
    """How long a run may take, or InvalidValue."""
    timeout = parse_duration(value, "timeout")
    if not job.SHORTEST_TIMEOUT <= timeout <= job.LONGEST_TIMEOUT:
        raise must_be("timeout", value, "between 1ms and 7d")
    return timeout


def read_moment(text: object, field: str = "time") -> datetime:
    """A time from ISO 8601, in UTC, or InvalidValue; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(str(text).strip())
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise must_be(field, text, "a time in ISO 8601, such as 2030-01-31T09:00:00Z") from None


def check_moment(field: str, value: datetime) -> datetime:
    """When a job runs, in UTC, or InvalidValue; a time without a zone is taken as UTC."""
    try:
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        moment = None
    if moment is None or moment >= job.LATEST_AT:
        raise must_be(field, value, f"a time between the years 1 and {job.LATEST_AT.year - 1} in UTC")
    return moment


def check_app_version(value: object) -> str:
    """The release of an application as it is told, or InvalidValue."""
    if not isinstance(value, str) or len(value) > job.MAX_APP_VERSION or not value.isprintable():
        raise must_be("version", value, f"a text of up to {job.MAX_APP_VERSION} printable characters")
    return value


def check_whole(field: str, value: object, least: int, most: int) -> int:
    """A whole number within bounds, or InvalidValue."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise must_be(field, value, f"a whole number between {least} and {most}")


check_priority = partial(check_whole, "priority", least=0, most=job.HIGHEST_PRIORITY)
check_max_priority = partial(check_whole, "max_priority", least=0, most=job.HIGHEST_PRIORITY)
check_max_attempts = partial(check_whole, "max_attempts", least=1, most=job.MAX_ATTEMPTS)


def one_of(field: str, value: _Choice, allowed: tuple[_Choice, ...]) -> _Choice:
    """One of these words, or InvalidValue."""
    if value not in allowed:
        raise must_be(field, value, "one of " + ", ".join(allowed))
    return value


def yes_or_no(field: str, value: object) -> bool:
    """Whether; None is no. InvalidValue for anything else."""
    if value is None or isinstance(value, bool):
        return bool(value)
    raise must_be(field, value, "True or False")
