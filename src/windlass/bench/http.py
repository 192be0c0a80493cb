"""Measure the HTTP server: single posts, batches and a full queue, beside a bare server in the same run.

The bare server is one Starlette route with the same shared commits and no checks of any kind. The loop, the
parser and uvicorn's settings are those of `windlass serve`. How often Python looks for garbage is left at its
default; `windlass serve` lets it look less often.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, cast

import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from windlass.bench.raw import Place
from windlass.bench.run import Figure, delays, rate
from windlass.clock import uuid7
from windlass.job import NewJob
from windlass.queue import Queue
from windlass.server.group_commit import RequestGroups

# Many short turns: what a disk or a machine does meanwhile meets all of them alike.
_ROUNDS = 6
_PACED_ROUNDS = 4
_PACES = (500, 2_000)
_LINES = 50
_SECONDS = 2.0
_SHORTEST = 0.1
_BATCH = 100
_BATCH_TURNS = 2
_WAITING = 100_000
_DEEP = 1_000_000_000


def measure(place: Place, *, scale: float, step: Callable[[str], None]) -> list[Figure]:
    """Every figure; `step` is told what is being measured."""
    seconds = max(_SHORTEST, _SECONDS * scale)
    ours, bare = place.fresh("http_ours"), place.fresh("http_bare", beside=True)
    many = place.fresh("http_many", beside=True)
    for url in (ours, bare):
        _prepare(url)
    _prepare(many, waiting=max(1_000, round(_WAITING * scale)))
    with (
        _serving(ours, _SERVER) as port,
        _serving(bare, _BARE_SERVER) as bare_port,
        _serving(many, _SERVER) as many_port,
    ):
        figures = _singles({_BARE: bare_port, _OURS: port, _MANY: many_port}, seconds, step)
        for each in _PACES:
            figures += _evenly({_BARE: bare_port, _OURS: port}, each, seconds, step)
        step("batches")
        batches, took = _run(port, _BATCH_OF, lines=4, seconds=_BATCH_TURNS * seconds)
        figures.append(rate("POST /jobs/batch, 100 each", [batches * _BATCH], aim="> 20000"))
        figures += delays("POST /jobs/batch", took, (None, "< 50"))[1:]
    return figures


def steps() -> int:
    """How often `step` will be called."""
    return _ROUNDS * 3 + len(_PACES) * _PACED_ROUNDS * 2 + 1


def _singles(ports: Mapping[str, int], seconds: float, step: Callable[[str], None]) -> list[Figure]:
    """Single posts to each server in turn: a machine's speed drifts, so only neighbours can be compared."""
    rounds: dict[str, list[float]] = {name: [] for name in ports}
    for _ in range(_ROUNDS):
        for name, port in ports.items():
            step(name)
            rounds[name].append(_run(port, _SINGLE, lines=_LINES, seconds=seconds)[0])
    return [
        rate(_BARE, rounds[_BARE]),
        rate(_OURS, rounds[_OURS], _BARE, rounds[_BARE], ">= 1.0"),
        rate(_MANY, rounds[_MANY], _OURS, rounds[_OURS], ">= 0.8"),
    ]


def _evenly(ports: Mapping[str, int], pace: int, seconds: float, step: Callable[[str], None]) -> list[Figure]:
    """So many posts a second, to the bare server and to ours in turn: both meet the same disk."""
    found: dict[str, list[float]] = {name: [] for name in ports}
    for _ in range(_PACED_ROUNDS):
        for name, port in ports.items():
            step(name)
            found[name] += _run(port, _SINGLE, lines=_LINES, seconds=seconds, rate=pace)[1]
    bare = delays(f"bare Starlette at {pace}/s", found[_BARE], (None, None))
    return bare + delays(f"POST /jobs at {pace}/s", found[_OURS], ("< 5", "< 50"), bare)


def _prepare(url: str, waiting: int = 0) -> None:
    with Queue(url) as queue:

        @queue.job
        def noop(n: int, name: str) -> None:
            """Nothing."""

        queue.publish()
        # What is measured would soon be a full queue.
        for setting in ("soft_depth", "hard_depth"):
            for whose in ("*", "noop"):
                queue.store.set_setting(f"{whose}.{setting}", str(_DEEP))
        queue.enqueue_many(noop.draft(n, "someone") for n in range(waiting))


@contextmanager
def _serving(url: str, command: str) -> Iterator[int]:
    """A process that serves the store at a URL until the block ends; its port is the one that it tells of."""
    env = os.environ | {"WINDLASS_DATABASE_URL": url}
    words = [sys.executable, "-m", *command.split()]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=env)
    try:
        found = (_PORT.search(line) for line in process.stderr or ())
        yield int(next(each[1] for each in found if each is not None))
    finally:
        process.kill()
        process.communicate()


def _run(port: int, data: bytes, **how: Any) -> tuple[float, list[float]]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_load(port, data, **how))


_PORT = re.compile(r"http://[\w.]+:(\d+)")
_SERVER = "windlass serve --port 0"
_BARE_SERVER = (
    "uvicorn --factory windlass.bench.http:make --port 0 --loop uvloop --http httptools --ws none "
    "--lifespan off --no-access-log --no-server-header --no-proxy-headers --timeout-keep-alive 30"
)
_BARE = "bare Starlette, POST /jobs"
_OURS = "POST /jobs, 50 connections"
_MANY = "POST /jobs, many waiting"


# --- the load -----------------------------------------------------------------------------------

_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


class _Line(asyncio.Protocol):
    """One connection, with one request under way at a time."""

    def __init__(self, answered: Callable[[_Line, bytes], None]) -> None:
        self._answered = answered
        self._read = b""
        self.sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A stream's, of whichever loop.
        self.transport = cast(asyncio.Transport, transport)

    def send(self, data: bytes, due: float) -> None:
        """Send a request; what it waits counts from when it was due."""
        self.sent = due
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, end, rest = self._read.partition(_END)
        if not end:
            return
        place = head.lower().find(_LENGTH)
        length = int(head[place + len(_LENGTH) :].partition(b"\r\n")[0])
        if len(rest) >= length:
            self._read = b""
            self._answered(self, head[9:12])


async def _load(
    port: int, data: bytes, *, lines: int, seconds: float, rate: float | None = None
) -> tuple[float, list[float]]:
    """Answers a second, and the milliseconds of each.

    At even distances, so many a second, where the wait for a free connection counts as well; without a rate
    each connection sends its next request when it has its answer.
    """
    loop = asyncio.get_running_loop()
    delays: list[float] = []
    free: list[_Line] = []
    refused = 0

    def answered(line: _Line, status: bytes) -> None:
        nonlocal refused
        now = perf_counter()
        delays.append((now - line.sent) * 1000)
        refused += not status.startswith(b"2")
        if rate is None and now < begun + seconds:
            line.send(data, now)
        else:
            free.append(line)

    for _ in range(lines):
        _, line = await loop.create_connection(lambda: _Line(answered), "127.0.0.1", port)
        free.append(line)
    begun = perf_counter()
    sent = 0
    while (now := perf_counter() - begun) < seconds:
        while free and (rate is None or sent < now * rate):
            free.pop().send(data, begun + (now if rate is None else sent / rate))
            sent += 1
        await asyncio.sleep(0.0005 if rate else seconds)
    while len(free) < lines:  # noqa: ASYNC110 - the loop is idle but for these answers
        await asyncio.sleep(0.001)
    took = perf_counter() - begun
    for line in free:
        line.transport.close()
    if refused or not delays:
        raise RuntimeError(f"{refused} of {len(delays)} requests were refused")
    return len(delays) / took, delays


def request(path: str, body: bytes) -> bytes:
    """A whole POST."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


_JOB = b'{"type":"noop","payload":{"n":1,"name":"someone"}}'
_SINGLE = request("/api/v1/jobs", _JOB)
_BATCH_OF = request("/api/v1/jobs/batch", b'{"jobs":[' + b",".join([_JOB] * _BATCH) + b"]}")


# --- the bare server ----------------------------------------------------------------------------


def make() -> Starlette:
    """The application, on the store that the environment names."""
    commits = RequestGroups(Queue())

    async def post(request: Request) -> JSONResponse:
        sent = await request.json()
        new = NewJob(id=uuid7(), type=sent["type"], payload=json.dumps(sent["payload"]).encode())
        [done] = (await commits.accept(lambda: [new])).done
        return JSONResponse({"id": done.id}, status_code=201)

    return Starlette(routes=[Route("/api/v1/jobs", post, methods=["POST"])])
