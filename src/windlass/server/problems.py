"""How is a refusal told? As a problem (RFC 9457): what is wrong, where, and what is allowed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from windlass import errors
from windlass.server.forms import allowed
from windlass.server.reply import Reply

MEDIA_TYPE = b"application/problem+json"


class FieldError(msgspec.Struct, frozen=True, omit_defaults=True):
    """One value that is not allowed."""

    field: str
    allowed: str
    value: str | None = None


class ProblemDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a request was refused."""

    type: str
    title: str
    status: int
    detail: str
    # The values that are not allowed, where single ones are to blame.
    errors: tuple[FieldError, ...] = ()
    # Which job of a batch it is about, counted from 0.
    index: int | None = None
    # The other job of the same batch that is the reason, counted from 0.
    twin: int | None = None
    # The job that stands against what was asked.
    job: str | None = None
    # The jobs that have the key, where it does not tell which is meant.
    jobs: tuple[str, ...] = ()


class Missing(errors.InvalidValue):
    """A field that must be there and is not; it has no value to show."""

    def __init__(self, field: str) -> None:
        super().__init__(f"{field} is missing; it must be given", field=field, value=None, allowed="given")


class Twice(errors.InvalidValue):
    """A member that an object has twice: which one is meant?"""

    def __init__(self, field: str) -> None:
        message = f"{field} is given twice; it must be given once"
        super().__init__(message, field=field, value=None, allowed="given once")


class _Sent(str):
    """A number in the digits that it was sent in."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Problem(Exception):
    """A refusal on its way to the caller."""

    def __init__(  # noqa: PLR0913 - the members of a problem
        self,
        status: int,
        name: str,
        detail: str,
        *,
        fields: tuple[FieldError, ...] = (),
        index: int | None = None,
        twin: int | None = None,
        job: str | None = None,
        jobs: tuple[str, ...] = (),
        headers: Mapping[bytes, bytes] | None = None,
    ) -> None:
        super().__init__(detail)
        title = name.replace("-", " ").capitalize()
        self.document = ProblemDocument(
            f"urn:windlass:problem:{name}", title, status, detail, fields, index, twin, job, jobs
        )
        self.headers = dict(headers or {})

    def reply(self) -> Reply:
        """The answer that tells of it."""
        return Reply(self.document.status, self.document, headers=self.headers, media_type=MEDIA_TYPE)


def of(error: errors.WindlassError, *, index: int | None = None, line: bool = False) -> Problem:
    """What an error of ours is called outside; `line` if the jobs came one a line."""
    if isinstance(error, errors.StoreError):
        return of_store(error, writes=True)
    status, name = next(_KNOWN[kind] for kind in type(error).__mro__ if kind in _KNOWN)
    detail = str(error).replace(_PYTHON, "")
    if isinstance(error, errors.Refused) and error.index is not None:
        # It names the job of a batch by itself.
        index, detail = error.index, str(error.args[0])
    fields: tuple[FieldError, ...] = ()
    if isinstance(error, errors.InvalidValue):
        value = None if isinstance(error, Missing | Twice) else _shown(error.value)
        fields = (FieldError(error.field, error.allowed.replace(_PYTHON, ""), value),)
    if index is not None:
        place = f"line {index + 1}" if line else f"jobs[{index}]"
        detail = f"{place}: {detail}"
        fields = tuple(msgspec.structs.replace(each, field=f"jobs[{index}].{each.field}") for each in fields)
    facts: dict[str, Any] = {
        "twin": getattr(error, "twin", None),
        "job": getattr(error, "job_id", None),
        "jobs": getattr(error, "jobs", ()),
    }
    return Problem(status, name, detail, fields=fields, index=index, **facts, headers=_later(error))


def store_away(*, maybe_stored: bool = False, writes: bool = True) -> Problem:
    """The store is away: when to come again, and whether anything may have been written. Names no store."""
    detail = "the store cannot be reached"
    if maybe_stored:
        detail += "; what was sent may or may not be stored: send it again with the same Idempotency-Key"
    elif writes:
        detail += "; nothing was stored: try again"
    else:
        detail += ": try again"
    return Problem(503, "store-unavailable", detail, headers=_after(1))


def of_store(error: errors.StoreError, *, writes: bool) -> Problem:
    """What strangers are told of a store that fails: never where it is, nor whose. The log has the rest."""
    if isinstance(error, errors.StoreBusy):
        detail = (
            "the store is busy; nothing was stored: try again" if writes else "the store is busy: try again"
        )
        return Problem(503, "store-busy", detail, headers=_after(1))
    if isinstance(error, errors.StoreUnavailable):
        return store_away(maybe_stored=writes, writes=writes)
    return Problem(
        503, "store-unavailable", "the store cannot be used; the server's log tells why", headers=_after(1)
    )


def too_many(detail: str, seconds: float, name: str) -> Problem:
    """Not now: again after so many seconds."""
    return Problem(429, name, detail, headers=_after(seconds))


def _later(error: errors.WindlassError) -> dict[bytes, bytes]:
    """When to come again, where that may help."""
    if isinstance(error, errors.QueueFull):
        return _after(error.retry_after)
    return _after(1) if isinstance(error, errors.KeyMissing) else {}


def _after(seconds: float) -> dict[bytes, bytes]:
    return {b"retry-after": str(max(1, math.ceil(seconds))).encode()}


def invalid(error: msgspec.ValidationError, body: bytes, kind: type[msgspec.Struct]) -> errors.InvalidValue:
    """A body that does not have the form that is asked for: the field, its value and what is allowed."""
    text, _, place = str(error).partition(" - at ")
    field = place.strip("`").removeprefix("$").removeprefix(".")
    named = _FIELD.search(text)
    if "missing required" in text and named is not None:
        return Missing(_joined(field, named[1]))
    if "unknown field" in text and named is not None:
        unknown = _joined(field, named[1])
        return errors.must_be(unknown, _value_at(body, unknown), "left out: there is no such field")
    return errors.must_be(field or "body", _value_at(body, field), allowed(kind, field))


def _joined(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def _value_at(body: bytes, field: str) -> Any:
    """The value that stands at a path such as jobs[3].priority."""
    try:
        # A number that is too large for us is shown as it was sent.
        value: Any = json.loads(body, parse_float=_Sent)
    except (ValueError, RecursionError):
        # What comes behind the wrong value is wrong as well.
        return "something else"
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", field):
        try:
            value = value[int(index)] if index else value[name]
        except (LookupError, TypeError):
            return "something else"
    return value


def _shown(value: object) -> str:
    if isinstance(value, datetime):
        value = value.isoformat()
    text = value if isinstance(value, str) else repr(value)
    text = text.encode(errors="replace").decode()
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


# Allowed as a duration, but not possible in JSON.
_PYTHON = "a timedelta, "
_FIELD = re.compile(r"field `([^`]*)`")
_LONGEST_SHOWN = 200
# By class, the nearest wins.
_KNOWN: dict[type, tuple[int, str]] = {
    errors.InvalidValue: (400, "invalid-value"),
    errors.UnknownType: (400, "unknown-type"),
    errors.InvalidPayload: (400, "invalid-payload"),
    errors.KeyMissing: (503, "encryption-key-missing"),
    errors.JobNotFound: (404, "not-found"),
    errors.WorkerNotFound: (404, "not-found"),
    errors.ScheduleNotFound: (404, "not-found"),
    errors.KeyConflict: (409, "key-conflict"),
    errors.AmbiguousKey: (409, "ambiguous-key"),
    errors.IdConflict: (409, "id-conflict"),
    errors.UniqueConflict: (409, "unique-conflict"),
    errors.ScheduleConflict: (409, "schedule-conflict"),
    errors.WrongState: (409, "wrong-state"),
    errors.ConfirmationNeeded: (409, "confirmation-needed"),
    errors.LeaseLost: (409, "lease-lost"),
    errors.QueueFull: (429, "queue-full"),
    errors.Refused: (409, "refused"),
    errors.WindlassError: (500, "internal"),
}
