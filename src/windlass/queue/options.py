"""What may a producer say about one job? Checked here, all of it, before anything is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, Protocol, TypedDict
from uuid import UUID

import msgspec

from windlass.checks import check_max_attempts, check_moment, check_priority, check_text, storable
from windlass.clock import uuid7
from windlass.duration import Duration, parse_duration
from windlass.errors import must_be
from windlass.job import LATEST, MAX_KEY, MAX_TENANT, MAX_UNIQUE, NewJob
from windlass.payload.reference import check_reference, with_reference
from windlass.payload.text import check_size
from windlass.queue.defaults import TypeDefaults


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


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A producer's checked options."""

    priority: int | None = None
    delay: timedelta | None = None
    run_at: datetime | None = None
    key: str | None = None
    id: str | None = None
    tenant: str = ""
    max_attempts: int | None = None
    take_existing: bool = False
    connection: object | None = None
    traceparent: str | None = None
    payload_ref: str | None = None
    depends_on: tuple[str, ...] = ()
    on_dead: Literal["wait", "cancel", "run"] = "wait"
    unique: str | None = None
    until: Literal["start", "done"] = "done"
    on_unique: Literal["skip", "replace", "error"] = "skip"

    def draft(
        self, job_type: str, payload: bytes, defaults: TypeDefaults, *, fresh: bool, made_for: int = 0
    ) -> NewJob:
        """A job that is ready to be stored."""
        if self.payload_ref is not None:
            payload = check_size(with_reference(payload, self.payload_ref), job_type)
        if self.priority is not None and self.priority > defaults.max_priority:
            allowed = f"at most {defaults.max_priority} for jobs of type {job_type}"
            raise must_be("priority", self.priority, allowed)
        if self is NO_CHOICE:
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
        return NewJob(
            id=self.id or uuid7(),
            own_id=self.id is not None,
            fresh=fresh and self.id is None,
            type=job_type,
            payload=payload,
            schema_version=defaults.version,
            priority=defaults.priority if self.priority is None else self.priority,
            max_attempts=defaults.max_attempts if self.max_attempts is None else self.max_attempts,
            delay=self.delay,
            run_at=self.run_at,
            key=self.key,
            take_existing=self.take_existing,
            tenant=self.tenant,
            traceparent=self.traceparent,
            depends_on=self.depends_on,
            on_dead=self.on_dead,
            unique=self.unique,
            unique_until=self.until,
            on_unique=self.on_unique,
            made_for=made_for,
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
        raise must_be("at", given["at"], "left out when delay is given")
    if "unique" not in given and ("until" in given or "on_unique" in given):
        raise must_be("unique", None, "given with until and on_unique")
    if given.get("on_unique") == "replace" and "depends_on" in given:
        raise must_be("on_unique", "replace", "skip or error for a job that depends on others")
    # Only what was given costs anything: this is done for every job.
    return Choice(**{_FIELDS.get(name, name): _CHECKS[name](value) for name, value in given.items()})


def without_connection(choice: Choice) -> Choice:
    """The choice, if a draft can carry it: a transaction is chosen when drafts are stored."""
    if choice.connection is not None:
        raise must_be("connection", choice.connection, "given to enqueue_many, not to a draft")
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


def _takes_existing(value: object) -> bool:
    if value not in ("error", "existing"):
        raise must_be("on_conflict", value, "one of error, existing")
    return value == "existing"


def _parents(value: object) -> tuple[str, ...]:
    allowed = f"a list of up to {MOST_PARENTS} jobs: handles, ids or keys"
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or len(value) > MOST_PARENTS:
        raise must_be("depends_on", value, allowed)
    names = tuple(each if isinstance(each, str) else getattr(each, "id", None) for each in value)
    for name in names:
        if not storable(name) or not 1 <= len(name) <= MAX_KEY:
            raise must_be("depends_on", value, allowed)
    return tuple(str(name) for name in names)


def _on_dead(value: object) -> Literal["wait", "cancel", "run"]:
    if value == "wait" or value == "cancel" or value == "run":  # noqa: PLR1714 - so that its type is known
        return value
    raise must_be("on_dead", value, "one of wait, cancel, run")


def _until(value: object) -> Literal["start", "done"]:
    if value == "start" or value == "done":  # noqa: PLR1714 - so that its type is known
        return value
    raise must_be("until", value, "one of start, done")


def _on_unique(value: object) -> Literal["skip", "replace", "error"]:
    if value == "skip" or value == "replace" or value == "error":  # noqa: PLR1714 - so that its type is known
        return value
    raise must_be("on_unique", value, "one of skip, replace, error")


def _traceparent(value: object) -> str:
    if isinstance(value, str) and _TRACEPARENT.fullmatch(value):
        return value
    example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    raise must_be("traceparent", value, f"a W3C trace context such as {example}")


def _same(value: Any) -> Any:
    return value


MOST_PARENTS = 1_000
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
# By option, what makes of it what a Choice holds.
_CHECKS: dict[str, Callable[[Any], Any]] = {
    "priority": check_priority,
    "delay": partial(parse_duration, field="delay", longest=LATEST),
    "at": _moment,
    "key": partial(check_text, "key", longest=MAX_KEY),
    "id": _id,
    "tenant": partial(check_text, "tenant", longest=MAX_TENANT),
    "max_attempts": check_max_attempts,
    "on_conflict": _takes_existing,
    "connection": _same,
    "traceparent": _traceparent,
    "payload_ref": check_reference,
    "depends_on": _parents,
    "on_dead": _on_dead,
    "unique": partial(check_text, "unique", longest=MAX_UNIQUE),
    "until": _until,
    "on_unique": _on_unique,
}
# Where the two have other names.
_FIELDS = {"at": "run_at", "on_conflict": "take_existing"}
