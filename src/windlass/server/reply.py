"""What goes back to the caller?"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

import msgspec

JSON = b"application/json"
_encode = msgspec.json.Encoder().encode


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
        self.headers = headers or {}
        self.media_type = media_type
        self.stream = stream
