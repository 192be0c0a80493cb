"""How are requests sent by so many connections at once, and how long does each take?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import cast

import msgspec

_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


class Load(msgspec.Struct, frozen=True):
    """What a load amounted to: answers, seconds, and each answer's milliseconds."""

    count: int
    seconds: float
    delays: list[float]
    refused: int

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.count / self.seconds


class _Line(asyncio.Protocol):
    """One connection, which sends the next request when it has the answer to the last."""

    def __init__(self, next_one: Callable[[], bytes | None], told: Callable[[float, bytes], None]) -> None:
        self._next = next_one
        self._told = told
        self._read = b""
        self._sent = 0.0
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A stream's, of whichever loop.
        self._transport = cast(asyncio.Transport, transport)

    def send(self, due: float | None = None) -> None:
        """Send one more, if there is one; what it waits counts from when it was due."""
        data = self._next()
        if data is None:
            self._transport.close()
            return
        self._sent = perf_counter() if due is None else due
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, end, rest = self._read.partition(_END)
        if not end:
            return
        place = head.lower().find(_LENGTH)
        length = int(head[place + len(_LENGTH) :].partition(b"\r\n")[0])
        if len(rest) < length:
            return
        self._read = b""
        self._told((perf_counter() - self._sent) * 1000, head[9:12])
        self.answered()

    def answered(self) -> None:
        """As fast as it goes."""
        self.send()

    def connection_lost(self, _: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


class _Paced(_Line):
    """One that waits for its turn."""

    def answered(self) -> None:
        free.append(self)


free: list[_Paced] = []


async def as_fast_as_it_goes(port: int, make: Callable[[], bytes], *, lines: int, seconds: float) -> Load:
    """Each connection sends its next request when it has its answer."""
    delays: list[float] = []
    refused = 0
    end = perf_counter() + seconds

    def told(delay: float, status: bytes) -> None:
        nonlocal refused
        delays.append(delay)
        refused += not status.startswith(b"2")

    def next_one() -> bytes | None:
        return make() if perf_counter() < end else None

    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda: _Line(next_one, told), "127.0.0.1", port) for _ in range(lines)
    ]
    begun = perf_counter()
    for _, line in made:
        line.send()
    await asyncio.gather(*(line.closed for _, line in made))
    return Load(len(delays), perf_counter() - begun, delays, refused)


async def paced(port: int, make: Callable[[], bytes], *, lines: int, seconds: float, rate: float) -> Load:
    """So many a second, at even distances; the wait for a free connection counts as well."""
    delays: list[float] = []
    refused = 0

    def told(delay: float, status: bytes) -> None:
        nonlocal refused
        delays.append(delay)
        refused += not status.startswith(b"2")

    loop = asyncio.get_running_loop()
    free.clear()
    made = [await loop.create_connection(lambda: _Paced(make, told), "127.0.0.1", port) for _ in range(lines)]
    free.extend(line for _, line in made)
    begun = perf_counter()
    sent = 0
    while (now := perf_counter() - begun) < seconds:
        while sent < now * rate and free:
            free.pop().send(begun + sent / rate)
            sent += 1
        await asyncio.sleep(0.0005)
    while len(free) < lines:  # noqa: ASYNC110 - the loop is idle but for these answers
        await asyncio.sleep(0.001)
    for transport, _ in made:
        transport.close()
    return Load(len(delays), perf_counter() - begun, delays, refused)


def request(path: str, body: bytes) -> bytes:
    """A whole POST."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
