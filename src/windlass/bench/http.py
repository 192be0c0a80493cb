"""Measure the HTTP server: single posts, batches and a full queue, beside a bare server in the same run.

The bare server is one Starlette route with the same shared commits and no checks of any kind. The loop, the
parser and uvicorn's settings are those of `windlass serve`. How often Python looks for garbage is left at its
default; `windlass serve` lets it look less often.

As a program, `python -m windlass.bench.http DATABASE_URL` runs the bare server and prints its port.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import cast

import msgspec
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from windlass.bench.raw import Place
from windlass.bench.run import Figure, share
from windlass.clock import uuid7
from windlass.job import NewJob
from windlass.queue import Queue
from windlass.server.group_commit import RequestGroups

# Many short turns: what a disk or a machine does meanwhile meets all of them alike.
ROUNDS = 6
PACED_ROUNDS = 4
RATES = (500, 2_000)
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
    with _serving(ours) as port, _bare(bare) as bare_port, _serving(many) as many_port:
        figures = _singles({_BARE: bare_port, _OURS: port, _MANY: many_port}, seconds, step)
        for rate in RATES:
            figures += _evenly({_BARE: bare_port, _OURS: port}, rate, seconds, step)
        step("batches")
        load = _checked(
            _run(as_fast_as_it_goes(port, lambda: _BATCH_OF, lines=4, seconds=_BATCH_TURNS * seconds))
        )
        figures.append(_rate("POST /jobs/batch, 100 each", [load.rate * _BATCH], aim="> 20000"))
        figures += _delays("POST /jobs/batch", load.delays, (None, "< 50"))[1:]
    return figures


def _singles(ports: Mapping[str, int], seconds: float, step: Callable[[str], None]) -> list[Figure]:
    """Single posts to each server in turn: a machine's speed drifts, so only neighbours can be compared."""
    rounds: dict[str, list[float]] = {name: [] for name in ports}
    for _ in range(ROUNDS):
        for name, port in ports.items():
            step(name)
            load = _run(as_fast_as_it_goes(port, lambda: _SINGLE, lines=_LINES, seconds=seconds))
            rounds[name].append(_checked(load).rate)
    return [
        _rate(_BARE, rounds[_BARE]),
        _rate(_OURS, rounds[_OURS], _BARE, rounds[_BARE], ">= 1.0"),
        _rate(_MANY, rounds[_MANY], _OURS, rounds[_OURS], ">= 0.8"),
    ]


def _evenly(ports: Mapping[str, int], rate: int, seconds: float, step: Callable[[str], None]) -> list[Figure]:
    """So many posts a second, to the bare server and to ours in turn: both meet the same disk."""
    delays: dict[str, list[float]] = {name: [] for name in ports}
    for _ in range(PACED_ROUNDS):
        for name, port in ports.items():
            step(name)
            load = _run(paced(port, lambda: _SINGLE, lines=_LINES, seconds=seconds, rate=rate))
            delays[name] += _checked(load).delays
    bare = _delays(f"bare Starlette at {rate}/s", delays[_BARE], (None, None))
    return bare + _delays(f"POST /jobs at {rate}/s", delays[_OURS], ("< 5", "< 50"), bare)


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
def _serving(url: str) -> Iterator[int]:
    words = [sys.executable, "-m", "windlass", "serve", "--port", "0", "--db", url]
    with _ended(subprocess.Popen(words, stderr=subprocess.PIPE, text=True)) as process:
        assert process.stderr is not None  # noqa: S101 - a pipe was asked for
        yield int(process.stderr.readline().rpartition("/docs")[0].rpartition(":")[2])


@contextmanager
def _bare(url: str) -> Iterator[int]:
    words = [sys.executable, "-m", "windlass.bench.http", url]
    with _ended(subprocess.Popen(words, stdout=subprocess.PIPE, text=True)) as process:
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        yield int(process.stdout.readline())


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _run(load: object) -> Load:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found: Load = runner.run(load)  # type: ignore[arg-type]
        return found


def _checked(load: Load) -> Load:
    if load.refused or not load.count:
        raise RuntimeError(f"{load.refused} of {load.count} requests were refused")
    return load


def _rate(
    name: str,
    rounds: list[float],
    beside: str | None = None,
    of: list[float] | None = None,
    aim: str | None = None,
) -> Figure:
    return Figure(
        name=name,
        unit="jobs/s",
        median=statistics.median(rounds),
        rounds=rounds,
        share_of=beside,
        share=None if of is None else share(rounds, of),
        aim=aim,
    )


def _delays(
    name: str,
    delays: list[float],
    aims: tuple[str | None, str | None],
    beside: list[Figure] | None = None,
) -> list[Figure]:
    cuts = statistics.quantiles(delays, n=100)
    return [
        Figure(
            name=f"{name}, p{percent}",
            unit="ms",
            median=cuts[percent - 1],
            rounds=[],
            share_of=None if other is None else other.name,
            share=None if other is None else cuts[percent - 1] / other.median,
            aim=aim,
        )
        for percent, aim, other in zip((50, 99), aims, beside or (None, None), strict=True)
    ]


_BARE = "bare Starlette, POST /jobs"
_OURS = "POST /jobs, 50 connections"
_MANY = "POST /jobs, many waiting"


# --- the load -----------------------------------------------------------------------------------

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


_JOB = b'{"type":"noop","payload":{"n":1,"name":"someone"}}'
_SINGLE = request("/api/v1/jobs", _JOB)
_BATCH_OF = request("/api/v1/jobs/batch", b'{"jobs":[' + b",".join([_JOB] * _BATCH) + b"]}")


# --- the bare server ----------------------------------------------------------------------------


def make(url: str) -> Starlette:
    """The application."""
    commits = RequestGroups(Queue(url))

    async def post(request: Request) -> JSONResponse:
        sent = await request.json()
        new = NewJob(id=uuid7(), type=sent["type"], payload=json.dumps(sent["payload"]).encode())
        [done] = (await commits.accept(lambda: [new])).done
        return JSONResponse({"id": done.id}, status_code=201)

    return Starlette(routes=[Route("/api/v1/jobs", post, methods=["POST"])])


def main() -> None:
    """Serve on a free port until killed."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)  # noqa: T201 - the process that started it reads the port
    config = uvicorn.Config(
        make(sys.argv[1]),
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
