"""What may a connection cost before it has said what it wants? Little memory, and a few seconds."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from windlass.server.reply import Reply

if sys.platform != "win32":
    import resource

HEADER_LIMIT = 32 * 1024
HEADER_SECONDS = 10.0
# Longer than whoever reads a body waits for it: a body that nobody reads ends its connection.
BODY_SECONDS = 30.0
# Who has not read so many bytes of an answer within this time is cut off.
READ_SECONDS = 20.0
_LEAST_READ = 16 * 1024
# Answers that nobody has read yet, of all connections together.
_MOST_UNREAD = 256 * 2**20
# Connections that have not shown a valid key; the oldest makes room for the newest.
MOST_STRANGERS = 1_000
# Files that are not connections.
_OTHER_FILES = 200
_REASONS = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}


class Exchange:
    """A request and its answer, for whoever knows that both travel on our own wire."""

    __slots__ = ("_cycle", "_wire")

    def __init__(self, cycle: RequestResponseCycle, wire: Wire) -> None:
        self._cycle = cycle
        self._wire = wire

    def trust(self) -> None:
        """Its caller has shown a valid key."""
        if self._wire.stranger:
            self._wire.stranger = False
            self._wire.all.trust(self._wire)

    @contextmanager
    def watched(self, wake: Callable[[], None]) -> Iterator[None]:
        """Within the block, `wake` is called when the caller hangs up, or sends its next request already."""
        watchers = self._wire.watchers
        watchers.append(wake)
        if self.broken_off or self.followed:
            wake()
        try:
            yield
        finally:
            watchers.remove(wake)

    def body(self) -> bytes | None:
        """The body, if all of it has come, which is so of nearly all when they are asked about.

        It is handed over: the cycle refers to itself through us, and may stay until garbage is looked for.
        """
        if self._cycle.more_body:
            return None
        whole, self._cycle.body = bytes(self._cycle.body), bytearray()
        return whole

    @property
    def broken_off(self) -> bool:
        """Whether the caller has hung up, as far as that is known by now. May be asked on any thread."""
        return bool(self._cycle.disconnected) or self._cycle.transport.is_closing()

    @property
    def followed(self) -> bool:
        """Whether the caller has sent another request, without waiting for this one's answer."""
        return bool(self._wire.pipeline)

    @property
    def ready(self) -> bool:
        """Whether an answer can be sent without waiting for a slow reader."""
        return not self._cycle.flow.write_paused

    def answer(self, reply: Reply, *, whole: bool) -> None:
        """The answer in one write, with its body or without.

        Uvicorn's own way is made for answers in parts, and takes longer.
        """
        cycle = self._cycle
        if cycle.disconnected:
            return
        if cycle.transport.is_closing():
            # Of several requests of a connection that has ended, only the last one was told so.
            cycle.response_started = cycle.response_complete = True
            return
        parts = [STATUS_LINE[reply.status], *[b"%b: %b\r\n" % each for each in cycle.default_headers]]
        parts.append(reply.header_lines())
        if reply.headers.get(b"connection") == b"close":
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        if whole:
            parts.append(reply.body)
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.transport.write(b"".join(parts))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()


def exchange(scope: Mapping[str, Any]) -> Exchange:
    """The exchange behind a request."""
    found: Exchange = scope[_EXCHANGE]
    return found


_EXCHANGE = "windlass.exchange"


class Wire(HttpToolsProtocol):
    """Uvicorn's own protocol, with bounds: on the size of headers, and on the time that a request takes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        app: Any = self.app
        self.all: Connections = app.parts.connections
        # Whether it has not shown a valid key yet.
        self.stranger = True
        # Called when the caller hangs up, or sends the next request before the last one is answered.
        self.watchers: list[Callable[[], None]] = []
        # What was left to be read, and since when no less of it was; None: nothing was.
        self._unread: tuple[int, float] | None = None
        self._in_headers = True
        self._in_body = False
        self._header_bytes = 0
        # Nothing more is heard on this connection.
        self._deaf = False
        self._late: asyncio.TimerHandle | None = None
        # While what came is being read, and a request that has begun in it.
        self._reading = False
        self._begun: RequestResponseCycle | None = None
        # When the last answer was given, while no request has begun since; and the clock that looks at it.
        self._idle_since: float | None = None
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Whoever connects says what it wants soon."""
        super().connection_made(transport)
        self._await_headers()
        self.all.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._relax()
        if self._idle is not None:
            self._idle.cancel()
        self.all.closed(self)
        super().connection_lost(exc)
        self._wake_watchers()

    def _wake_watchers(self) -> None:
        for wake in list(self.watchers):
            wake()

    def unread(self, now: float) -> int:
        """How many bytes of answers wait to be read. Whoever reads too little of them is cut off."""
        left = self.transport.get_write_buffer_size()
        if not left:
            self._unread = None
        elif self._unread is None or left <= self._unread[0] - _LEAST_READ:
            self._unread = left, now
        elif now - self._unread[1] >= READ_SECONDS:
            self.transport.abort()
            return 0
        return left

    def resume_writing(self) -> None:
        """Most of what waited has been read."""
        self._unread = None
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Count what comes before the headers are complete."""
        if self._deaf:
            return
        if self._in_headers:
            end = data.find(b"\r\n\r\n")
            self._header_bytes += len(data) if end < 0 else end
            if self._header_bytes > HEADER_LIMIT:
                self._refuse(431, f"headers must be at most {HEADER_LIMIT} bytes")
                return
        self._reading = True
        super().data_received(data)
        self._reading = False
        if self._begun is not None:
            self._start(self._begun)
        # A request that came whole, as most do, needs no clock.
        if self._late is None and self._in_body:
            self._late = self.loop.call_later(BODY_SECONDS, self._never_complete)
        elif self._late is None and self._in_headers:
            self._await_headers()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Not before all that came is read: a request that came whole may need no task."""
        if self._reading:
            self._begun = cycle
        else:
            super()._start_asgi_task(cycle, app)

    def _start(self, cycle: RequestResponseCycle) -> None:
        self._begun = None
        app: Any = self.app
        if cycle.more_body or cycle.flow.write_paused or not app.at_once(cycle.scope):
            super()._start_asgi_task(cycle, app)

    def on_message_begin(self) -> None:
        """The next request of this connection begins."""
        self._in_headers = True
        self._header_bytes = 0
        self._idle_since = None
        self.all.resting.pop(self, None)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """From here on the application sees to the limits."""
        self._in_headers = False
        self._in_body = True
        # The one before may have been answered after this one began.
        self._idle_since = None
        self._relax()
        super().on_headers_complete()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope[_EXCHANGE] = Exchange(self.cycle, self)
        if self.pipeline:
            self._wake_watchers()
        if self.parser.should_upgrade():
            # The parser reads no body of such a request: what follows must not be taken for the next one.
            self.cycle.keep_alive = False
            self._deaf = True

    def on_message_complete(self) -> None:
        """All of it was sent; how long the answer takes is another matter."""
        self._in_body = False
        self._relax()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The next request may come.

        Uvicorn sets a clock after each answer and stops it when something comes. Ours runs on, and looks when
        it is time: that costs a request nothing.
        """
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._idle_since = self.loop.time()
        if not self.stranger:
            self.all.resting[self] = None
        if self._idle is None:
            self._idle = self.loop.call_later(self.timeout_keep_alive, self._look_whether_idle)

    def _unset_keepalive_if_required(self) -> None:
        """Something came; only a request ends the rest: not a line break, nor what is left of a body."""

    def _look_whether_idle(self) -> None:
        self._idle = None
        if self._idle_since is None:
            # The next answer sets the clock again.
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._idle = self.loop.call_later(left, self._look_whether_idle)
        else:
            self.timeout_keep_alive_handler()

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


class Connections:
    """All open connections of a server: who has not shown a key, and who rests between two requests.

    There is always room for one more: for a stranger the oldest stranger goes, and when the process can open
    no more files, whoever has rested longest.
    """

    def __init__(self) -> None:
        self._all: set[Wire] = set()
        # Dictionaries for their order: the oldest first.
        self._strangers: dict[Wire, None] = {}
        self.resting: dict[Wire, None] = {}
        self.most = max(_most_files() - _OTHER_FILES, 10)
        self.most_strangers = min(MOST_STRANGERS, self.most // 2)

    def __len__(self) -> int:
        return len(self._all)

    def opened(self, wire: Wire) -> None:
        """Count a new connection, and make room for it."""
        self._all.add(wire)
        self._strangers[wire] = None
        if len(self._strangers) > self.most_strangers:
            self._end_first(self._strangers)
        elif len(self._all) > self.most:
            self._end_first(self.resting or self._strangers)

    def trust(self, wire: Wire) -> None:
        """It has shown a valid key."""
        self._strangers.pop(wire, None)

    def closed(self, wire: Wire) -> None:
        """Forget a connection."""
        self._all.discard(wire)
        self._strangers.pop(wire, None)
        self.resting.pop(wire, None)

    def sweep(self, now: float) -> None:
        """Cut off who does not read its answers; if all leave too much unread, also those with most."""
        unread = {wire: wire.unread(now) for wire in list(self._all)}
        total = sum(unread.values())
        for wire in sorted(unread, key=unread.__getitem__, reverse=True):
            if total <= _MOST_UNREAD:
                return
            total -= unread[wire]
            wire.transport.abort()

    def _end_first(self, wires: dict[Wire, None]) -> None:
        first = next(iter(wires))
        self.closed(first)
        first.transport.abort()


def _most_files() -> int:
    """How many files this process may open."""
    if sys.platform == "win32":
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def open_more_files() -> None:
    """Let this process open as many files as the system allows it, within reason."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


_ENOUGH_FILES = 65_536
