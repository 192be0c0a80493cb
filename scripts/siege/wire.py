"""How does the siege speak HTTP? On plain sockets, so that it can also stop half-way, and costs little."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import NamedTuple

HOST = "127.0.0.1"


class Answer(NamedTuple):
    """A status, the headers in small letters, and the body."""

    status: int
    headers: dict[str, str]
    body: bytes


class Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> Line:
        """Connect."""
        return cls(*await asyncio.open_connection(HOST, port, limit=2**20))

    async def ask(self, request: bytes) -> Answer:
        """Send a request and wait for its answer."""
        self.writer.write(request)
        return await self.answer()

    async def answer(self) -> Answer:
        """The next answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (each.partition(":") for each in head[1:] if each)
        }
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(head[0].split()[1]), headers, body)

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(Exception):
            self.writer.close()


def request(
    method: str,
    path: str,
    key: str | None = None,
    document: object = None,
    *,
    body: bytes | None = None,
    length: int | None = None,
    more: str = "",
) -> bytes:
    """A request as it is sent; `length` may promise more than the body has."""
    if document is not None:
        body = json.dumps(document).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n{more}"
    if key is not None:
        head += f"Authorization: Bearer {key}\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {length or len(body)}\r\n"
    return head.encode() + b"\r\n" + (body or b"")


def post(number: int, key: str | None = None) -> bytes:
    """A good post."""
    return request("POST", "/api/v1/jobs", key, {"type": "add", "payload": {"a": number}})
