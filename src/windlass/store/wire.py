"""How does a request reach a server that may be away for a while, and once only?

On the standard library's client: what producers install stays small.
"""

from __future__ import annotations

import http.client
import os
import random
import re
import threading
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

import msgspec

from windlass import errors
from windlass.checks import TEXT, storable
from windlass.errors import StoreBusy, StoreUnavailable, WindlassError, must_be

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
# How a server names one of many jobs.
_PLACE = re.compile(r"^(jobs\[\d+\]|line \d+): ")
_REFUSALS: dict[str, type[WindlassError]] = {
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


class Wire:
    """Connections to one server. Safe for many threads; a forked process makes its own."""

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

    def ask(
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
        request, or only reads. WindlassError if it is refused, or if patience is at its end.
        """
        target = self._base + _target(path, query or {})
        data = None if body is None else msgspec.json.encode(body)
        if lines is not None:
            data = msgspec.json.Encoder().encode_lines(lines)
        kind = "application/json" if lines is None else "application/x-ndjson"
        more = {"Content-Type": kind, "Idempotency-Key": request_id, "Prefer": prefer}
        headers = self._headers | {name: value for name, value in more.items() if value is not None}
        end = monotonic() + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                status, after, content = self._once(method, target, data, headers, wait)
            except (OSError, http.client.HTTPException) as error:
                failure: WindlassError = StoreUnavailable(
                    f"{self.shown}: {str(error) or type(error).__name__}"
                )
                after = None
            else:
                if status not in _NOT_NOW:
                    return _checked(status, content)
                failure = _not_now(status, self.shown, content)
            left = end - monotonic()
            if left <= 0:
                raise failure
            self._calm.wait(min(left, max(after or 0.0, pause * (0.5 + random.random()))))
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


def _checked(status: int, content: bytes) -> bytes:
    """The content of a good answer; a problem is raised as the error that it tells of."""
    if status in _GOOD:
        return content
    problem = _problem(content)
    kind = _REFUSALS.get(problem["name"], errors.Refused)
    raise _as(kind, str(problem.get("detail", f"status {status}")), problem)


def _as(kind: type[WindlassError], detail: str, problem: dict[str, Any]) -> WindlassError:
    """An error of the library, as far as a server tells of it."""
    error = kind.__new__(kind)
    facts: dict[str, Any] = {} if problem.get("job") is None else {"job_id": problem["job"]}
    facts |= {name: problem[name] for name in ("index", "twin", "jobs") if problem.get(name) is not None}
    for wrong in problem.get("errors", ())[:1]:
        facts |= {name: wrong.get(name) for name in ("field", "value", "allowed")}
    # An error of the library says by itself which job of a batch it is about.
    error.args = (detail if "index" not in facts else _PLACE.sub("", detail, count=1),)
    error.__dict__.update(facts)
    return error


def _not_now(status: int, shown: str, content: bytes) -> WindlassError:
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
