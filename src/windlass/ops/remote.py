"""What can an operator see and do where only a server can be reached? The same verbs, asked of its API.

What jobs tell of themselves comes through the store (`store/http`), as for producers. Whatever is not here
needs the store itself, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar, cast

import msgspec

from windlass.clock import uuid7
from windlass.errors import Refused, StoreMismatch
from windlass.job import Job
from windlass.ops.actions import Action
from windlass.ops.bulk import Bulk, Operations, narrowed
from windlass.ops.document import plain
from windlass.ops.explanation import Explanation
from windlass.ops.jobs import Ties
from windlass.ops.local import Stop
from windlass.ops.ops import Ops
from windlass.ops.overview import Overview, TypeStatus, WorkerHealth
from windlass.ops.signals import Signals
from windlass.store.fleet import WorkerInfo
from windlass.store.flow import Pause
from windlass.store.jobs import Filter
from windlass.store.oncall import DatabaseHealth, DeadGroups
from windlass.store.operations import Operation
from windlass.store.store import Store

T = TypeVar("T")


class Server(Protocol):
    """What answers."""

    def ask(
        self,
        method: str,
        *path: str,
        query: Mapping[str, str | list[str]] | None = None,
        body: object = None,
        request_id: str | None = None,
        prefer: str | None = None,
    ) -> Any:
        """What the API says, as plain values. What has the id of a request is done once to a job."""


class _Types(msgspec.Struct):
    types: list[TypeStatus]


class _Workers(msgspec.Struct):
    workers: list[dict[str, Any]]


class _Resumed(msgspec.Struct):
    resumed: bool


class _Drained(msgspec.Struct):
    worker: str


class _Operations(msgspec.Struct):
    operations: list[Operation]


class RemoteOps(Ops):
    """Ops over HTTP. In the records stands whose API key it was, whatever `by` says."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._server = cast(Server, store)
        self.operations = RemoteOperations(store)
        self.remote = self.schedules.remote = self.operations.remote = self

    # --- looking --------------------------------------------------------------------------------

    def status(self) -> Overview:
        """One look at jobs, types and workers, with what is wrong in words."""
        return _read(self._server.ask("GET", "stats"), Overview)

    def types(self) -> list[TypeStatus]:
        """Every type that is registered or has jobs."""
        return _read(self._server.ask("GET", "types"), _Types).types

    def signals(self) -> Signals:
        """What a depth does not tell."""
        return _read(self._server.ask("GET", "signals"), Signals)

    def workers(self) -> list[WorkerHealth]:
        """Every worker that has a row, newest first."""
        now = self.now()
        return [_worker(each, now) for each in _read(self._server.ask("GET", "workers"), _Workers).workers]

    def ties(self, job: Job) -> Ties:
        """What a job has to do with others, and how far it said that it had come."""
        return _read(self._server.ask("GET", "jobs", job.id), Ties)

    def explain(self, name: str, *, tenant: str | None = None) -> Explanation:
        """Why a job does not run, or what became of it, in one sentence."""
        return _read(self._server.ask("GET", "jobs", name, "explain", query=_of(tenant)), Explanation)

    def dead_groups(self, types: Sequence[str] = ()) -> DeadGroups:
        """The dead letters by type and error, the largest group first."""
        return _read(self._server.ask("GET", "dlq", "groups", query={"type": list(types)}), DeadGroups)

    def database(self) -> DatabaseHealth:
        """How the database is."""
        return _read(self._server.ask("GET", "database"), DatabaseHealth)

    # --- doing ----------------------------------------------------------------------------------

    def do(self, declared: Action, arguments: Mapping[str, Any]) -> Any:
        """Ask the server's API for an action. Who acts is the owner of the API key."""
        given = {name: value for name, value in arguments.items() if value is not None and name != "by"}
        target = "" if declared.target is None else str(given.pop(declared.target.name))
        path = [target if part.startswith("{") else part for part in declared.path.split("/")]
        apart = {"tenant": given.pop("tenant")} if declared.takes_tenant and "tenant" in given else {}
        has_body = declared.method in ("POST", "PUT", "PATCH")
        answer = self._server.ask(
            declared.method,
            *path,
            query=apart if has_body else apart | given,
            body=plain(given) if has_body else None,
            request_id=uuid7(),
        )
        return _read(answer, declared.returns)

    def pause(self, job_type: str, *, by: str | None = None, why: str = "") -> Pause:  # noqa: ARG002 - the key tells
        """Start no more jobs of a type."""
        return _read(self._server.ask("POST", "types", job_type, "pause", body={"why": why}), Pause)

    def resume(self, job_type: str, *, by: str | None = None, why: str = "") -> bool:  # noqa: ARG002 - the key tells
        """Start them again; False if the type was not paused."""
        told = self._server.ask("POST", "types", job_type, "resume", body={"why": why})
        return _read(told, _Resumed).resumed

    def drain(self, worker: str, *, by: str | None = None, why: str = "") -> str:  # noqa: ARG002 - the key tells
        """Ask a worker to finish what runs and exit; answers its id."""
        told = self._server.ask("POST", "workers", worker, "drain", body={"why": why})
        return _read(told, _Drained).worker

    def stop_local(self, *, within: timedelta = timedelta(0)) -> Stop:  # noqa: ARG002 - nobody is stopped
        """Which processes of this machine are meant, only the store could tell."""
        raise Refused(
            "worker stop needs the store itself, and this is a server: drain takes its workers' ids"
        )


class RemoteOperations(Operations):
    """Operations of a server, which carries them."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._server = cast(Server, store)

    def list(self, *, limit: int = 50) -> list[Operation]:
        """The newest operations."""
        return _read(
            self._server.ask("GET", "operations", query={"limit": str(limit)}), _Operations
        ).operations

    def show(self, operation_id: str) -> Operation:
        """One operation and how far it has come."""
        return _read(self._server.ask("GET", "operations", operation_id), Operation)

    def count(self, action: str, where: Filter, *, limit: int | None = None) -> Bulk:
        """Count the jobs that an action would reach, for at most two seconds."""
        body = _asked(action, where, limit=limit, dry_run=True)
        return _read(self._server.ask("POST", "jobs", "actions", body=body), Bulk)

    def start(
        self,
        action: str,
        where: Filter,
        *,
        limit: int | None = None,
        rate: float | None = None,
        why: str = "",
        counted: Bulk | None = None,  # noqa: ARG002 - the server counts by itself
        **arguments: Any,
    ) -> Operation:
        """Begin to do an action to every job that matches."""
        body = _asked(action, where, limit=limit, rate=rate, why=why, **arguments)
        answer = self._server.ask(
            "POST", "jobs", "actions", body=body, request_id=uuid7(), prefer="respond-async"
        )
        # Where something on the way drops the preference, the operation has ended by now.
        ended = answer.get("operation") if isinstance(answer, dict) else None
        return self.show(ended) if isinstance(ended, str) else _read(answer, Operation)


def _asked(action: str, where: Filter, **given: Any) -> dict[str, Any]:
    """The body of a request for many jobs."""
    where = narrowed(action, where, given["limit"])
    said = {name: value for name, value in given.items() if value is not None}
    return {"action": action, "filter": _form(where), **plain(said)}


def _of(tenant: str | None) -> dict[str, str] | None:
    return None if tenant is None else {"tenant": tenant}


def _read(document: Any, kind: type[T]) -> T:
    """A document as the value that it was made of: durations are seconds there."""
    try:
        return msgspec.convert(document, kind, strict=False)
    except msgspec.ValidationError as error:
        raise StoreMismatch(f"the server does not answer as one of this release does: {error}") from None


def _form(where: Filter) -> dict[str, Any]:
    """A filter as the API takes it; a view stands for its state. An empty text is one to be looked for."""
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


def _worker(document: Mapping[str, Any], now: datetime) -> WorkerHealth:
    # Where it runs is the server's to know: nothing of that machine is looked at from here.
    here = {"boot": "", "pid_space": "", "pid_started": 0}
    info = _read({**document, **here}, WorkerInfo)
    silent_for = max(timedelta(0), now - info.beat_at) if info.beat_at else timedelta(0)
    return WorkerHealth(info=info, alive=bool(document.get("alive")), silent_for=silent_for)
