"""Policies: frozen values that answer one question each, such as how long to wait before a retry."""

from __future__ import annotations

import inspect
import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import msgspec

from windlass.checks import check_whole
from windlass.duration import Duration, parse_duration
from windlass.errors import must_be
from windlass.job import TypeInfo
from windlass.origin import short_name

Kind = Literal["exponential", "power", "linear", "fixed", "list", "never"]
KINDS: tuple[Kind, ...] = ("exponential", "power", "linear", "fixed", "list", "never")


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A retry policy: seconds to wait after the n-th attempt failed, plus a random part up to `jitter`.

    exponential  base * 2**(n-1)      power  base**n      linear  base * n      (each at most `cap`)
    fixed        base                 list   delays[n-1], the last one repeated
    never        no second attempt
    """

    kind: Kind = "exponential"
    base: float = 30.0
    cap: float = 3600.0
    jitter: float = 15.0
    delays: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise must_be("retry.kind", self.kind, "one of " + ", ".join(KINDS))
        for name in ("base", "cap", "jitter"):
            _check_seconds(f"retry.{name}", getattr(self, name))
        if (self.kind == "list") != bool(self.delays):
            raise must_be(
                "retry.delays", self.delays, "at least one number for kind list, none for the others"
            )
        for seconds in self.delays:
            _check_seconds("retry.delays", seconds)

    def delay(self, attempt: int, chance: Callable[[], float]) -> float | None:
        """Seconds to wait after attempt number `attempt`, or None for no further attempt.

        `chance` gives a number in [0, 1), as `random.random` does.
        """
        if self.kind == "never":
            return None
        return self._plain(attempt) + chance() * self.jitter

    def _plain(self, attempt: int) -> float:
        match self.kind:
            case "fixed":
                return self.base
            case "list":
                return self.delays[min(attempt, len(self.delays)) - 1]
            case "linear":
                return min(self.base * attempt, self.cap)
            case "power":
                return _raised(self.base, attempt, self.cap)
            case _:
                return min(self.base * _raised(2.0, attempt - 1, _LONGEST), self.cap)


def _raised(base: float, exponent: int, cap: float) -> float:
    try:
        return min(base**exponent, cap)
    except OverflowError:
        return cap


def _check_seconds(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST:
        raise must_be(field, value, f"seconds between 0 and {_LONGEST}")


_LONGEST = 30 * 86_400


# --- rules ---------------------------------------------------------------------------------------

log = logging.getLogger("windlass.rules")

Rule = Literal["retry", "fatal", "cancel"]
RULES: tuple[Rule, ...] = ("retry", "fatal", "cancel")
# Exception classes with their rules, or a function that is asked about each exception.
RuleFunction = Callable[[BaseException], Rule | None]
Rules = Mapping[type[BaseException], Rule] | RuleFunction

_CLIENT_ERRORS = range(400, 500)
_HTTP_ERRORS = range(400, 600)
# Request Timeout, Too Early, Too Many Requests: the same request may succeed later.
_PASSING = frozenset({408, 425, 429})
_SAYS_WHEN = frozenset({429, 503})
# However long a server wants to be left alone, a job that waits for a day is forgotten.
_LONGEST_RETRY_AFTER = 3600


def ask_rules(rules: RuleFunction, exception: BaseException, fields: Mapping[str, Any]) -> Rule | None:
    """What a type's function says about an exception; None if it does not say, or fails itself."""
    extra = {**fields, "exception": short_name(type(exception))}
    try:
        rule: object = rules(exception)
        for known in RULES:
            if rule == known:
                return known
        returned = None if rule is None else repr(rule)[:200]
    except BaseException:  # noqa: BLE001 # wall: a mistake in the function must not lose the job
        try:
            log.exception("rules.failed", extra=extra)
        except BaseException:  # noqa: BLE001 # wall: the traceback shows the exception: user code
            log.error("rules.failed", extra=extra)  # noqa: TRY400 - it is the traceback that failed
        return None
    if returned is not None:
        allowed = "rules= must return one of retry, fatal, cancel or None"
        log.error(
            "rules.wrong", extra={**extra, "returned": returned, "note": f"{allowed}; the defaults hold"}
        )
    return None


def usual_rule(exception: BaseException) -> tuple[Rule, timedelta | None]:
    """What holds where neither the handler nor the rules say anything; and how long to wait at least.

    HTTP errors say by their status whether another attempt can help; permission errors say that none can.
    """
    if issubclass(type(exception), PermissionError):
        return "fatal", None
    try:
        status, headers = _http(exception)
        if status is None:
            return "retry", None
        if status in _CLIENT_ERRORS and status not in _PASSING:
            return "fatal", None
        return "retry", _retry_after(headers) if status in _SAYS_WHEN else None
    except BaseException:  # noqa: BLE001 # wall: an exception's attributes may be code of its own
        return "retry", None


def _http(exception: BaseException) -> tuple[int | None, Any]:
    """The HTTP status that an exception tells of, and its headers.

    httpx and requests have `exception.response.status_code`, aiohttp `exception.status`, urllib
    `exception.code`. Many other errors have a `status` or a `code`: those count only beside `headers`.
    """
    response = getattr(exception, "response", None)
    headers = getattr(response, "headers", None) or getattr(exception, "headers", None)
    named = [getattr(response, "status_code", None), getattr(response, "status", None)]
    named.append(getattr(exception, "status_code", None))
    if headers is not None:
        named += [getattr(exception, "status", None), getattr(exception, "code", None)]
    for status in named:
        if isinstance(status, int) and status in _HTTP_ERRORS:
            return int(status), headers
    return None, headers


def _retry_after(headers: Any) -> timedelta | None:
    """How many seconds the other side asks for; a date is not read."""
    said = headers.get("Retry-After") if headers is not None else None
    text = said.strip() if isinstance(said, str) else ""
    if not (text.isascii() and text.isdecimal() and len(text) < _MOST_DIGITS):
        return None
    return timedelta(seconds=min(int(text), _LONGEST_RETRY_AFTER))


_MOST_DIGITS = 10


# --- limit ---------------------------------------------------------------------------------------

MOST_AT_ONCE = 1_000_000
_LARGEST_COUNT = 1_000_000
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_RATE = re.compile(r"(\d{1,7})\s*/\s*([smhd])")
# What a rate allows at once, unless it is said: as much as a claim that comes so late must make up for.
_BURST_SECONDS = 0.1
# A token that was there so many microseconds before it was asked for is not lost: else no rate could be used
# in full. Never more than half of the time to the next one, so that no stretch has more than is stated.
_LATENESS = 100_000
# Whoever asks may have looked at the clock so many microseconds ago. A time that lies further ahead than
# the next step and this was said by another rate, or by a clock that was set back: nobody waits for it.
LOOKED_AGO = 2_000_000


class Rate(msgspec.Struct, frozen=True):
    """So many starts in so many seconds, evenly; in any stretch at most its share and `burst` more."""

    count: int
    seconds: int
    burst: int = 0

    @property
    def interval(self) -> int:
        """Microseconds from one start to the next."""
        return max(1, self.seconds * 1_000_000 // self.count)

    @property
    def allowance(self) -> int:
        """How far behind a rate's next time may lie, in microseconds: what was not used then may be yet."""
        at_once = self.burst or max(1, math.ceil(self.count / self.seconds * _BURST_SECONDS))
        return (at_once - 1) * self.interval + min(_LATENESS, self.interval // 2)

    def tokens(self, next_at: int, now: int) -> int:
        """How many may start now, if the next time is `next_at`."""
        since = now - self._from(next_at, now)
        return 0 if since < 0 else since // self.interval + 1

    def after(self, next_at: int, now: int, started: int) -> int:
        """The next time once so many have started."""
        return self._from(next_at, now) + started * self.interval

    def _from(self, next_at: int, now: int) -> int:
        if next_at > now + self.interval + LOOKED_AGO:
            return now
        return max(next_at, now - self.allowance)

    def __str__(self) -> str:
        unit = {seconds: name for name, seconds in _SECONDS.items()}[self.seconds]
        return f"{self.count}/{unit}"


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """What holds together for all jobs under one name, over all workers. None: as much as there is."""

    concurrency: int | None = None
    rate: Rate | None = None
    # Of each tenant's jobs; for types only.
    per_tenant: int | None = None

    @property
    def bounds(self) -> bool:
        """Whether it limits anything."""
        return self != UNLIMITED


UNLIMITED = Limit()


def limit_text(limit: Limit) -> str:
    """A limit in words, such as `3 at once, 100/m`; empty if there is none."""
    parts = []
    if limit.concurrency is not None:
        parts.append(f"{limit.concurrency} at once")
    if limit.per_tenant is not None:
        parts.append(f"{limit.per_tenant} a tenant")
    if limit.rate is not None:
        parts.append(str(limit.rate) + (f" in bursts of {limit.rate.burst}" if limit.rate.burst else ""))
    return ", ".join(parts)


def parse_rate(value: object, field: str = "rate") -> Rate:
    """A rate such as 100/m, or InvalidValue."""
    found = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or not 0 < int(found[1]) <= _LARGEST_COUNT:
        raise must_be(field, value, "a rate such as 10/s, 100/m, 5000/h or 1/d")
    return Rate(int(found[1]), _SECONDS[found[2]])


# --- as code and catalogue say it ----------------------------------------------------------------


def make_limit(
    concurrency: int | None = None,
    rate: str | None = None,
    burst: int | None = None,
    per_tenant: int | None = None,
) -> Limit:
    """What code says about a limit, checked."""
    if burst is not None and rate is None:
        raise must_be("burst", burst, "given together with rate")
    made = None if rate is None else parse_rate(rate)
    if made is not None and burst is not None:
        made = msgspec.structs.replace(made, burst=check_whole("burst", burst, 1, MOST_AT_ONCE))
    return Limit(
        concurrency=_at_once("concurrency", concurrency),
        rate=made,
        per_tenant=_at_once("tenant_concurrency", per_tenant),
    )


def limit_options(limit: Limit, key: str | None) -> dict[str, Any]:
    """What the catalogue tells of a type's limits; nothing if it has none."""
    told = {
        "concurrency": limit.concurrency,
        "tenant_concurrency": limit.per_tenant,
        "rate": limit.rate and str(limit.rate),
        "burst": (limit.rate and limit.rate.burst) or None,
        "limit_key": key,
    }
    return {name: value for name, value in told.items() if value is not None}


def limit_from(options: Mapping[str, Any]) -> Limit:
    """A type's limit as the catalogue tells it."""
    given = (options.get(name) for name in ("concurrency", "rate", "burst", "tenant_concurrency"))
    return make_limit(*given)


def key_limits(types: Iterable[TypeInfo]) -> dict[str, Limit]:
    """What types share, by key, as the catalogue tells it."""
    told = (info.options for info in types if "key_limit" in info.options)
    return {options["limit_key"]: limit_from(options["key_limit"]) for options in told}


def _at_once(field: str, value: int | None) -> int | None:
    return None if value is None else check_whole(field, value, 1, MOST_AT_ONCE)


# --- breaker -------------------------------------------------------------------------------------

# So many different jobs are noted at most; more of them say nothing new.
MOST_JOBS = 1_000


class BreakerTerms(msgspec.Struct, frozen=True, kw_only=True):
    """When a breaker opens, and how often it lets one job through to see whether all is well again."""

    # Opens above this share of failed runs; None: never.
    share: float | None = 0.8
    # ... of at least so many different jobs ...
    jobs: int = 10
    # ... within this time.
    window: timedelta = timedelta(minutes=5)
    probe: timedelta = timedelta(minutes=1)

    @property
    def gather(self) -> timedelta:
        """How long after the first failure to wait until every worker has told what it saw."""
        return min(_GATHER, self.window / 5)

    def opens(self, *, done: int, failed: int, jobs: int) -> bool:
        """Whether so many runs, and failures of so many different jobs, are too many."""
        return self.share is not None and jobs >= self.jobs and failed > self.share * (done + failed)


_GATHER = timedelta(seconds=2)


# --- verify --------------------------------------------------------------------------------------

USUAL_SHARE = 0.01
USUAL_DELAY = timedelta(minutes=1)
_LONGEST_DELAY = timedelta(days=7)
# What a check may take besides the handler's own parameters.
_MORE = ("job", "result")
_DIGITS = 8
_NUMBERS = 2.0**32


@dataclass(frozen=True)
class Verify:
    """A function that says whether a completed job did what it should, how many are asked, and when."""

    function: Callable[..., Any]
    share: float
    after: timedelta
    wanted: tuple[str, ...]

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Ask, with those of the arguments that it takes; one that the payload left out is left out here."""
        return self.function(**{name: arguments[name] for name in self.wanted if name in arguments})


def is_sampled(job_id: str, share: float) -> bool:
    """Whether a job is one of so large a share: decided by its id, so always alike."""
    return int(job_id[-_DIGITS:], 16) < share * _NUMBERS


def check_in(options: Mapping[str, Any], job_id: str) -> timedelta | None:
    """When the outcome of a job is checked, by what the catalogue says of its type; None: not at all."""
    share = options.get("sample")
    if share is None or not is_sampled(job_id, share):
        return None
    return timedelta(seconds=options.get("verify_after", USUAL_DELAY.total_seconds()))


def make_verify(
    function: Callable[..., Any] | None,
    sample: float | None,
    after: Duration | None,
    parameters: Collection[str],
) -> Verify | None:
    """What a decorator says about verification, checked; `parameters` are the handler's."""
    if function is None:
        for name, value in (("sample", sample), ("verify_after", after)):
            if value is not None:
                raise must_be(name, value, "given together with verify")
        return None
    if not callable(function):
        raise must_be("verify", function, "a function that answers True or False")
    share: object = USUAL_SHARE if sample is None else sample
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise must_be("sample", sample, "a share above 0 and up to 1")
    delay = USUAL_DELAY if after is None else parse_duration(after, "verify_after")
    if delay > _LONGEST_DELAY:
        raise must_be("verify_after", after, "at most 7d: records are kept no longer")
    return Verify(function, float(share), delay, _wanted(function, parameters))


def _wanted(function: Callable[..., Any], parameters: Collection[str]) -> tuple[str, ...]:
    allowed = (*parameters, *(name for name in _MORE if name not in parameters))
    wanted = inspect.signature(function).parameters
    for name, each in wanted.items():
        plain = each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        if not plain or (name not in allowed and each.default is each.empty):
            raise must_be(f"parameter {name} of verify", str(each), f"one of {', '.join(allowed)}")
    return tuple(name for name in wanted if name in allowed)
