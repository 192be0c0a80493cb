"""What can an operator see and do where only a server can be reached? The same verbs, asked of its API.

Jobs come as they do for producers (`store/remote.py`). What is not here needs the store itself, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from windlass.clock import SystemClock, from_micros, uuid7
from windlass.connect import Front
from windlass.errors import Refused, StoreMismatch
from windlass.job import Job
from windlass.ops.actions import Action
from windlass.ops.bulk import Bulk, Operations, narrowed
from windlass.ops.document import plain
from windlass.ops.ops import Ops
from windlass.ops.overview import Stop, WorkerHealth
from windlass.store.fleet import WorkerInfo
from windlass.store.flow import Breaker
from windlass.store.jobs import Filter
from windlass.store.operations import Operation
from windlass.store.remote import RemoteStore, filter_form
from windlass.wakeup import Wakeup

T = TypeVar("T")


def verbs_on(front: Front, wakeup: Wakeup | None = None) -> Ops:
    """The verbs on a store; where only a server can be reached, those that its API has."""
    return RemoteOps(front) if isinstance(front, RemoteStore) else Ops(front, wakeup=wakeup)


class RemoteOps(Ops):
    """Ops over HTTP. The records name the owner of the API key, whatever `by` says."""

    def __init__(self, server: RemoteStore) -> None:
        super().__init__(server)
        self._server = server
        self.operations = RemoteOperations(server)
        self.remote = self.schedules.remote = self.operations.remote = self

    def do(self, declared: Action, arguments: Mapping[str, Any]) -> Any:
        """Ask the server's API for an action. Who acts is the owner of the API key."""
        given = {name: value for name, value in arguments.items() if value is not None and name != "by"}
        target = None if declared.target is None else given.pop(declared.target.name)
        name = target.id if isinstance(target, Job) else str(target)
        path = [name if part.startswith("{") else part for part in declared.path.split("/")]
        query = {"tenant": given.pop("tenant")} if declared.takes_tenant and "tenant" in given else {}
        said = _flat({each.field: given[each.name] for each in declared.parameters if each.name in given})
        has_body = declared.method in ("POST", "PUT", "PATCH")
        answer = self._server.ask(
            declared.method,
            *path,
            query=query if has_body else query | _texts(said),
            body=said if has_body else None,
            request_id=uuid7() if has_body else None,
        )
        return _read(answer, declared.returns, declared.answers[-1] if declared.answers else "")

    def now(self) -> datetime:
        """By this machine's clock."""
        return from_micros(SystemClock().micros())

    def workers(self) -> list[WorkerHealth]:
        """Every worker that has a row, newest first."""
        now = self.now()
        found = _read(self._server.ask("GET", "workers"), list[dict[str, Any]], "workers")
        return [_worker(each, now) for each in found]

    def _breakers(self) -> Mapping[str, Breaker]:
        return {each.breaker.name: each.breaker for each in self.types() if each.breaker is not None}

    def stop_local(self, *, within: timedelta = timedelta(0)) -> Stop:  # noqa: ARG002 - nobody is stopped
        """Which processes of this machine are meant, only the store could tell."""
        raise Refused(
            "worker stop needs the store itself, and this is a server: drain takes its workers' ids"
        )


class RemoteOperations(Operations):
    """Operations of a server, which carries them."""

    def __init__(self, server: RemoteStore) -> None:
        super().__init__(server)
        self._server = server

    def count(self, action: str, where: Filter, *, limit: int | None = None, **arguments: Any) -> Bulk:
        """Count the jobs that an action would reach, for at most two seconds."""
        body = _asked(action, where, limit=limit, dry_run=True, **arguments)
        return _read(self._server.ask("POST", "jobs", "actions", body=body), Bulk)

    def start(self, action: str, where: Filter, **given: Any) -> Operation:
        """Begin to do an action to every job that matches; the server counts them by itself."""
        body = _asked(action, where, **{**given, "counted": None})
        answer = self._server.ask(
            "POST", "jobs", "actions", body=body, request_id=uuid7(), prefer="respond-async"
        )
        # Where something on the way drops the preference, the operation has ended by now.
        ended = answer.get("operation") if isinstance(answer, dict) else None
        return self.show(ended) if isinstance(ended, str) else _read(answer, Operation)


def _asked(action: str, where: Filter, **given: Any) -> dict[str, Any]:
    """The body of a request for many jobs."""
    where = narrowed(action, where, given.get("limit"))
    said = {name: value for name, value in given.items() if value is not None}
    return {"action": action, "filter": filter_form(where), **plain(said)}


def _flat(said: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as the API takes them: the fields of a struct are put beside the others."""
    flat: dict[str, Any] = {}
    for name, value in said.items():
        if isinstance(value, msgspec.Struct) or name == "timing":
            fields: Mapping[str, Any] = value if isinstance(value, Mapping) else plain(value)
            flat |= _flat({each: inner for each, inner in fields.items() if inner not in (None, "")})
        else:
            flat[name] = plain(value)
    return flat


def _texts(said: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """The same for a query."""
    return {
        name: [str(each) for each in value] if isinstance(value, list) else str(value)
        for name, value in said.items()
    }


def _read(document: Any, kind: type[T], within: str = "") -> T:
    """A document, or a part of it, as the value that it was made of: durations are seconds there."""
    try:
        if within:
            document = msgspec.convert(document, dict[str, Any]).get(within)
        return msgspec.json.decode(msgspec.json.encode(document), type=kind, strict=False)
    except msgspec.ValidationError as error:
        raise StoreMismatch(f"the server does not answer as one of this release does: {error}") from None


def _worker(document: Mapping[str, Any], now: datetime) -> WorkerHealth:
    # Where it runs is the server's to know: nothing of that machine is looked at from here.
    here = {"boot": "", "pid_space": "", "pid_started": 0}
    info = _read({**document, **here}, WorkerInfo)
    silent_for = max(timedelta(0), now - info.beat_at) if info.beat_at else timedelta(0)
    return WorkerHealth(info=info, alive=bool(document.get("alive")), silent_for=silent_for)
