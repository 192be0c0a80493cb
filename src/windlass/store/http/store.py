"""The producers' part of a store, spoken over HTTP. Whatever needs more needs the store itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeVar

import msgspec

from windlass.checks import storable
from windlass.clock import SystemClock, from_micros, uuid7
from windlass.errors import JobNotFound, Refused, StoreMismatch
from windlass.job import Attempt, Change, Error, Job, JobState, NewJob, Request, TypeInfo, View
from windlass.payload.seal import split_reference
from windlass.store.chains import BatchInfo, NewBatch
from windlass.store.engine import Acted, Enqueued
from windlass.store.flow import Depths
from windlass.store.http.wire import Wire
from windlass.store.jobs import Filter, Page
from windlass.store.upkeep import StoreStatus

T = TypeVar("T")
Query = Mapping[str, str | list[str]]
_MOST_AT_ONCE = 100


class _Job(msgspec.Struct, kw_only=True):
    """A job's document; what it leaves empty for people is an empty text in a Job."""

    id: str
    seq: int
    type: str
    state: JobState
    priority: int
    payload: msgspec.Raw
    schema_version: int
    key: str | None
    caller: str | None
    tenant: str | None
    traceparent: str | None
    max_attempts: int
    attempts: int
    claims: int
    snoozes: int
    interruptions: int
    losses: int
    replay_count: int
    created_at: datetime
    enqueued_at: datetime
    updated_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    lease_until: datetime | None
    request: Request | None
    error: Error | None
    result: msgspec.Raw
    history: tuple[Attempt, ...]
    changes: tuple[Change, ...]
    view: str | None


class _Page(msgspec.Struct):
    jobs: list[_Job]
    next: str | None


class _Confirmed(msgspec.Struct):
    first: bool


class _Accepted(msgspec.Struct):
    id: str
    key: str | None
    state: JobState
    created: bool


class _Batch(msgspec.Struct):
    jobs: list[_Accepted]
    batch: str | None


class _Catalogue(msgspec.Struct):
    types: list[TypeInfo]
    settings: dict[str, str]


class _BatchInfo(msgspec.Struct):
    id: str
    name: str | None
    total: int
    states: dict[JobState, int]
    then: str | None
    created_at: datetime
    finished_at: datetime | None


class HttpStore:
    """What a server lets producers do. A job that is sent carries its id, so sending it twice makes one."""

    # Of its store's file the server takes care.
    generation = 0

    def __init__(self, url: str, *, patience: float) -> None:
        self._wire = Wire(url, patience=patience)

    # --- producing ---

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """All or none, up to ten thousand."""
        if len(jobs) == 1:
            answer = self._wire.ask("POST", "jobs", body=_form(jobs[0]))
            return [_enqueued(self._read(answer, _Accepted))]
        forms = [_form(new) for new in jobs]
        if len(jobs) <= _MOST_AT_ONCE:
            answer = self._wire.ask("POST", "jobs", "batch", body={"jobs": forms})
        else:
            answer = self._wire.ask("POST", "jobs", "bulk", lines=forms)
        return [_enqueued(each) for each in self._read(answer, _Batch).jobs]

    def enqueue_on(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:  # noqa: ARG002
        """A server is not in the caller's transaction."""
        _refuse("connection=")

    def enqueue_batch(self, batch: NewBatch, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As one batch."""
        if batch.then is not None:
            raise Refused("a batch over HTTP takes no `then`: enqueue that job where the store is")
        forms = [_form(new) for new in jobs]
        if len(jobs) <= _MOST_AT_ONCE:
            body = {"jobs": forms, "batch": batch.name, "batch_id": batch.id}
            answer = self._wire.ask("POST", "jobs", "batch", body=body)
        else:
            query = {"batch": batch.name, "batch_id": batch.id}
            answer = self._wire.ask("POST", "jobs", "bulk", query=query, lines=forms)
        return [_enqueued(each) for each in self._read(answer, _Batch).jobs]

    def batch(self, batch_id: str) -> BatchInfo | None:
        """How far a batch has come."""
        if not storable(batch_id):
            return None
        try:
            answer = self._wire.ask("GET", "batches", batch_id)
        except JobNotFound:
            return None
        found = self._read(answer, _BatchInfo)
        return BatchInfo(
            id=found.id,
            name=found.name or "",
            total=found.total,
            counts=found.states,
            then_id=found.then,
            created_at=found.created_at,
            finished_at=found.finished_at,
        )

    def depths(self) -> Depths:
        """The server counts, and refuses what is too much."""
        return Depths(elsewhere=True)

    def register(self, types: Sequence[TypeInfo], app: str = "") -> None:
        """Workers register types: who only produces does not know better than they."""

    def registered(self, types: Sequence[TypeInfo]) -> bool:  # noqa: ARG002 - workers register types
        """Nothing that a producer here knows is news to the server."""
        return True

    def types(self) -> dict[str, TypeInfo]:
        """The catalogue, as far as this caller may use it."""
        return {info.name: info for info in self._catalogue().types}

    def settings(self) -> dict[str, str]:
        """What operators have set, which holds where a job says nothing."""
        return self._catalogue().settings

    # --- looking ---

    def get(
        self,
        name: str,
        *,
        caller: str | None = "",  # noqa: ARG002 - the key tells
        tenant: str | None = None,
        wait: float = 0.0,
    ) -> Job | None:
        """A job of this caller's by id or key; with `wait`, when it has ended or the time is over."""
        if not storable(name):
            return None
        query = {"wait": f"{wait:f}s"} if wait else {}
        if tenant is not None:
            query["tenant"] = tenant
        try:
            answer = self._wire.ask("GET", "jobs", name, query=query, wait=wait)
        except JobNotFound:
            return None
        return _job(self._read(answer, _Job))

    def find(
        self,
        where: Filter,
        *,
        limit: int = 50,
        cursor: str | None = None,
        window: int | None = None,  # noqa: ARG002 - the server bounds its searches itself
    ) -> Page:
        """Jobs newest first."""
        if where.batch is not None or where.caller is not None:
            _refuse("a filter by batch or caller")
        query: dict[str, str | list[str]] = {"limit": str(limit)}
        if where.ids:
            query["q"] = " ".join(where.ids)
            where = Filter()
        if cursor is not None:
            query["cursor"] = cursor
        types = [name for name in where.types if name]
        if where.types and not types:
            # No type has an empty name; in a query it would stand for any.
            return Page([], None)
        if types:
            query["type"] = ",".join(types)
        # A view is a part of its state, and stands for it.
        states = [where.view] if where.view else [state.value for state in where.states]
        if states:
            query["state"] = ",".join(states)
        # An empty text is one to be looked for as well: who asks for nothing must not get everything.
        query |= {
            name: value for name in ("tenant", "key", "error") if (value := getattr(where, name)) is not None
        }
        if where.older_than is not None:
            query["older_than"] = f"{where.older_than.total_seconds():f}s"
        if where.payload:
            query["where"] = [
                f"payload.{'.'.join(path)}={json.dumps(value)}" for path, value in where.payload.items()
            ]
        found = self._read(self._wire.ask("GET", "jobs", query=query), _Page)
        return Page([_job(each) for each in found.jobs], found.next)

    def failures(self, *, since: datetime | None = None, limit: int = 50) -> list[Job]:
        """Jobs whose last attempt failed, the last to change first."""
        query: dict[str, str | list[str]] = {"limit": str(limit)}
        if since is not None:
            query["since"] = since.isoformat()
        found = self._read(self._wire.ask("GET", "failures", query=query), _Page)
        return [_job(each) for each in found.jobs]

    def confirm(self, job_id: str) -> bool:
        """Count that a job's effect was acknowledged later; False if that was said before."""
        answer = self._wire.ask("POST", "jobs", job_id, "confirm")
        return self._read(answer, _Confirmed).first

    def cancel(
        self,
        job_id: str,
        *,
        by: str = "",  # noqa: ARG002 - the key tells who
        why: str = "",
        request_id: str = "",
    ) -> Acted:
        """End a pending job as cancelled, or ask the worker of a running one to."""
        answer = self._wire.ask(
            "POST", "jobs", job_id, "cancel", body={"why": why}, request_id=request_id or uuid7()
        )
        return self._read(answer, Acted)

    def now(self) -> datetime:
        """Whoever only produces has its own clock for ages."""
        return from_micros(SystemClock().micros())

    def status(self) -> StoreStatus:
        """Where it is; the rest is the server's to know."""
        return StoreStatus(
            url=self._wire.shown,
            kind="http",
            version="",
            schema=0,
            newest_schema=0,
            size_bytes=0,
            live=0,
            archived=0,
        )

    def ask(
        self,
        method: str,
        *path: str,
        query: Query | None = None,
        body: object = None,
        request_id: str | None = None,
        prefer: str | None = None,
    ) -> Any:
        """What the server says to a question of the API, as plain values."""
        answer = self._wire.ask(method, *path, query=query, body=body, request_id=request_id, prefer=prefer)
        return self._read(answer, Any)

    def close(self) -> None:
        """Let go of the connections."""
        self._wire.close()

    def _read(self, content: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreMismatch(
                f"{self._wire.shown} does not answer as a Windlass server does: {error}"
            ) from None

    def _catalogue(self) -> _Catalogue:
        return self._read(self._wire.ask("GET", "catalogue"), _Catalogue)

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_, **__: _refuse(_WHO.get(name, name))


# A worker's first verb, called by who asks for it.
_WHO = {"declare": "a worker"}


def _refuse(what: str) -> NoReturn:
    raise Refused(f"{what} needs the store itself, and this is a server: run it where the store is")


def _form(new: NewJob) -> dict[str, Any]:
    payload, reference = split_reference(new.payload)
    form: dict[str, Any] = {
        "type": new.type,
        "payload": msgspec.Raw(payload),
        "payload_ref": reference,
        "priority": new.priority,
        "max_attempts": new.max_attempts,
        # It is its own proof that a request is a repeated one.
        "id": new.id,
        "delay": None if new.delay is None else new.delay.total_seconds(),
        "run_at": new.run_at,
        "key": new.key,
        "tenant": new.tenant or None,
        "on_conflict": "existing" if new.take_existing else "error",
        "traceparent": new.traceparent,
        "depends_on": list(new.depends_on) or None,
        "on_dead": new.on_dead,
    }
    if new.unique is not None:
        form |= {"unique": new.unique, "until": new.unique_until, "on_unique": new.on_unique}
    return {name: value for name, value in form.items() if value is not None}


def _enqueued(accepted: _Accepted) -> Enqueued:
    return Enqueued(accepted.id, accepted.key, created=accepted.created, due=False)


def _job(found: _Job) -> Job:
    values: dict[str, Any] = msgspec.structs.asdict(found) | {
        "caller": found.caller or "",
        "tenant": found.tenant or "",
        "result": None if bytes(found.result) == b"null" else found.result,
    }
    values["unread"] = values.pop("view") == View.UNREADABLE
    return Job(**values)
