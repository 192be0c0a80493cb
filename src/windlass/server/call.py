"""A request, as its handler sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from windlass.checks import Problems
from windlass.duration import parse_duration
from windlass.errors import AmbiguousKey, JobNotFound, must_be
from windlass.job import Job
from windlass.ops.actions import Need
from windlass.server import problems
from windlass.server.connection import connection_of
from windlass.server.forms import MOST_PROBLEMS, decode
from windlass.server.limits import Doing
from windlass.server.problems import CLOSE, Problem

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
# A body must come within this time, or at this many bytes a second.
_BODY_SECONDS = 20.0
# The same for a caller that has shown no key.
_STRANGERS_BODY_SECONDS = 5.0
_BODY_RATE = 2**20
_LONGEST_WAIT = 60.0
_REQUEST_ID = 32
# The bodies of all requests together, before they are answered.
MOST_BODY_BYTES = 256 * 2**20


class Call:
    """One request: what was asked, by whom, and the parts of the server that answer."""

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
        self.connection = connection_of(scope)
        self._receive = receive
        # How many bytes of its body have been read.
        self.size = 0
        self._doing: Doing | None = None
        self._headers: dict[bytes, bytes] | None = None

    # --- what was sent ---

    def header(self, name: bytes) -> str | None:
        """A header's value, in UTF-8 as everything else, or else byte by byte; None if it was not sent."""
        if self._headers is None:
            # From the back: of two, the first counts.
            self._headers = dict(reversed(self.scope["headers"]))
        value = self._headers.get(name)
        if value is None:
            return None
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.decode("latin-1")

    @property
    def address(self) -> str:
        return self.parts.proxies.address(self.scope)

    async def body(self, kind: type[S], problems: Problems | None = None) -> S:
        """The body, decoded strictly; an empty one means `{}`. With `problems` as `decode` says."""
        data = await self._read()
        if data:
            self._check_content(_JSON)
        return decode(kind, data or b"{}", problems)

    async def lines(
        self, kind: type[S], refused: list[Problem], *, most: int, longest: int
    ) -> list[S | None]:
        """The body as documents, one a line; each is decoded as it comes. A refusal names the line.

        A document of which something was `refused` is without that; None: it could not be read.
        """
        self._check_content(NDJSON)
        async with self._receiving():
            return await self._read_lines(kind, refused, most, longest)

    async def _read_lines(
        self, kind: type[S], refused: list[Problem], most: int, longest: int
    ) -> list[S | None]:
        found: list[S | None] = []
        rest, more = b"", True
        while more and len(refused) < MOST_PROBLEMS:
            piece, more = await self._piece()
            *lines, rest = (rest + piece).split(b"\n")
            if not more and rest.strip():
                lines.append(rest)
            for line in lines:
                index, wrong = len(found), Problems()
                if len(line) > longest:
                    raise _too_large(f"line {index + 1}", longest, index=index)
                with wrong:
                    found.append(decode(kind, line, wrong))
                if wrong.found:
                    refused += [problems.of(each, index=index, line=True) for each in wrong.found]
                    found[index:] = found[index:] or [None]
            if len(found) + bool(more and rest.strip()) > most:
                raise _too_large("the body", most, "lines")
            if len(rest) > longest:
                raise _too_large(f"line {len(found) + 1}", longest, index=len(found))
        if not found:
            raise must_be("body", "nothing", f"1 to {most} lines, a job each")
        return found

    async def _piece(self) -> tuple[bytes, bool]:
        """The next piece of the body, and whether more of it comes."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise HungUp
        piece: bytes = message.get("body", b"")
        self._hold(len(piece))
        return piece, message.get("more_body", False)

    def _check_content(self, kind: str) -> None:
        content = self.header(b"content-type") or ""
        if content != kind and content.partition(";")[0].strip().lower() != kind:
            raise Problem(415, "not-json", f"Content-Type must be {kind}, got {content or 'none'!r}")

    async def _read(self) -> bytes:
        if self.connection.complete:
            self._check_length()
            data, _ = await self._piece()
            self.begin(Doing.WORKING)
        else:
            async with self._receiving():
                data, more = await self._piece()
                pieces = [data]
                while more:
                    piece, more = await self._piece()
                    pieces.append(piece)
                data = b"".join(pieces)
        if not data and self.header(b"upgrade") is not None:
            # The body of a request that asks for another protocol never comes: it must not seem to be empty.
            sent = self.header(b"content-length") not in (None, "0")
            if sent or self.header(b"transfer-encoding") is not None:
                detail = "there is no other protocol than HTTP/1.1 here: send a body without Upgrade"
                raise Problem(400, "no-upgrade", detail, headers=CLOSE)
        return data

    def _check_length(self) -> None:
        length = self.header(b"content-length")
        if length is not None and length.isdecimal() and int(length) > self.route.body_limit:
            raise _too_large("the body", self.route.body_limit)

    @asynccontextmanager
    async def _receiving(self) -> AsyncIterator[None]:
        """Within the block the body is read, within a time: a caller that sends too slowly is cut off."""
        self._check_length()
        self.begin(Doing.SENDING)
        usual = _STRANGERS_BODY_SECONDS if self.route.need is Need.NOTHING else _BODY_SECONDS
        seconds = max(usual, self.route.body_limit / _BODY_RATE)
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            detail = f"the body was not complete within {seconds:g} s"
            raise Problem(408, "too-slow", detail, headers=CLOSE) from None
        self.begin(Doing.WORKING)

    def _hold(self, size: int) -> None:
        """Count a piece of the body: too much of this one, or of those of all requests, is refused."""
        if self.size + size > self.route.body_limit:
            raise _too_large("the body", self.route.body_limit)
        self.size += size
        self.parts.body_bytes += size
        if self.parts.body_bytes > MOST_BODY_BYTES:
            raise Problem(503, "too-busy", "too much is being sent at once", again=1, headers=CLOSE)

    def let_go(self) -> None:
        """The request is answered: it takes no memory and no place any more."""
        self.parts.body_bytes -= self.size
        self.size = 0
        if self._doing is not None:
            self.parts.requests.leave(self._doing, self.identity.key_id)
            self._doing = None

    # --- what it does, and whether its caller is still there ---

    def begin(self, doing: Doing) -> None:
        """Count it as that from now on, or refuse it. What needs no key is counted by itself."""
        before, requests, key = self._doing, self.parts.requests, self.identity.key_id
        if doing is before or before is Doing.OPEN:
            return
        requests.enter(doing, key)
        self._doing = doing
        if before is not None:
            requests.leave(before, key)

    @contextmanager
    def waiting(self, doing: Doing, wake: Callable[[], None]) -> Iterator[None]:
        """It only waits within the block; `wake` is called when the caller hangs up or sends more."""
        self.begin(doing)
        try:
            with self.connection.watched(wake):
                yield
        finally:
            self.parts.requests.leave(doing, self.identity.key_id)
            self.parts.requests.add(Doing.WORKING, self.identity.key_id)
            self._doing = Doing.WORKING

    def is_gone(self) -> bool:
        """Whether the caller has hung up, as far as that is known. May be asked on any thread."""
        return self.connection.closed

    def is_interrupted(self) -> bool:
        """Whether the caller has hung up, or has sent its next request already."""
        return self.connection.closed or self.connection.followed

    # --- what is done ---

    async def run(self, verb: Callable[..., T], /, *args: Any, **options: Any) -> T:
        """Call something that waits for the store, on a thread."""
        async with self.parts.turns.turn(self.identity.key_id):
            return await self.parts.run_for(self.is_gone, verb, *args, **options)

    async def run_long(self, verb: Callable[..., T], /, *args: Any, **options: Any) -> T:
        """The same for what keeps a core busy: of these an API key runs two at once, and the others wait."""
        async with self.parts.long_turns.turn(self.identity.key_id):
            return await self.run(verb, *args, **options)

    def ops(self, form: msgspec.Struct | None) -> Ops:
        """The operator's verbs in the caller's name; one job meets the same request once."""
        return self.parts.ops(self.identity, "" if form is None else self._request_id(form))

    def request_key(self) -> str | None:
        """The request's Idempotency-Key, if it has one; two different ones are refused."""
        sent = {value for name, value in self.scope["headers"] if name == b"idempotency-key"}
        if len(sent) > 1:
            raise must_be("Idempotency-Key", f"{len(sent)} different values", "one value")
        key = self.header(b"idempotency-key")
        if key == "":
            raise must_be("Idempotency-Key", key, "at least one character")
        return key

    def _request_id(self, form: msgspec.Struct) -> str:
        """An id of this request: made of the caller, the action and its Idempotency-Key."""
        key = self.request_key()
        if key is None:
            return ""
        request = msgspec.json.encode([self.identity.name, self.route.name, key, form])
        return sha256(request).hexdigest()[:_REQUEST_ID]

    async def job(self, tenant: str | None) -> Job:
        """The job that the path names, by id or key; jobs that the caller may not see are not there."""
        name, who = self.path["id"], self.identity
        tenant = who.tenant if tenant is None else tenant
        caller = None if who.may(Need.SEE) else who.name
        found = await self.run(self.parts.store.named, name, caller=caller, tenant=tenant)
        jobs = [job for job in found if who.sees(job)]
        if not jobs:
            raise JobNotFound(name)
        if len(jobs) > 1:
            raise AmbiguousKey(name, jobs)
        return jobs[0]


class HungUp(Exception):
    """The caller has hung up: no answer can be sent."""


def read_wait(value: str | float, field: str = "wait") -> float:
    """How many seconds a caller wants to wait, at most a minute."""
    seconds = parse_duration(value, field).total_seconds()
    if seconds > _LONGEST_WAIT:
        raise must_be(field, value, f"at most {_LONGEST_WAIT:g}s")
    return seconds


def _too_large(what: str, most: int, unit: str = "bytes", **facts: Any) -> Problem:
    return Problem(413, "too-large", f"{what} must be at most {most} {unit}", headers=CLOSE, **facts)
