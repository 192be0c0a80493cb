"""What may a connection cost before it has said what it wants? Little memory, and a few seconds."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_LIMIT = 32 * 1024
HEADER_SECONDS = 10.0
# Longer than whoever reads a body waits for it: a body that nobody reads ends its connection.
BODY_SECONDS = 30.0
_REASONS = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}


class Wire(HttpToolsProtocol):
    """Uvicorn's own protocol, with bounds: on the size of headers, and on the time that a request takes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._in_headers = True
        self._in_body = False
        self._header_bytes = 0
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Whoever connects says what it wants soon."""
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._relax()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what comes before the headers are complete."""
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_body and self._late is None:
            self._late = self.loop.call_later(BODY_SECONDS, self._never_complete)
        if self._in_headers and self._header_bytes > HEADER_LIMIT:
            self._refuse(431, f"headers must be at most {HEADER_LIMIT} bytes")

    def on_message_begin(self) -> None:
        """The next request of this connection begins."""
        self._in_headers = True
        self._header_bytes = 0
        if self._late is None:
            self._await_headers()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """From here on the application sees to the limits."""
        self._in_headers = False
        self._in_body = True
        self._relax()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """All of it was sent; how long the answer takes is another matter."""
        self._in_body = False
        self._relax()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - ours is a problem, as every refusal
        """What came is no request at all."""
        self._refuse(400, "what was sent is not HTTP/1.1")

    def _await_headers(self) -> None:
        self._late = self.loop.call_later(HEADER_SECONDS, self._too_slow)

    def _relax(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_slow(self) -> None:
        self._late = None
        self._refuse(408, f"headers must be complete within {HEADER_SECONDS:g} s")

    def _never_complete(self) -> None:
        """Whether it was answered or not: what still comes on this connection is of no use to anybody."""
        self._late = None
        self.transport.close()

    def _refuse(self, status: int, detail: str) -> None:
        if self.transport.is_closing():
            return
        body = f'{{"type":"about:blank","title":"{_REASONS[status]}","status":{status},"detail":"{detail}"}}'
        self.transport.write(
            f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/problem+json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
        )
        self.transport.close()
