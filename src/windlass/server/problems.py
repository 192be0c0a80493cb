"""How is a refusal told? As a problem (RFC 9457): what is wrong, where, and what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from windlass import errors
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
    # The job that stands against what was asked.
    job: str | None = None


class Missing(errors.InvalidValue):
    """A field that must be there and is not; it has no value to show."""

    def __init__(self, field: str) -> None:
        super().__init__(field, None, "given")
        self.args = (f"{field} is missing; it must be given",)


class Problem(Exception):
    """A refusal on its way to the caller."""

    def __init__(
        self,
        status: int,
        name: str,
        detail: str,
        *,
        fields: tuple[FieldError, ...] = (),
        index: int | None = None,
        job: str | None = None,
        headers: Mapping[bytes, bytes] | None = None,
    ) -> None:
        super().__init__(detail)
        title = name.replace("-", " ").capitalize()
        self.document = ProblemDocument(
            f"urn:windlass:problem:{name}", title, status, detail, fields, index, job
        )
        self.headers = dict(headers or {})

    def reply(self) -> Reply:
        """The answer that tells of it."""
        return Reply(self.document.status, self.document, headers=self.headers, media_type=MEDIA_TYPE)


def of(error: errors.WindlassError, *, index: int | None = None) -> Problem:
    """What an error of ours is called outside."""
    status, name = next(_KNOWN[kind] for kind in type(error).__mro__ if kind in _KNOWN)
    detail = str(error)
    fields: tuple[FieldError, ...] = ()
    if isinstance(error, errors.InvalidValue):
        value = None if isinstance(error, Missing) else _shown(error.value)
        fields = (FieldError(error.field, error.allowed, value),)
    if index is not None:
        detail = f"jobs[{index}]: {detail}"
        fields = tuple(msgspec.structs.replace(each, field=f"jobs[{index}].{each.field}") for each in fields)
    job = getattr(error, "job_id", None)
    return Problem(status, name, detail, fields=fields, index=index, job=job, headers=_later(error))


def too_many(detail: str, seconds: float, name: str) -> Problem:
    """Not now: again after so many seconds."""
    return Problem(429, name, detail, headers=_after(seconds))


def _later(error: errors.WindlassError) -> dict[bytes, bytes]:
    """When to come again, where that may help."""
    if isinstance(error, errors.QueueFull):
        return _after(error.retry_after)
    return _after(1) if isinstance(error, (errors.StoreError, errors.KeyMissing)) else {}


def _after(seconds: float) -> dict[bytes, bytes]:
    return {b"retry-after": str(max(1, math.ceil(seconds))).encode()}


def invalid(error: msgspec.ValidationError, body: bytes) -> errors.InvalidValue:
    """A body that does not have the form that is asked for: the field, its value and what is allowed."""
    text, _, place = str(error).partition(" - at ")
    field = place.strip("`").removeprefix("$").removeprefix(".")
    named = _FIELD.search(text)
    if "missing required" in text and named is not None:
        return Missing(_joined(field, named[1]))
    if "unknown field" in text and named is not None:
        unknown = _joined(field, named[1])
        return errors.InvalidValue(unknown, _value_at(body, unknown), "left out: there is no such field")
    allowed = text.removeprefix("Expected ").partition(", got")[0].replace("`", "")
    words = " or ".join(_TYPES.get(each, each) for each in allowed.split(" | "))
    return errors.InvalidValue(field or "body", _value_at(body, field), words)


def _joined(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def _value_at(body: bytes, field: str) -> Any:
    """The value that stands at a path such as jobs[3].priority."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
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


# What msgspec calls them, and what somebody who speaks no Python does.
_TYPES = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "array of length >= 1": "a list of one or more",
}
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
    errors.IdConflict: (409, "id-conflict"),
    errors.UniqueConflict: (409, "unique-conflict"),
    errors.ScheduleConflict: (409, "schedule-conflict"),
    errors.WrongState: (409, "wrong-state"),
    errors.ConfirmationNeeded: (409, "confirmation-needed"),
    errors.LeaseLost: (409, "lease-lost"),
    errors.QueueFull: (429, "queue-full"),
    errors.Refused: (409, "refused"),
    errors.StoreBusy: (503, "store-busy"),
    errors.StoreError: (503, "store-unavailable"),
    errors.WindlassError: (500, "internal"),
}
