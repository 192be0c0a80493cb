"""What does a handler see of a request?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from windlass.duration import parse_duration
from windlass.errors import InvalidValue, JobNotFound
from windlass.job import Job
from windlass.server import problems
from windlass.server.problems import Problem
from windlass.server.wire import exchange

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

    from windlass.ops import Ops
    from windlass.server.identity import Identity
    from windlass.server.parts import Parts
    from windlass.server.routes import Route

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

_JSON = "application/json"
# A body that comes slower than this is nobody's work.
_BODY_SECONDS = 20.0
_LONGEST_WAIT = 60.0
_REQUEST_ID = 32
# The bodies of all requests together, before they are answered.
MOST_BODY_BYTES = 256 * 2**20


class Call:
    """One request: what was asked, by whom, and the parts of the server that answer."""

    __slots__ = ("_headers", "_held", "_query", "_receive", "identity", "parts", "path", "route", "scope")

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        route: Route,
        path: Mapping[str, str],
        identity: Identity,
        parts: Parts,
    ) -> None:
        self.scope = scope
        self.route = route
        self.path = path
        self.identity = identity
        self.parts = parts
        self._receive = receive
        self._held = 0
        self._headers: dict[bytes, bytes] | None = None
        self._query: dict[str, list[str]] | None = None

    # --- what was sent ---

    def header(self, name: bytes) -> str | None:
        """A header's value, in UTF-8 as everything else, or else byte by byte; None if it was not sent."""
        if self._headers is None:
            # From the back: of two, the first counts.
            self._headers = dict(reversed(self.scope["headers"]))
        value = self._headers.get(name)
        return None if value is None else _text(value)

    async def body(self, kind: type[S]) -> S:
        """The body, decoded strictly; an empty one stands for `{}`."""
        data = self._whole()
        return self._decoded(kind, await self._read() if data is None else data)

    def body_here(self, kind: type[S]) -> S:
        """The same of a request that is here as a whole."""
        return self._decoded(kind, self._whole() or b"")

    def _decoded(self, kind: type[S], data: bytes) -> S:
        content = self.header(b"content-type") or ""
        if data and content != _JSON and content.partition(";")[0].strip().lower() != _JSON:
            raise Problem(
                415, "not-json", f"Content-Type must be application/json, got {content or 'none'!r}"
            )
        return decode(kind, data or b"{}")

    def _whole(self) -> bytes | None:
        """The body if all of it is here, and not more than the route takes."""
        most = self.route.body_limit
        length = self.header(b"content-length")
        if length is not None and length.isdecimal() and int(length) > most:
            raise _too_large(most)
        here = exchange(self.scope)
        whole = None if here is None else here.body()
        if whole is None:
            return None
        if not whole and self.header(b"upgrade") is not None:
            self._check_nothing_skipped(length)
        self._hold(len(whole), most)
        return whole

    async def _read(self) -> bytes:
        """At most as much as the route takes, within a time: who sends more, or too slowly, is cut off."""
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                return await self._piece_by_piece(self.route.body_limit)
        except TimeoutError:
            detail = f"the body was not complete within {_BODY_SECONDS:g} s"
            raise Problem(408, "too-slow", detail, headers={b"connection": b"close"}) from None

    def _check_nothing_skipped(self, length: str | None) -> None:
        """The body of a request that asks for another protocol never comes: it must not seem to be empty."""
        if length not in (None, "0") or self.header(b"transfer-encoding") is not None:
            detail = "there is no other protocol than HTTP/1.1 here: send a body without Upgrade"
            raise Problem(400, "no-upgrade", detail, headers={b"connection": b"close"})

    async def _piece_by_piece(self, most: int) -> bytes:
        chunks: list[bytes] = []
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise HungUp
            chunk: bytes = message.get("body", b"")
            self._hold(len(chunk), most)
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _hold(self, size: int, most: int) -> None:
        """Count a piece of the body: too much of this one, or of those of all requests, is refused."""
        if self._held + size > most:
            raise _too_large(most)
        self._held += size
        self.parts.body_bytes += size
        if self.parts.body_bytes > MOST_BODY_BYTES:
            headers = {b"retry-after": b"1", b"connection": b"close"}
            raise Problem(503, "too-busy", "too much is being sent at once", headers=headers)

    @property
    def size(self) -> int:
        """How large its body is, once that has been read."""
        return self._held

    def let_go(self) -> None:
        """The request is answered: its body takes no memory any more."""
        self.parts.body_bytes -= self._held
        self._held = 0

    @property
    def broken_off(self) -> bool:
        """Whether the caller has hung up, as far as that is known without waiting for it."""
        here = exchange(self.scope)
        return here is not None and here.broken_off

    async def gone(self) -> None:
        """Come back when the caller has hung up."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    # --- the query ---

    @property
    def query(self) -> dict[str, list[str]]:
        """The query's values by name; one that the route does not know is refused."""
        if self._query is None:
            self._query = self._read_query()
        return self._query

    def one(self, name: str) -> str | None:
        """A value that may be given once."""
        values = self.query.get(name, [])
        if len(values) > 1:
            raise InvalidValue(name, ", ".join(values), "given once")
        return values[0] if values else None

    def many(self, name: str) -> tuple[str, ...]:
        """Values that may be repeated, or separated by commas."""
        return tuple(part for value in self.query.get(name, []) for part in value.split(",") if part)

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within bounds."""
        text = self.one(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
            raise InvalidValue(name, text, f"a whole number between {least} and {most}")
        return int(text)

    def wait(self) -> float:
        """How many seconds the caller wants to wait."""
        text = self.one("wait")
        return 0.0 if text is None else read_wait(text)

    def _read_query(self) -> dict[str, list[str]]:
        raw: bytes = self.scope["query_string"]
        found: dict[str, list[str]] = {}
        try:
            pairs = parse_qsl(
                raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100
            )
        except ValueError:
            raise InvalidValue("query", raw.decode("latin-1"), "text in UTF-8, percent-encoded") from None
        for name, value in pairs:
            if name not in self.route.query:
                raise InvalidValue("query", name, _one_of(self.route.query))
            if "\0" in value:
                raise InvalidValue(name, value, "without NUL")
            found.setdefault(name, []).append(value)
        return found

    # --- what is done ---

    async def run(self, verb: Callable[..., T], /, *args: Any, **options: Any) -> T:
        """Call something that waits for the store, on a thread."""
        return await self.parts.run(verb, *args, **options)

    def ops(self, form: msgspec.Struct) -> Ops:
        """The operator's verbs in the caller's name; one job meets the same request once."""
        return self.parts.ops(self.identity, self._request_id(form))

    def _request_id(self, form: msgspec.Struct) -> str:
        """What tells this request from any other: who asks for what, by which key."""
        key = self.header(b"idempotency-key")
        if key is None:
            return ""
        if not key:
            raise InvalidValue("Idempotency-Key", key, "at least one character")
        told = msgspec.json.encode([self.identity.name, self.route.name, key, form])
        return sha256(told).hexdigest()[:_REQUEST_ID]

    async def job(self) -> Job:
        """The job that the path names, by id or by a key of the caller's; others' jobs are not there."""
        name = self.path["id"]
        job = await self.run(self.parts.store.get, name, caller=self.identity.name)
        if job is None or not self.identity.sees(job):
            raise JobNotFound(name)
        return job


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


class HungUp(Exception):
    """The caller is gone; nobody is there to be answered."""


def decode(kind: type[S], data: bytes) -> S:
    """A document of that form; InvalidValue names what is wrong with it."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise problems.invalid(error, data) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidValue("body", data.decode(errors="replace"), f"valid JSON ({error})") from None


def read_wait(value: str | float) -> float:
    """How many seconds somebody wants to wait, at most a minute."""
    seconds = parse_duration(value, "wait").total_seconds()
    if seconds > _LONGEST_WAIT:
        raise InvalidValue("wait", value, f"at most {_LONGEST_WAIT:g}s")
    return seconds


def _too_large(most: int) -> Problem:
    detail = f"the body must be at most {most} bytes"
    return Problem(413, "too-large", detail, headers={b"connection": b"close"})


def _one_of(names: Mapping[str, str]) -> str:
    return "one of " + ", ".join(names) if names else "left out: this route takes none"
