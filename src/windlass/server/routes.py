"""Routes and replies: what matches a request, what it needs, what the contract says of it, and the answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from windlass.job import MAX_PAYLOAD
from windlass.ops.actions import Need, Option, Parameter, parameters_of
from windlass.server.schemas import MOST_JOBS

JSON = b"application/json"
_encode = msgspec.json.Encoder().encode
# No page may frame, sniff, cache or extend what is answered here, unless the answer says otherwise.
_ALWAYS = {
    b"cache-control": b"no-store",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"content-security-policy": b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}


class Reply:
    """A status, a document (or text, or a stream), and headers."""

    __slots__ = ("body", "headers", "media_type", "status", "stream")

    def __init__(
        self,
        status: int,
        document: object = None,
        *,
        headers: Mapping[bytes, bytes] | None = None,
        media_type: bytes = JSON,
        stream: AsyncGenerator[bytes, None] | None = None,
    ) -> None:
        self.status = status
        self.body = document if isinstance(document, bytes) else _encode(document)
        self.headers: Mapping[bytes, bytes] = headers or {}
        self.media_type = media_type
        self.stream = stream

    def all_headers(self) -> list[tuple[bytes, bytes]]:
        length = {} if self.stream is not None else {b"content-length": b"%d" % len(self.body)}
        return list({b"content-type": self.media_type, **_ALWAYS, **self.headers, **length}.items())

    def header_lines(self) -> bytes:
        """The same as they are written. Most answers say nothing else of what all carry: that is ready."""
        if not _ALWAYS.keys().isdisjoint(self.headers):
            return _written(self.all_headers())
        own = _written(self.headers.items()) if self.headers else b""
        return b"content-type: %b\r\n%b%bcontent-length: %d\r\n" % (
            self.media_type,
            _ALWAYS_LINES,
            own,
            len(self.body),
        )


def _written(headers: Collection[tuple[bytes, bytes]]) -> bytes:
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    if not lines.count(b"\r") == lines.count(b"\n") == len(headers):
        raise ValueError("a header has a line break in it")
    return lines


_ALWAYS_LINES = _written(_ALWAYS.items())


Answer = Callable[..., Awaitable[Reply]]
A = TypeVar("A", bound=Answer)

# What one request takes at most as it is sent: a payload, and as much again for the words around it.
BODY_LIMIT = 2 * MAX_PAYLOAD
BATCH_LIMIT = MOST_JOBS * MAX_PAYLOAD + BODY_LIMIT
BULK_LIMIT = 64 * 2**20
# In the query of every route that names a job.
Tenant = Annotated[str | None, Option("The tenant whose key it is, where several tenants have the same one.")]
# What is about all tenants at once is not for a key that is bound to one of them.
_WHOLE = (Need.SEE, Need.WORK, Need.OPERATE, Need.ADMINISTER)
_BODY_REFUSES = (404, 409, 413, 415)


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one path."""

    method: str
    path: str
    answer: Answer
    need: Need
    # What it does, in a line.
    summary: str
    takes: type[msgspec.Struct] | None = None
    # By status.
    gives: Mapping[int, type[msgspec.Struct] | None] = {}
    query: tuple[Parameter, ...] = ()
    # What the body is: one document, or many, one a line.
    accepts: str = "application/json"
    body_limit: int = BODY_LIMIT
    # Problems that it may answer with, besides those that any route may.
    refuses: tuple[int, ...] = ()
    media_type: str = "application/json"
    # About all tenants at once: not for a key that is bound to one of them.
    whole: bool = False

    @property
    def name(self) -> str:
        """What the contract calls it."""
        return self.answer.__name__


# Every route of the API.
ROUTES: list[Route] = []


def route(
    line: str,
    summary: str,
    gives: type[msgspec.Struct] | Mapping[int, type[msgspec.Struct] | None],
    *,
    takes: type[msgspec.Struct] | None = None,
    need: Need = Need.SEE,
    **more: Any,
) -> Callable[[A], A]:
    """Declare what answers to `METHOD path`, below /api/v1 unless /path; its parameters are the query."""
    method, path = line.split(" ")
    usual = {"whole": need in _WHOLE, "refuses": () if takes is None else _BODY_REFUSES}

    def declare(answer: A) -> A:
        ROUTES.append(
            Route(
                method=method,
                path=path if path.startswith("/") else f"/api/v1/{path}",
                answer=answer,
                need=need,
                summary=summary,
                takes=takes,
                gives=gives if isinstance(gives, Mapping) else {200: gives},
                **({"query": tuple(parameters_of(answer))} | usual | more),
            )
        )
        return answer

    return declare
