"""The producers' part of a store, asked of a server over HTTP. What needs more needs the store itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import msgspec

from windlass.checks import storable
from windlass.clock import SystemClock, from_micros, uuid7
from windlass.errors import JobNotFound, Refused, StoreMismatch
from windlass.job import Job, JobState, NewJob, TypeInfo, View
from windlass.payload.seal import split_reference
from windlass.store.chains import BatchInfo, NewBatch
from windlass.store.engine import Acted, Bound, Enqueued, Tx
from windlass.store.flow import Depths
from windlass.store.jobs import Filter, Page
from windlass.store.store import Store
from windlass.store.upkeep import StoreStatus
from windlass.store.wire import Wire

P = ParamSpec("P")
T = TypeVar("T")
Query = Mapping[str, str | list[str]]
_MOST_AT_ONCE = 100


# A job's document: what it leaves empty is null, and a Job has its default there.
_Document = dict[str, msgspec.Raw]


class _Page(msgspec.Struct):
    jobs: list[_Document]
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


# --- verbs over a connection to a server ---


def enqueue_batch(wire: Wire, batch: NewBatch, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Enqueue jobs as one batch."""
    if batch.then is not None:
        raise Refused("a batch over HTTP takes no `then`: enqueue that job where the store is")
    forms = [_form(new) for new in jobs]
    if len(jobs) <= _MOST_AT_ONCE:
        body = {"jobs": forms, "batch": batch.name, "batch_id": batch.id}
        answer = wire.ask("POST", "jobs", "batch", body=body)
    else:
        query = {"batch": batch.name, "batch_id": batch.id}
        answer = wire.ask("POST", "jobs", "bulk", query=query, lines=forms)
    return [_enqueued(each) for each in _read(wire, answer, _Batch).jobs]


def batch(wire: Wire, batch_id: str) -> BatchInfo | None:
    """How far a batch has come."""
    if not storable(batch_id):
        return None
    try:
        answer = wire.ask("GET", "batches", batch_id)
    except JobNotFound:
        return None
    found = _read(wire, answer, _BatchInfo)
    return BatchInfo(
        id=found.id,
        name=found.name or "",
        total=found.total,
        counts=found.states,
        then_id=found.then,
        created_at=found.created_at,
        finished_at=found.finished_at,
    )


def depths(wire: Wire) -> Depths:  # noqa: ARG001 - nothing is asked
    """The server counts, and refuses what is too much."""
    return Depths(elsewhere=True)


def types(wire: Wire) -> dict[str, TypeInfo]:
    """The catalogue, as far as this caller may use it."""
    return {info.name: info for info in _read(wire, wire.ask("GET", "catalogue"), _Catalogue).types}


def settings(wire: Wire) -> dict[str, str]:
    """What operators have set, which holds where a job says nothing."""
    return _read(wire, wire.ask("GET", "catalogue"), _Catalogue).settings


def get(
    wire: Wire,
    name: str,
    *,
    caller: str | None = "",  # noqa: ARG001 - the key names the caller
    tenant: str | None = None,
) -> Job | None:
    """A job of this caller's by id or key."""
    return _get(wire, name, tenant, wait=0.0)


def _get(wire: Wire, name: str, tenant: str | None, *, wait: float) -> Job | None:
    if not storable(name):
        return None
    query = {"wait": f"{wait:f}s"} if wait else {}
    if tenant is not None:
        query["tenant"] = tenant
    try:
        answer = wire.ask("GET", "jobs", name, query=query, wait=wait)
    except JobNotFound:
        return None
    return _job(_read(wire, answer, _Document))


def find(
    wire: Wire,
    where: Filter,
    *,
    limit: int = 50,
    cursor: str | None = None,
    window: int | None = None,  # noqa: ARG001 - the server bounds its searches itself
) -> Page:
    """Jobs newest first."""
    if where.batch is not None or where.caller is not None:
        raise _refusal("a filter by batch or caller")
    query: dict[str, str | list[str]] = {"limit": str(limit)}
    if where.ids:
        query["q"] = " ".join(where.ids)
        where = Filter()
    if cursor is not None:
        query["cursor"] = cursor
    named = [name for name in where.types if name]
    if where.types and not named:
        # No type has an empty name; in a query it would be any.
        return Page([], None)
    if named:
        query["type"] = ",".join(named)
    # A view is a part of its state, and is given instead of it.
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
    found = _read(wire, wire.ask("GET", "jobs", query=query), _Page)
    return Page([_job(each) for each in found.jobs], found.next)


def failures(wire: Wire, *, since: datetime | None = None, limit: int = 50) -> list[Job]:
    """Jobs whose last attempt failed, the last to change first."""
    query: dict[str, str | list[str]] = {"limit": str(limit)}
    if since is not None:
        query["since"] = since.isoformat()
    found = _read(wire, wire.ask("GET", "failures", query=query), _Page)
    return [_job(each) for each in found.jobs]


def confirm(wire: Wire, job_id: str) -> bool:
    """Count that a job's effect was acknowledged later; False if that was said before."""
    return _read(wire, wire.ask("POST", "jobs", job_id, "confirm"), _Confirmed).first


def cancel(
    wire: Wire,
    job_id: str,
    *,
    by: str = "",  # noqa: ARG001 - the key names the caller
    why: str = "",
    request_id: str = "",
) -> Acted:
    """End a pending job as cancelled, or ask the worker of a running one to."""
    answer = wire.ask("POST", "jobs", job_id, "cancel", body={"why": why}, request_id=request_id or uuid7())
    return _read(wire, answer, Acted)


# --- the store ---


class _calls(Bound[P, T]):  # noqa: N801 - as `reads` and `writes`
    """Bind a verb over a connection to a server."""

    run = "_call"


class RemoteStore(Store):
    """A store behind a server. It binds the verbs that the API has for producers, and refuses all others.

    A job that is sent carries its id, so sending it twice makes one.
    """

    # The server looks after the file of its store.
    generation = 0

    enqueue_batch = _calls(enqueue_batch)
    batch = _calls(batch)
    depths = _calls(depths)
    types = _calls(types)
    settings = _calls(settings)
    get = _calls(get)
    find = _calls(find)
    failures = _calls(failures)
    confirm = _calls(confirm)
    cancel = _calls(cancel)

    def __init__(self, url: str, *, patience: float) -> None:
        self._wire = Wire(url, patience=patience)

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """All or none, up to ten thousand."""
        wire = self._wire
        if len(jobs) == 1:
            return [_enqueued(_read(wire, wire.ask("POST", "jobs", body=_form(jobs[0])), _Accepted))]
        forms = [_form(new) for new in jobs]
        if len(jobs) <= _MOST_AT_ONCE:
            answer = wire.ask("POST", "jobs", "batch", body={"jobs": forms})
        else:
            answer = wire.ask("POST", "jobs", "bulk", lines=forms)
        return [_enqueued(each) for each in _read(wire, answer, _Batch).jobs]

    def get_ended(self, name: str, *, tenant: str | None = None, wait: float = 0.0) -> Job | None:
        return _get(self._wire, name, tenant, wait=wait)

    def register(self, types: Sequence[TypeInfo], app: str = "") -> None:
        """Workers register types: who only produces does not know better than they."""

    def registered(self, types: Sequence[TypeInfo]) -> bool:  # noqa: ARG002 - workers register types
        """Nothing that a producer here knows is news to the server."""
        return True

    def now(self) -> datetime:
        """Who only produces has its own clock for ages."""
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
        return _read(self._wire, answer, Any)

    def close(self) -> None:
        """Let go of the connections."""
        self._wire.close()

    def _call(self, verb: Callable[Concatenate[Wire, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return verb(self._wire, *args, **kwargs)

    # --- what needs the store itself ---

    def _read(self, verb: Callable[Concatenate[Tx, P], T], /, *_: P.args, **__: P.kwargs) -> T:
        raise _refusal(_name(verb))

    def _write(self, verb: Callable[Concatenate[Tx, P], T], /, *_: P.args, **__: P.kwargs) -> T:
        raise _refusal(_name(verb))

    def _beat(self, verb: Callable[Concatenate[Tx, P], T], /, *_: P.args, **__: P.kwargs) -> T:
        raise _refusal(_name(verb))

    def enqueue_on(self, *_: object, **__: object) -> NoReturn:
        """A server is not in the caller's transaction."""
        raise _refusal("connection=")

    async def enqueue_on_async(self, *_: object, **__: object) -> NoReturn:
        """A server is not in the caller's transaction."""
        raise _refusal("connection=")

    def claim(self, *_: object) -> NoReturn:
        raise _refusal("a worker")

    def settle(self, *_: object) -> NoReturn:
        raise _refusal("a worker")

    def transaction(self, *_: object, **__: object) -> NoReturn:
        raise _refusal("a worker")

    def transaction_async(self, *_: object, **__: object) -> NoReturn:
        raise _refusal("a worker")

    def shared_address(self) -> NoReturn:
        raise _refusal("a worker")

    def database(self) -> NoReturn:
        raise _refusal("database")

    def prune(self, *_: object, **__: object) -> NoReturn:
        raise _refusal("prune")

    def backup(self, *_: object) -> NoReturn:
        raise _refusal("backup")

    def check(self) -> NoReturn:
        raise _refusal("check")


def _name(verb: Callable[..., object]) -> str:
    """How people call a verb that the table of all verbs binds; the first verb of a worker is a worker."""
    named = (name for name, each in vars(Store).items() if isinstance(each, Bound) and each.verb is verb)
    name = next(named, getattr(verb, "__name__", "this"))
    return "a worker" if name == "declare" else name


def _refusal(what: str) -> Refused:
    return Refused(f"{what} needs the store itself, and this is a server: run it where the store is")


def _read(wire: Wire, content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreMismatch(f"{wire.shown} does not answer as a Windlass server does: {error}") from None


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


def _enqueued(accepted: _Accepted) -> Enqueued:
    return Enqueued(accepted.id, accepted.key, created=accepted.created, due=False)


def _job(found: _Document) -> Job:
    said = {name: value for name, value in found.items() if bytes(value) != b"null"}
    result, view = said.pop("result", None), said.pop("view", b"")
    job = _decode(msgspec.json.encode(said))
    return msgspec.structs.replace(job, result=result, unread=bytes(view) == _UNREADABLE)


_UNREADABLE = f'"{View.UNREADABLE}"'.encode()
_decode = msgspec.json.Decoder(Job).decode
