"""What does a handler see of a request?"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from windlass.duration import parse_duration
from windlass.errors import AmbiguousKey, InvalidValue, JobNotFound, must_be
from windlass.job import Job
from windlass.server import problems
from windlass.server.identity import Need
from windlass.server.limits import Doing
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
NDJSON = "application/x-ndjson"
# A body that comes slower than this, or than so many bytes a second, is nobody's work.
_BODY_SECONDS = 20.0
# Of who has not shown a key.
_STRANGERS_BODY_SECONDS = 5.0
_BODY_RATE = 2**20
_LONGEST_WAIT = 60.0
_REQUEST_ID = 32
_CLOSE = {b"connection": b"close"}
_MEMBER = re.compile(rb'"([a-z_]+)"\s*:')
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
# The bodies of all requests together, before they are answered.
MOST_BODY_BYTES = 256 * 2**20


class Call:
    """One request: what was asked, by whom, and the parts of the server that answer."""

    __slots__ = (
        "_doing",
        "_headers",
        "_held",
        "_query",
        "_receive",
        "identity",
        "parts",
        "path",
        "route",
        "scope",
    )

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
        self._doing: Doing | None = None
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

    @property
    def address(self) -> str:
        """Where it came from."""
        return self.parts.proxies.address(self.scope)

    async def body(self, kind: type[S]) -> S:
        """The body, decoded strictly; an empty one stands for `{}`."""
        data = self._whole()
        if data is None:
            self.begin(Doing.SENDING)
            data = await self._read()
        self.begin(Doing.WORKING)
        return self._decoded(kind, data)

    def body_here(self, kind: type[S]) -> S:
        """The same of a request that is here as a whole."""
        self.begin(Doing.WORKING)
        return self._decoded(kind, self._whole() or b"")

    async def lines(self, kind: type[S], *, most: int, longest: int) -> list[S]:
        """The body as documents, one a line; each is decoded as it comes. A refusal names the line."""
        self._check_content(NDJSON)
        self.begin(Doing.SENDING)
        async with self._in_time():
            found = await self._read_lines(kind, most, longest)
        self.begin(Doing.WORKING)
        return found

    async def _read_lines(self, kind: type[S], most: int, longest: int) -> list[S]:
        found: list[S] = []
        rest = b""
        async for piece in self._pieces():
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                found.append(_line(kind, line, len(found), longest))
            if len(found) + bool(rest.strip()) > most:
                raise Problem(413, "too-large", f"the body must be at most {most} lines", headers=_CLOSE)
            if len(rest) > longest:
                raise _line_too_long(len(found), longest)
        if rest.strip():
            found.append(_line(kind, rest, len(found), longest))
        if not found:
            raise must_be("body", "nothing", f"1 to {most} lines, a job each")
        return found

    async def _pieces(self) -> AsyncIterator[bytes]:
        whole = self._whole()
        if whole is not None:
            yield whole
            return
        more = True
        while more:
            piece, more = await self._piece(self.route.body_limit)
            yield piece

    def _decoded(self, kind: type[S], data: bytes) -> S:
        if data:
            self._check_content(_JSON)
        return decode(kind, data or b"{}")

    def _check_content(self, kind: str) -> None:
        content = self.header(b"content-type") or ""
        if content != kind and content.partition(";")[0].strip().lower() != kind:
            raise Problem(415, "not-json", f"Content-Type must be {kind}, got {content or 'none'!r}")

    def _whole(self) -> bytes | None:
        """The body if all of it is here, and not more than the route takes."""
        most = self.route.body_limit
        length = self.header(b"content-length")
        if length is not None and length.isdecimal() and int(length) > most:
            raise _too_large(most)
        whole = exchange(self.scope).body()
        if whole is None:
            return None
        if not whole and self.header(b"upgrade") is not None:
            self._check_nothing_skipped(length)
        self._hold(len(whole), most)
        return whole

    async def _read(self) -> bytes:
        """At most as much as the route takes, within a time: who sends more, or too slowly, is cut off."""
        async with self._in_time():
            return await self._piece_by_piece(self.route.body_limit)

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        usual = _STRANGERS_BODY_SECONDS if self.route.need is Need.NOTHING else _BODY_SECONDS
        seconds = max(usual, self.route.body_limit / _BODY_RATE)
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            detail = f"the body was not complete within {seconds:g} s"
            raise Problem(408, "too-slow", detail, headers=_CLOSE) from None

    def _check_nothing_skipped(self, length: str | None) -> None:
        """The body of a request that asks for another protocol never comes: it must not seem to be empty."""
        if length not in (None, "0") or self.header(b"transfer-encoding") is not None:
            detail = "there is no other protocol than HTTP/1.1 here: send a body without Upgrade"
            raise Problem(400, "no-upgrade", detail, headers={b"connection": b"close"})

    async def _piece_by_piece(self, most: int) -> bytes:
        chunks: list[bytes] = []
        while True:
            chunk, more = await self._piece(most)
            chunks.append(chunk)
            if not more:
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _piece(self, most: int) -> tuple[bytes, bool]:
        """The next piece of the body, and whether more of it comes."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise HungUp
        piece: bytes = message.get("body", b"")
        self._hold(len(piece), most)
        return piece, message.get("more_body", False)

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
        """The request is answered: it takes no memory and no place any more."""
        self.parts.body_bytes -= self._held
        self._held = 0
        if self._doing is not None:
            self.parts.crowd.leave(self._doing, self.identity.key_id)
            self._doing = None

    # --- what it does, and whether its caller is still there ---

    def begin(self, doing: Doing) -> None:
        """Count it as that from now on, or refuse it. What needs no key is counted by itself."""
        before, crowd, key = self._doing, self.parts.crowd, self.identity.key_id
        if doing is before or before is Doing.OPEN:
            return
        crowd.enter(doing, key)
        self._doing = doing
        if before is not None:
            crowd.leave(before, key)

    @contextmanager
    def waiting(self, doing: Doing, wake: Callable[[], None]) -> Iterator[None]:
        """It only waits within the block; `wake` is called when the caller hangs up or wants something else.

        Then it goes on, however many others do: all it has to do is to answer.
        """
        self.begin(doing)
        try:
            with exchange(self.scope).watched(wake):
                yield
        finally:
            self.parts.crowd.leave(doing, self.identity.key_id)
            self.parts.crowd.add(Doing.WORKING, self.identity.key_id)
            self._doing = Doing.WORKING

    def is_gone(self) -> bool:
        """Whether the caller has hung up, as far as that is known. May be asked on any thread."""
        return exchange(self.scope).broken_off

    def is_interrupted(self) -> bool:
        """Whether the caller has hung up, or has sent its next request already."""
        here = exchange(self.scope)
        return here.broken_off or here.followed

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
            raise must_be(name, ", ".join(values), "given once")
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
            raise must_be(name, text, f"a whole number between {least} and {most}")
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
            raise must_be("query", raw.decode("latin-1"), "text in UTF-8, percent-encoded") from None
        for name, value in pairs:
            if name not in self.route.query:
                raise must_be("query", name, _one_of(self.route.query))
            if "\0" in value:
                raise must_be(name, value, "without NUL")
            found.setdefault(name, []).append(value)
        return found

    # --- what is done ---

    async def run(self, verb: Callable[..., T], /, *args: Any, **options: Any) -> T:
        """Call something that waits for the store, on a thread."""
        async with self.parts.turn(self.identity.key_id):
            return await self.parts.run_for(self.is_gone, verb, *args, **options)

    def ops(self, form: msgspec.Struct) -> Ops:
        """The operator's verbs in the caller's name; one job meets the same request once."""
        return self.parts.ops(self.identity, self._request_id(form))

    def request_key(self) -> str | None:
        """The request's Idempotency-Key, if it has one. Of two, nobody could say which one it is known by."""
        sent = {value for name, value in self.scope["headers"] if name == b"idempotency-key"}
        if len(sent) > 1:
            raise must_be("Idempotency-Key", f"{len(sent)} different values", "one value")
        key = self.header(b"idempotency-key")
        if key == "":
            raise must_be("Idempotency-Key", key, "at least one character")
        return key

    def _request_id(self, form: msgspec.Struct) -> str:
        """What tells this request from any other: who asks for what, by which key."""
        key = self.request_key()
        if key is None:
            return ""
        told = msgspec.json.encode([self.identity.name, self.route.name, key, form])
        return sha256(told).hexdigest()[:_REQUEST_ID]

    async def job(self) -> Job:
        """The job that the path names, by id or key; jobs that the caller may not see are not there."""
        name, who = self.path["id"], self.identity
        tenant = who.tenant if self.one("tenant") is None else self.one("tenant")
        caller = None if who.may(Need.SEE) else who.name
        found = await self.run(self.parts.store.named, name, caller=caller, tenant=tenant)
        jobs = [job for job in found if who.sees(job)]
        if not jobs:
            raise JobNotFound(name)
        if len(jobs) > 1:
            raise AmbiguousKey(name, jobs)
        return jobs[0]


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
        found = msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise problems.invalid(error, data, kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = "half a character, such as \\ud800" if _HALF.search(data) else str(error)
        raise must_be("body", data.decode(errors="replace"), f"valid JSON ({why})") from None
    names = _MEMBER.findall(data)
    if len(set(names)) < len(names):
        # Most often one of them is in the payload, or in another job.
        twin = _twin(json.loads(data, object_pairs_hook=_Members))
        if twin is not None:
            raise problems.Twice(twin)
    return found


class _Members(list[tuple[str, Any]]):
    """An object as it was sent: its members in their order, also those that stand twice."""


def _twin(value: Any, path: str = "") -> str | None:
    """The path of a member that stands twice, but in payloads, which are looked at when they are read."""
    names: set[str | int] = set()
    for name, each in value if isinstance(value, _Members) else enumerate(value):
        here = f"{path}[{name}]" if isinstance(name, int) else f"{path}.{name}".removeprefix(".")
        if name in names:
            return here
        names.add(name)
        if name != "payload" and isinstance(each, list) and (twin := _twin(each, here)) is not None:
            return twin
    return None


def _line(kind: type[S], line: bytes, index: int, longest: int) -> S:
    if len(line) > longest:
        raise _line_too_long(index, longest)
    try:
        return decode(kind, line)
    except InvalidValue as error:
        raise problems.of(error, index=index, line=True) from None


def _line_too_long(index: int, longest: int) -> Problem:
    detail = f"line {index + 1} must be at most {longest} bytes"
    return Problem(413, "too-large", detail, index=index, headers=_CLOSE)


def read_wait(value: str | float) -> float:
    """How many seconds somebody wants to wait, at most a minute."""
    seconds = parse_duration(value, "wait").total_seconds()
    if seconds > _LONGEST_WAIT:
        raise must_be("wait", value, f"at most {_LONGEST_WAIT:g}s")
    return seconds


def _too_large(most: int) -> Problem:
    detail = f"the body must be at most {most} bytes"
    return Problem(413, "too-large", detail, headers={b"connection": b"close"})


def _one_of(names: Mapping[str, str]) -> str:
    return "one of " + ", ".join(names) if names else "left out: this route takes no query parameters"
