"""What producers and operators ask about jobs, asked of a server over HTTP. Anything else needs the store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from windlass.checks import storable
from windlass.clock import uuid7
from windlass.errors import JobNotFound, Refused, StoreMismatch
from windlass.job import Job, JobState, NewJob, TypeInfo, View
from windlass.payload.seal import split_reference
from windlass.store.chains import BatchInfo, NewBatch
from windlass.store.engine import Acted, Enqueued
from windlass.store.jobs import Filter, Page
from windlass.store.wire import Wire

T = TypeVar("T")
_MOST_AT_ONCE = 100


# A job's document: what it leaves empty is null, and a Job has its default there.
_Document = dict[str, msgspec.Raw]


class _Page(msgspec.Struct):
    jobs: list[_Document]
    next: str | None


class _Confirmed(msgspec.Struct):
    first: bool


class _Batch(msgspec.Struct):
    jobs: list[Enqueued]


class _Catalogue(msgspec.Struct):
    types: list[TypeInfo]
    settings: dict[str, str]


class _BatchInfo(BatchInfo, frozen=True, kw_only=True):
    # Null for an empty one.
    name: Any
    counts: Mapping[JobState, int] = msgspec.field(name="states")
    then_id: str | None = msgspec.field(name="then")


class RemoteStore:
    """A server in front of a store. A job that is sent carries its id, so sending it twice makes one."""

    # The server looks after the file of its store.
    generation = 0

    def __init__(self, url: str, *, patience: float) -> None:
        self._wire = Wire(url, patience=patience)
        self.shown = self._wire.shown

    # --- producing ---

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """All or none, up to ten thousand."""
        if len(jobs) == 1:
            return [self._ask(Enqueued, "POST", "jobs", body=_form(jobs[0]))]
        return self._enqueue_many(jobs, {})

    def enqueue_batch(self, batch: NewBatch, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue jobs as one batch."""
        if batch.then is not None:
            raise Refused("a batch over HTTP takes no `then`: enqueue that job where the store is")
        return self._enqueue_many(jobs, {"batch": batch.name, "batch_id": batch.id})

    def _enqueue_many(self, jobs: Sequence[NewJob], batch: dict[str, str]) -> list[Enqueued]:
        forms = [_form(new) for new in jobs]
        if len(jobs) <= _MOST_AT_ONCE:
            return self._ask(_Batch, "POST", "jobs", "batch", body={"jobs": forms, **batch}).jobs
        return self._ask(_Batch, "POST", "jobs", "bulk", query=batch, lines=forms).jobs

    def batch(self, batch_id: str) -> BatchInfo | None:
        """How far a batch has come."""
        if not storable(batch_id):
            return None
        try:
            found = self._ask(_BatchInfo, "GET", "batches", batch_id)
        except JobNotFound:
            return None
        return BatchInfo(**msgspec.structs.asdict(found) | {"name": found.name or ""})

    def types(self) -> dict[str, TypeInfo]:
        """The catalogue, as far as this caller may use it."""
        return {info.name: info for info in self._ask(_Catalogue, "GET", "catalogue").types}

    def settings(self) -> dict[str, str]:
        """What operators have set, which holds where a job says nothing."""
        return self._ask(_Catalogue, "GET", "catalogue").settings

    def confirm(self, job_id: str) -> bool:
        """Count that a job's effect was acknowledged later; False if that was said before."""
        return self._ask(_Confirmed, "POST", "jobs", job_id, "confirm").first

    def cancel(self, job_id: str) -> Acted:
        """End a pending job as cancelled, or ask the worker of a running one to."""
        return self._ask(Acted, "POST", "jobs", job_id, "cancel", body={}, request_id=uuid7())

    # --- looking ---

    def get(
        self,
        name: str,
        *,
        caller: str | None = "",  # noqa: ARG002 - the key names the caller
        tenant: str | None = None,
        wait: float = 0.0,
    ) -> Job | None:
        """A job by id or key; with `wait` when it has ended, or after so many seconds."""
        if not storable(name):
            return None
        query = {"wait": f"{wait:f}s"} if wait else {}
        if tenant is not None:
            query["tenant"] = tenant
        try:
            return _job(self._ask(_Document, "GET", "jobs", name, query=query, wait=wait))
        except JobNotFound:
            return None

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
            raise Refused(f"a filter by batch or caller needs the store itself, and {self.shown} is a server")
        if where.types and not any(where.types):
            # No type has an empty name; in a query it would be any.
            return Page([], None)
        said = filter_form(Filter() if where.ids else where)
        # Of texts an empty one is looked for as well: who asks for nothing must not get everything.
        query: dict[str, str | list[str]] = {
            name: ",".join(filter(None, value)) if isinstance(value, tuple) else value
            for name, value in said.items()
            if name not in ("older_than", "where")
        }
        query |= {"limit": str(limit)} | ({} if cursor is None else {"cursor": cursor})
        if where.ids:
            query["q"] = " ".join(where.ids)
        if "older_than" in said:
            query["older_than"] = f"{said['older_than']:f}s"
        if "where" in said:
            query["where"] = [f"payload.{path}={json.dumps(value)}" for path, value in said["where"].items()]
        found = self._ask(_Page, "GET", "jobs", query=query)
        return Page([_job(each) for each in found.jobs], found.next)

    def failures(self, *, since: datetime | None = None, limit: int = 50) -> list[Job]:
        """Jobs whose last attempt failed, the last to change first."""
        query = {"limit": str(limit)} | ({} if since is None else {"since": since.isoformat()})
        return [_job(each) for each in self._ask(_Page, "GET", "failures", query=query).jobs]

    # --- anything that the API has ---

    def ask(self, method: str, *path: str, **sent: Any) -> Any:
        """The server's answer as plain values; what is sent is as for `Wire.ask`."""
        return self._ask(Any, method, *path, **sent)

    def close(self) -> None:
        """Let go of the connections."""
        self._wire.close()

    def _ask(self, kind: type[T], method: str, *path: str, **sent: Any) -> T:
        content = self._wire.ask(method, *path, **sent)
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreMismatch(f"{self.shown} does not answer as a Windlass server does: {error}") from None


def filter_form(where: Filter) -> dict[str, Any]:
    """A filter as the API takes it; a view stands for its state."""
    said = {
        "ids": where.ids,
        "type": where.types,
        "state": (where.view,) if where.view else where.states,
        "tenant": where.tenant,
        "key": where.key,
        "error": where.error,
        "older_than": None if where.older_than is None else where.older_than.total_seconds(),
        "where": {".".join(path): value for path, value in where.payload.items()},
    }
    return {name: value for name, value in said.items() if value not in (None, (), {})}


# What of a draft a request does not say, or says in other words.
_UNSAID = frozenset(
    {
        *("payload", "schema_version", "caller", "own_id", "take_existing", "fresh", "stamp", "made_for"),
        *("delay", "depends_on", "unique", "unique_until", "on_unique"),
    }
)


def _form(new: NewJob) -> dict[str, Any]:
    payload, reference = split_reference(new.payload)
    # Its id is the proof that a request is a repeated one.
    form = {name: value for name, value in msgspec.structs.asdict(new).items() if name not in _UNSAID}
    form |= {
        "payload": msgspec.Raw(payload),
        "payload_ref": reference,
        "delay": None if new.delay is None else new.delay.total_seconds(),
        "tenant": new.tenant or None,
        "on_conflict": "existing" if new.take_existing else "error",
        "depends_on": list(new.depends_on) or None,
    }
    if new.unique is not None:
        form |= {"unique": new.unique, "until": new.unique_until, "on_unique": new.on_unique}
    return {name: value for name, value in form.items() if value is not None}


def _job(found: _Document) -> Job:
    said = {name: value for name, value in found.items() if bytes(value) != b"null"}
    result, view = said.pop("result", None), said.pop("view", b"")
    job = _decode(msgspec.json.encode(said))
    return msgspec.structs.replace(job, result=result, unread=bytes(view) == _UNREADABLE)


_UNREADABLE = f'"{View.UNREADABLE}"'.encode()
_decode = msgspec.json.Decoder(Job).decode
