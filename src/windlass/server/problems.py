"""Refusals as problems (RFC 9457): what is wrong, where, and what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from windlass import errors
from windlass.checks import InvalidValues
from windlass.server.forms import MOST_PROBLEMS
from windlass.server.routes import Reply

MEDIA_TYPE = b"application/problem+json"
# For a refusal of something that has not been read to its end.
CLOSE = {b"connection": b"close"}


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
    # The job that conflicts with the request.
    job: str | None = None
    # The jobs that have the key, where it does not say which is meant.
    jobs: tuple[str, ...] = ()


class Problem(Exception):
    """A refusal; the caller may try `again` after some seconds. `facts` are more members of its document."""

    def __init__(
        self,
        status: int,
        name: str,
        detail: str,
        *,
        again: float | None = None,
        headers: Mapping[bytes, bytes] = {},
        **facts: Any,
    ) -> None:
        super().__init__(detail)
        title = name.replace("-", " ").capitalize().replace("json", "JSON")
        self.document = ProblemDocument(f"urn:windlass:problem:{name}", title, status, detail, **facts)
        self.headers = dict(headers)
        if again is not None:
            self.headers[b"retry-after"] = b"%d" % max(1, math.ceil(again))

    def reply(self) -> Reply:
        return Reply(self.document.status, self.document, headers=self.headers, media_type=MEDIA_TYPE)


def of(error: errors.WindlassError, *, index: int | None = None, line: bool = False) -> Problem:
    """What an error of ours is called outside; `line` if the jobs came one a line."""
    if isinstance(error, errors.StoreError):
        return of_store(error, writes=True)
    status, name = next(_KNOWN[kind] for kind in type(error).__mro__ if kind in _KNOWN)
    if isinstance(error, errors.InvalidPayload) and error.too_large:
        status = 413
    detail = str(error).replace(_PYTHON, "")
    if isinstance(error, errors.Refused) and error.index is not None:
        # It names the job of a batch by itself.
        index, detail = error.index, str(error.args[0])
    fields = _fields(error)[:MOST_PROBLEMS]
    place = _PLACE.match(fields[0].field) if fields and index is None else None
    if index is not None:
        detail = f"{f'line {index + 1}' if line else f'jobs[{index}]'}: {detail}"
        fields = [msgspec.structs.replace(each, field=f"jobs[{index}].{each.field}") for each in fields]
    return Problem(
        status,
        name,
        _counted(detail, len(fields)),
        errors=tuple(fields),
        index=index if place is None else int(place[1]),
        twin=getattr(error, "twin", None),
        job=getattr(error, "job_id", None),
        jobs=getattr(error, "jobs", ()),
        again=1 if isinstance(error, errors.KeyMissing) else getattr(error, "retry_after", None),
    )


def together(found: Sequence[Problem]) -> Problem:
    """Several refusals of one request as one: the first, with the errors of all, in the order of its jobs."""
    found = sorted(found, key=lambda each: math.inf if each.document.index is None else each.document.index)
    first = found[0]
    fields = tuple(each for problem in found for each in problem.document.errors)[:MOST_PROBLEMS]
    detail = _counted(first.document.detail.partition(_MORE)[0], len(fields))
    first.document = msgspec.structs.replace(first.document, detail=detail, errors=fields)
    return first


def _counted(detail: str, count: int) -> str:
    return detail if count < 2 else f"{detail}{_MORE}{count - 1} more: `errors` lists all"  # noqa: PLR2004 - one more


def _fields(error: errors.WindlassError) -> list[FieldError]:
    """The values that are to blame."""
    if isinstance(error, InvalidValues):
        return [field for each in error.problems for field in _fields(each)]
    if isinstance(error, errors.InvalidValue):
        value = error.value.isoformat() if isinstance(error.value, datetime) else error.value
        if value is not None:
            text = value if isinstance(value, str) else repr(value)
            text = text.encode(errors="replace").decode()
            value = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"
        return [FieldError(error.field, (error.allowed or str(error)).replace(_PYTHON, ""), value)]
    if isinstance(error, errors.UnknownType):
        return [FieldError("type", "a registered type", error.job_type)]
    if isinstance(error, errors.InvalidPayload):
        whole = FieldError("payload", "an object that fits the type's schema, at most 64 KB as JSON")
        return [field for each in error.problems for field in _fields(each)] or [whole]
    return []


def store_away(*, maybe_stored: bool = False, writes: bool = True) -> Problem:
    """The store is away: when to come again, and whether anything may have been written. Names no store."""
    detail = _TRY_AGAIN[writes]
    if maybe_stored:
        detail = "; what was sent may or may not be stored: send it again with the same Idempotency-Key"
    return Problem(503, "store-unavailable", f"the store cannot be reached{detail}", again=1)


def of_store(error: errors.StoreError, *, writes: bool) -> Problem:
    """A store that fails, without where it is or whose: only the log has that."""
    if isinstance(error, errors.StoreBusy):
        return Problem(503, "store-busy", f"the store is busy{_TRY_AGAIN[writes]}", again=1)
    if isinstance(error, errors.StoreUnavailable):
        return store_away(maybe_stored=writes, writes=writes)
    return Problem(503, "store-unavailable", "the store cannot be used; the server's log says why", again=1)


# Allowed as a duration, but not possible in JSON.
_PYTHON = "a timedelta, "
_LONGEST_SHOWN = 200
_MORE = "; and "
_PLACE = re.compile(r"jobs\[(\d+)\]")
# By whether the request writes.
_TRY_AGAIN = {True: "; nothing was stored: try again", False: ": try again"}
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
