"""The answer to a request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping

import msgspec

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
        """Its own headers, and what every answer carries."""
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
