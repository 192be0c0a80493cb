"""Settings that operators change at run time: their names, values, and what they come to for one type.

A plain name (`timeout`) is the default for types whose code says nothing; a name with a type in front
(`report.build.timeout`) is an operator's override, which wins over the code until it is reset. Limits are
also set for what shares a key (`key:crm.concurrency`) and for all jobs together (`*.rate`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from windlass import job
from windlass.checks import Problems
from windlass.duration import parse_duration
from windlass.errors import InvalidValue, must_be
from windlass.policy import KINDS, MOST_AT_ONCE, MOST_JOBS, BreakerTerms, Limit, Rate, Retry, parse_rate

# Whose limits hold for all jobs together, and for those that share a key.
ALL = "*"
KEY = "key:"
# Whose jobs are counted apart in metrics.
TENANTS = "metrics.tenants"

# Whoever knows such an address can write to it: only who may set it is shown it.
SECRET = frozenset({"alerts.webhook"})
_ABOUT_ALL = ("keep_", "low_share", "schedules.", "alerts.", "autoscale.", "metrics.")
_TOGETHER = ("concurrency", "rate", "burst")


def split(name: str) -> tuple[str | None, str]:
    """The type (None: all types) and the setting that a name speaks of."""
    if name in DEFAULTS:
        return None, name
    for setting in PER_TYPE:
        job_type = name.removesuffix(f".{setting}")
        if job_type != name and 0 < len(job_type) <= job.MAX_TYPE:
            settable = _settable(job_type)
            if setting not in settable:
                allowed = "one of " + ", ".join(f"{job_type}.{each}" for each in settable)
                raise must_be("setting", name, allowed)
            return job_type, setting
    raise must_be(
        "setting",
        name,
        f"one of {', '.join(DEFAULTS)}, or for one type TYPE.max_attempts, TYPE.timeout, TYPE.rate and so on",
    )


def _settable(owner: str) -> tuple[str, ...]:
    """What can be set for a type, a key or all jobs together: anything else would hold for nobody."""
    if owner == ALL:
        return (*_TOGETHER, "soft_depth", "hard_depth")
    if owner.startswith(KEY):
        return (*_TOGETHER, *(name for name in PER_TYPE if name.startswith("breaker.")))
    return PER_TYPE


# --- values --------------------------------------------------------------------------------------

T = TypeVar("T")
_NONE = "none"
_MOST_DIGITS = 18
_DEEPEST = 10**12
_MOST_WORKERS = 10_000
_MOST_TENANTS = 50
# What all tenants that are not named are called there.
_OTHERS = "other"


def parse(name: str, text: str) -> Any:
    """A setting's value from its text; InvalidValue names the setting and what is allowed."""
    _, setting = split(name)
    try:
        return _SETTINGS[setting][1](text.strip())
    except InvalidValue as error:
        raise must_be(name, text, error.allowed) from None


def _between(read: Callable[[str], Any], least: Any, most: Any, allowed: str) -> Callable[[str], Any]:
    def checked(text: str) -> Any:
        with contextlib.suppress(ValueError):
            if least <= (found := read(text)) <= most:
                return found
        raise must_be("", text, allowed)

    return checked


def _digits(text: str) -> int:
    # So many at most: reading thousands of them is refused in other words.
    if text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    raise ValueError(text)


def _whole(least: int, most: int) -> Callable[[str], int]:
    return _between(_digits, least, most, f"a whole number between {least} and {most}")


def _or_none(reader: Callable[[str], T], text: str) -> T | None:
    try:
        return None if text == _NONE else reader(text)
    except InvalidValue as error:
        raise must_be("", text, f"{error.allowed}, or {_NONE}") from None


def _webhook(text: str) -> str:
    with contextlib.suppress(ValueError):
        parts = urlsplit(text)
        # Asking for the port refuses one that is no number.
        reachable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        plain = text.isascii() and text.isprintable() and " " not in text
        # A password in it would stand in logs and in the audit; what is sent is signed instead.
        if reachable and plain and "@" not in parts.netloc:
            return text
    raise must_be("", text, "a URL that begins with http:// or https://, without a user")


def _tenants(text: str) -> tuple[str, ...]:
    """Named one by one: a label for each of ten thousand tenants would be the end of any Prometheus."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    fit = all(0 < len(name) <= job.MAX_TENANT and name.isprintable() and name != _OTHERS for name in names)
    if fit and len(names) <= _MOST_TENANTS:
        return names
    raise must_be(
        "", text, f"the names of up to {_MOST_TENANTS} tenants (not {_OTHERS!r}) such as acme, globex"
    )


def _kind(text: str) -> str:
    if text in KINDS:
        return text
    raise must_be("", text, "one of " + ", ".join(KINDS))


def _seconds(text: str) -> float:
    return float(_DELAY(text).total_seconds())


def _delays(text: str) -> tuple[float, ...]:
    return tuple(_seconds(part.strip()) for part in text.split(","))


_time, _share = partial(_between, parse_duration), partial(_between, float)
_STANDARD = Retry()
_BREAKER = BreakerTerms()
_AT_ONCE = partial(_or_none, _whole(1, MOST_AT_ONCE))
_DEPTH = _whole(1, _DEEPEST)
_DELAY = _time(timedelta(0), timedelta(days=30), "a duration such as 30s or 5m, up to 30d")
_MOMENTS = _time(timedelta(seconds=1), timedelta(days=1), "a duration between 1s and 1d")
_TIMEOUT = _time(job.SHORTEST_TIMEOUT, job.LONGEST_TIMEOUT, "a duration such as 30s or 10m, up to 7d")
_KEEP = _time(timedelta(0), timedelta(days=3650), "a duration such as 7d, up to 3650d")
# Processes say each minute that they are there.
_KEEP_SCHEMAS = _time(timedelta(minutes=3), timedelta(days=7), "a duration between 3m and 7d")
_FAILED_SHARE = _share(math.nextafter(0, 1), math.nextafter(1, 0), "a share between 0 and 1 such as 0.8")
_LOW_SHARE = _share(0.0, 0.5, "a share between 0 and 0.5 such as 0.1")

# Every setting: its default, and how it is read.
_SETTINGS: dict[str, tuple[Any, Callable[[str], Any]]] = {
    "max_attempts": (job.DEFAULT_MAX_ATTEMPTS, _whole(1, job.MAX_ATTEMPTS)),
    "timeout": (job.DEFAULT_TIMEOUT, _TIMEOUT),
    "retry.kind": (_STANDARD.kind, _kind),
    "retry.base": (_STANDARD.base, _seconds),
    "retry.cap": (_STANDARD.cap, _seconds),
    "retry.jitter": (_STANDARD.jitter, _seconds),
    "retry.delays": (_STANDARD.delays, _delays),
    "concurrency": (None, _AT_ONCE),
    "tenant_concurrency": (None, _AT_ONCE),
    "rate": (None, partial(_or_none, parse_rate)),
    "burst": (None, _AT_ONCE),
    "soft_depth": (100_000, _DEPTH),
    "hard_depth": (500_000, _DEPTH),
    "max_priority": (job.HIGHEST_PRIORITY, _whole(0, job.HIGHEST_PRIORITY)),
    "breaker.share": (_BREAKER.share, partial(_or_none, _FAILED_SHARE)),
    "breaker.jobs": (_BREAKER.jobs, _whole(1, MOST_JOBS)),
    "breaker.window": (_BREAKER.window, _MOMENTS),
    "breaker.probe": (_BREAKER.probe, _MOMENTS),
    "low_share": (0.0, _LOW_SHARE),
    "keep_ended": (timedelta(days=7), _KEEP),
    "keep_dead": (timedelta(days=30), _KEEP),
    "keep_schemas": (timedelta(minutes=10), _KEEP_SCHEMAS),
    "schedules.orphan_after": (timedelta(minutes=10), partial(_or_none, _KEEP)),
    "alerts.webhook": (None, partial(_or_none, _webhook)),
    "autoscale.target": (timedelta(minutes=1), _MOMENTS),
    "autoscale.least": (1, _whole(0, _MOST_WORKERS)),
    "autoscale.most": (100, _whole(1, _MOST_WORKERS)),
    "autoscale.cooldown": (timedelta(minutes=5), _MOMENTS),
    TENANTS: (None, partial(_or_none, _tenants)),
}
DEFAULTS = {name: default for name, (default, _) in _SETTINGS.items()}
PER_TYPE = tuple(name for name in DEFAULTS if not name.startswith(_ABOUT_ALL))


# --- settings ------------------------------------------------------------------------------------

_RETRY = "retry."


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for the jobs of one type, all layers considered."""

    max_attempts: int
    timeout: timedelta
    retry: Retry


class TypePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that holds for a type's jobs from enqueue to end: operator over code over default."""

    run: Effective
    priority: int
    max_priority: int
    max_age: timedelta | None


class _Value(Generic[T]):
    """What holds for one setting."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, settings: Settings, _: type) -> T:
        found: T = settings.value(self._name)
        return found


class Settings(msgspec.Struct, frozen=True):
    """What operators have set, read and checked; `problems` names what could not be read and is not used."""

    values: dict[str, Any]
    problems: tuple[str, ...] = ()

    # How long completed, cancelled and discarded jobs are kept; dead ones; and a release's schemas in the
    # catalogue after the last of its processes was seen.
    keep_ended = _Value[timedelta]("keep_ended")
    keep_dead = _Value[timedelta]("keep_dead")
    keep_schemas = _Value[timedelta]("keep_schemas")
    # How long no worker must have had a schedule's function, or declared it, before it fires no more. None: a
    # schedule whose function is gone goes on; what code declares no more ends with `keep_schemas`.
    orphan_after = _Value[timedelta | None]("schedules.orphan_after")
    # Which share of the jobs that a worker starts are of the lowest priority that waits.
    low_share = _Value[float]("low_share")

    def of_type(self, job_type: str, options: Mapping[str, Any]) -> TypePolicy:
        """Which policy holds for a type whose code says these options, as the catalogue has them."""
        said = {name: options[name] for name in options.get("said", ()) if name in options}
        run = Effective(
            max_attempts=self._choose(job_type, "max_attempts", said.get("max_attempts")),
            timeout=self._choose(job_type, "timeout", _span(said.get("timeout"))),
            retry=self._retry(job_type, msgspec.convert(said["retry"], Retry) if "retry" in said else None),
        )
        return TypePolicy(
            run=run,
            priority=options.get("priority", job.DEFAULT_PRIORITY),
            max_priority=self._choose(job_type, "max_priority", options.get("max_priority")),
            max_age=_span(options.get("max_age")),
        )

    def limit(self, name: str, code: Limit | None = None) -> Limit:
        """What limits a type, a key (`key:crm`) or all jobs (`*`) whose code says this much."""
        said = code or Limit()
        # What holds for types in general is not meant for keys, nor for all jobs together.
        general = name != ALL and not name.startswith(KEY)
        rate: Rate | None = self._choose(name, "rate", said.rate, general=general)
        burst: int | None = self._choose(name, "burst", None, general=general)
        if rate is not None and burst is not None:
            rate = msgspec.structs.replace(rate, burst=burst)
        return Limit(
            concurrency=self._choose(name, "concurrency", said.concurrency, general=general),
            rate=rate,
            per_tenant=self._choose(name, "tenant_concurrency", said.per_tenant, general=general),
        )

    def soft_depth(self, job_type: str) -> int:
        """How many jobs of a type, or of all (`*`), may wait before it is worth a warning."""
        return int(self._choose(job_type, "soft_depth", None))

    def hard_depth(self, job_type: str) -> int:
        """How many jobs of a type, or of all (`*`), may wait at all."""
        return int(self._choose(job_type, "hard_depth", None))

    def breaker(self, name: str) -> BreakerTerms:
        """When the breaker of a type, or of a key (`key:crm`), opens."""
        parts = BreakerTerms.__struct_fields__
        return BreakerTerms(**{part: self._choose(name, f"breaker.{part}", None) for part in parts})

    def _choose(self, name: str, setting: str, code: Any, *, general: bool = True) -> Any:
        """Operator over code over default; an operator may also have set that there is no bound."""
        override = f"{name}.{setting}"
        if override in self.values:
            return self.values[override]
        return self.value(setting) if code is None and general else code

    def value(self, name: str) -> Any:
        """What holds for a setting that is not about types."""
        return self.values.get(name, DEFAULTS[name])

    def _retry(self, job_type: str, code: Retry | None) -> Retry:
        """The parts of a policy are set one by one, over the code's policy or over the default one."""
        base = code or msgspec.structs.replace(Retry(), **self._retry_parts(_RETRY))
        return msgspec.structs.replace(base, **self._retry_parts(f"{job_type}.{_RETRY}"))

    def _retry_parts(self, prefix: str) -> dict[str, Any]:
        parts = Retry.__struct_fields__
        return {part: self.values[prefix + part] for part in parts if prefix + part in self.values}


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def read(stored: Mapping[str, str]) -> Settings:
    """The settings that a store holds. Never raises: one bad setting must not stop a worker."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, text in sorted(stored.items()):
        try:
            values[name] = parse(name, text)
        except InvalidValue as error:
            problems.append(str(error))
    for name in _lists_without_delays(values):
        del values[name]
        problems.append(f"{name} is list, but {_delays_of(name)} is not set")
    return Settings(values, tuple(problems))


def check_changes(stored: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """The changes as they are stored (None: a reset); refuses those that would leave the settings wrong."""
    values, problems = dict(read(stored).values), Problems()
    for name, text in changes.items():
        with problems:
            if text is not None:
                values[name] = parse(name, text)
            elif name not in stored:
                split(name)
            else:
                values.pop(name, None)
    for kind in _lists_without_delays(values):
        with problems:
            if changes.get(_delays_of(kind)) is not None:
                continue  # refused above
            if kind in changes:
                raise must_be(kind, changes[kind], f"set after {_delays_of(kind)}")
            raise must_be(_delays_of(kind), None, f"kept while {kind} is list")
    problems.check()
    return {name: None if text is None else text.strip() for name, text in changes.items()}


def _lists_without_delays(values: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, value in values.items()
        if value == "list" and name.endswith("retry.kind") and _delays_of(name) not in values
    ]


def _delays_of(kind_name: str) -> str:
    return kind_name.removesuffix("kind") + "delays"
