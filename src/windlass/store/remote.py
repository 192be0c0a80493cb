"""What producers and operators ask about jobs, asked of a server over HTTP. Anything else needs the store.

On the standard library's client: what producers install stays small.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

import msgspec

from windlass import errors
from windlass.checks import TEXT, storable
from windlass.clock import SystemClock, from_micros, uuid7
from windlass.errors import JobNotFound, Refused, StoreBusy, StoreMismatch, StoreUnavailable, must_be
from windlass.job import Job, JobState, NewJob, TypeInfo, View
from windlass.payload.seal import split_reference
from windlass.store.chains import BatchInfo, NewBatch
from windlass.store.engine import Acted, Enqueued
from windlass.store.jobs import Filter, Page

T = TypeVar("T")
KEY_VARIABLE = "WINDLASS_API_KEY"
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
# Beyond what a request may itself wait for.
_ANSWER_SECONDS = 30.0
_ALLOWED = (
    "http://host:port or https://host, an API key before the host if one is needed: https://wl_...@host"
)
_TOO_MANY = 429
# Also what a proxy says while the server behind it is away.
_NOT_NOW = (_TOO_MANY, 502, 503, 504)
_GOOD = range(200, 300)
_PROBLEM = "urn:windlass:problem:"
# Before a person has waited for longer, it is said that the server cannot be reached.
_SILENT_SECONDS = 3.0
# How a server names one of many jobs.
_PLACE = re.compile(r"^(jobs\[\d+\]|line \d+): ")
_MORE = re.compile(r"; and \d+ more: `errors` lists all$")
_REFUSALS: dict[str, type[errors.WindlassError]] = {
    "invalid-value": errors.InvalidValue,
    "unknown-type": errors.UnknownType,
    "invalid-payload": errors.InvalidPayload,
    "not-found": errors.JobNotFound,
    "key-conflict": errors.KeyConflict,
    "ambiguous-key": errors.AmbiguousKey,
    "id-conflict": errors.IdConflict,
    "unique-conflict": errors.UniqueConflict,
    "wrong-state": errors.WrongState,
    "lease-lost": errors.LeaseLost,
}


def _read(url: str) -> tuple[SplitResult, str, int | None]:
    """An address in parts: all of it, the host and the port."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host:
        # What stands before the host may be a key.
        raise must_be("server URL", url.rpartition("@")[2], _ALLOWED)
    return parts, host, port


def _target(path: Sequence[str], query: Mapping[str, str | list[str]]) -> str:
    """A path and its query, percent-encoded; InvalidValue names what no server could be sent."""
    told = [("name", part) for part in path]
    for name, value in query.items():
        told += [(name, each) for each in ([value] if isinstance(value, str) else value)]
    for name, value in told:
        if not storable(value):
            raise must_be(name, value, TEXT)
    target = "".join(f"/{quote(part, safe='')}" for part in path)
    return f"{target}?{urlencode(query, doseq=True)}" if query else target


def _checked_key(key: str) -> str:
    """An API key, which files and variables like to end with a newline; never shown."""
    key = key.strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise must_be("API key", "(not shown)", "printable ASCII without spaces, as it was made")
    return key


def _checked(status: int, content: bytes, shown: str) -> bytes:
    """The content of a good answer; a problem is raised as the error that it tells of."""
    if status in _GOOD:
        return content
    problem = _problem(content)
    if not str(problem.get("type", "")).startswith(_PROBLEM):
        raise StoreMismatch(f"{shown} does not answer as a Windlass server does: status {status}")
    kind = _REFUSALS.get(problem["name"], errors.Refused)
    raise _as(kind, str(problem.get("detail", f"status {status}")), problem)


def _as(kind: type[errors.WindlassError], detail: str, problem: dict[str, Any]) -> errors.WindlassError:
    """An error of the library, as far as a server tells of it."""
    error = kind.__new__(kind)
    facts: dict[str, Any] = {} if problem.get("job") is None else {"job_id": problem["job"]}
    facts |= {name: problem[name] for name in ("index", "twin", "jobs") if problem.get(name) is not None}
    wrong = [each for each in problem.get("errors", ()) if isinstance(each, dict)]
    if wrong:
        facts |= {name: wrong[0].get(name) for name in ("field", "value", "allowed")}
    if len(wrong) > 1:
        facts["problems"] = tuple(_wrong_value(each) for each in wrong)
        detail = _MORE.sub("", detail)
    # An error of the library says by itself which job of a batch it is about.
    error.args = (detail if "index" not in facts else _PLACE.sub("", detail, count=1),)
    error.__dict__.update(facts)
    return error


def _wrong_value(wrong: dict[str, Any]) -> errors.InvalidValue:
    field, value, allowed = str(wrong.get("field")), wrong.get("value"), str(wrong.get("allowed"))
    if value is not None:
        return must_be(field, value, allowed)
    return errors.InvalidValue(f"{field} must be {allowed}", field=field, value=None, allowed=allowed)


def _not_now(status: int, shown: str, content: bytes) -> errors.WindlassError:
    problem = _problem(content)
    detail = f"{shown}: {problem.get('detail', f'not now, status {status}')}"
    if problem["name"] == "queue-full":
        return _as(errors.QueueFull, detail, problem)
    return StoreBusy(detail) if status == _TOO_MANY else StoreUnavailable(detail)


def _problem(content: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = None
    problem = found if isinstance(found, dict) else {}
    return problem | {"name": str(problem.get("type", "")).rpartition(":")[2]}


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
    """A server in front of a store, which may be away for a while. Safe for many threads and forks.

    A job that is sent carries its id, so sending it twice makes one.
    """

    # The server looks after the file of its store.
    generation = 0

    def __init__(self, url: str, *, patience: float) -> None:
        parts, self._host, self._port = _read(url)
        key = _checked_key(unquote(parts.username or "") or os.environ.get(KEY_VARIABLE, ""))
        self._secure = parts.scheme == "https"
        self._base = parts.path.rstrip("/") + "/api/v1"
        self.shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._headers = {"Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._patience = patience
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._process = os.getpid()
        self._calm = threading.Event()
        # Hears once for each request that the server is away, if it is for some seconds.
        self.on_wait: Callable[[str], None] | None = None

    def send(
        self,
        method: str,
        *path: str,
        query: Mapping[str, str | list[str]] | None = None,
        body: object = None,
        lines: Sequence[object] | None = None,
        wait: float = 0.0,
        request_id: str | None = None,
        prefer: str | None = None,
    ) -> bytes:
        """Send a request, again and again while the server is away or asks to be left alone for a moment.

        Whatever is sent here may be sent twice without harm: it carries its own id or key, has the id of its
        request, or only reads. errors.WindlassError if it is refused, or if patience is at its end.
        """
        target = self._base + _target(path, query or {})
        data = None if body is None else msgspec.json.encode(body)
        if lines is not None:
            data = msgspec.json.Encoder().encode_lines(lines)
        kind = "application/json" if lines is None else "application/x-ndjson"
        more = {"Content-Type": kind, "Idempotency-Key": request_id, "Prefer": prefer}
        headers = self._headers | {name: value for name, value in more.items() if value is not None}
        end = monotonic() + self._patience
        pause, said = _FIRST_PAUSE, self.on_wait
        while True:
            try:
                status, after, content = self._once(method, target, data, headers, wait)
            except (OSError, http.client.HTTPException) as error:
                failure: errors.WindlassError = StoreUnavailable(
                    f"{self.shown}: {str(error) or type(error).__name__}"
                )
                after = None
            else:
                if status not in _NOT_NOW:
                    return _checked(status, content, self.shown)
                failure = _not_now(status, self.shown, content)
            left = end - monotonic()
            if left <= 0:
                raise failure
            rest = min(left, max(after or 0.0, pause * (0.5 + random.random())))
            if said is not None and self._patience - left + rest >= _SILENT_SECONDS:
                until = from_micros(SystemClock().micros()) + timedelta(seconds=left)
                said(f"{failure}; it is tried again until {until:%H:%M:%S} UTC")
                said = None
            self._calm.wait(rest)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _once(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str], wait: float
    ) -> tuple[int, float | None, bytes]:
        connection = self._connection(_ANSWER_SECONDS + wait)
        try:
            connection.request(method, target, data, headers)
            answer = connection.getresponse()
            content = answer.read()
            after = answer.headers.get("Retry-After")
        except BaseException:  # wall: a connection in doubt is not used again; the error goes on
            connection.close()
            raise
        with self._lock:
            self._idle.append(connection)
        return answer.status, float(after) if after and after.isdecimal() else None, content

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if self._process != os.getpid():
            # Inherited ones are the parent's, and what is said on them too.
            self._lock, self._idle, self._process = threading.Lock(), [], os.getpid()
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            made = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            return made(self._host, self._port, timeout=timeout)
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        return connection

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

    def ask(self, method: str, *path: str, **sent: Any) -> Any:
        """The server's answer as plain values; what is sent is as for `send`."""
        return self._ask(Any, method, *path, **sent)

    def _ask(self, kind: type[T], method: str, *path: str, **sent: Any) -> T:
        content = self.send(method, *path, **sent)
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
