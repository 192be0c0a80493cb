"""HTTP connections, with limits on what a caller may cost the server before and after it is known.

Uvicorn reads and answers requests. It has no limit on the size of headers, on the time a request takes to
arrive, or on answers that are not read, and it does not notice a caller that hangs up while its request
waits. `Connection` adds these. It subclasses a class of uvicorn that is not public: see docs/decisions/018.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from windlass.server.routes import Reply

if TYPE_CHECKING:
    from starlette.types import Scope, Send

if sys.platform != "win32":
    import resource

HEADER_LIMIT = 32 * 1024
HEADER_SECONDS = 10.0
# Longer than a handler waits for a body: a body that no handler reads closes its connection.
BODY_SECONDS = 30.0
# A caller that has not read this many bytes of an answer within this time is cut off.
READ_SECONDS = 20.0
_LEAST_READ = 16 * 1024
# Answers that have not been read yet, of all connections together.
_MOST_UNREAD = 128 * 2**20
# Connections that have not shown a valid key; the oldest makes room for the newest.
MOST_STRANGERS = 1_000
# Open files that are not connections.
_OTHER_FILES = 200
_ENOUGH_FILES = 65_536
_REASONS = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}
_KEY = "windlass.connection"


def connection_of(scope: Scope) -> Connection:
    """The connection that a request came on."""
    found: Connection = scope[_KEY]
    return found


class Connection(HttpToolsProtocol):
    """Uvicorn's protocol, with limits on the size of headers and on the time that a request takes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        app: Any = self.app
        self._all: Connections = app.parts.connections
        # Whether it has not shown a valid key yet.
        self._stranger = True
        # Called when the caller hangs up, or sends the next request before the last one is answered.
        self._watchers: list[Callable[[], None]] = []
        # How much was left to be read, and since when it has not become less; None: nothing.
        self._unread: tuple[int, float] | None = None
        self._in_headers = True
        self._in_body = False
        self._header_bytes = 0
        # Nothing more is read on this connection.
        self._deaf = False
        self._late: asyncio.TimerHandle | None = None
        # While the parser reads what came.
        self._parsing = False

    # --- for the request that is being answered ---

    def trust(self) -> None:
        if self._stranger:
            self._stranger = False
            self._all.strangers.pop(self, None)

    @contextmanager
    def watched(self, wake: Callable[[], None]) -> Iterator[None]:
        """Within the block, `wake` is called when the caller hangs up, or sends its next request already."""
        self._watchers.append(wake)
        if self.closed or self.followed:
            wake()
        try:
            yield
        finally:
            self._watchers.remove(wake)

    @property
    def closed(self) -> bool:
        """Whether the caller has hung up, as far as that is known by now. May be asked on any thread."""
        return self.transport.is_closing()

    @property
    def followed(self) -> bool:
        """Whether the caller has sent another request, without waiting for this one's answer."""
        return bool(self.pipeline)

    @property
    def complete(self) -> bool:
        """Whether the whole request has come. The one before a next one has."""
        return not self._in_body or self.followed

    def answer(self, send: Send, reply: Reply) -> bool:
        """Send a whole answer in one write, the quick way; False if the caller reads too slowly for that."""
        if self.flow.write_paused:
            return False
        # What knows the state of this answer; `self.cycle` may be that of a later request.
        cycle: RequestResponseCycle = send.__self__  # type: ignore[attr-defined]
        parts = [STATUS_LINE[reply.status], *[b"%b: %b\r\n" % each for each in cycle.default_headers]]
        parts.append(reply.header_lines())
        if reply.headers.get(b"connection") == b"close":
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        if cycle.scope["method"] != "HEAD":
            parts.append(reply.body)
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        self.transport.write(b"".join(parts))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    def unread(self, now: float) -> int:
        """How many bytes of answers wait to be read. A caller that reads too little of them is cut off."""
        left = self.transport.get_write_buffer_size()
        if not left:
            self._unread = None
        elif self._unread is None or left <= self._unread[0] - _LEAST_READ:
            self._unread = left, now
        elif now - self._unread[1] >= READ_SECONDS:
            self.transport.abort()
            return 0
        return left

    # --- what comes on the connection ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_headers()
        self._all.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        self._all.closed(self)
        super().connection_lost(exc)
        self._wake_watchers()

    def resume_writing(self) -> None:
        self._unread = None
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._in_headers:
            end = data.find(b"\r\n\r\n")
            self._header_bytes += len(data) if end < 0 else end
            if self._header_bytes > HEADER_LIMIT:
                self._refuse(431, f"headers must be at most {HEADER_LIMIT} bytes")
                return
        self._parsing = True
        super().data_received(data)
        self._parsing = False
        # A request that came whole, as most do, needs no clock.
        if self._late is None and self._in_body:
            self._late = self.loop.call_later(BODY_SECONDS, self._never_complete)
        elif self._late is None and self._in_headers:
            self._await_headers()

    def _unset_keepalive_if_required(self) -> None:
        """Only a request ends the idle time: not a line break, nor the rest of a body that was not read."""
        if not self._parsing:
            super()._unset_keepalive_if_required()

    def on_message_begin(self) -> None:
        self._in_headers = True
        self._header_bytes = 0
        self._all.resting.pop(self, None)
        super()._unset_keepalive_if_required()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._in_body = True
        self._stop_clock()
        # The one before may have been answered after this one began.
        super()._unset_keepalive_if_required()
        self._all.resting.pop(self, None)
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope[_KEY] = self
        super().on_headers_complete()
        if self.pipeline:
            self._wake_watchers()
        if self.parser.should_upgrade():
            # The parser reads no body of such a request: what follows must not be taken for the next one.
            self.cycle.keep_alive = False
            self._deaf = True

    def on_message_complete(self) -> None:
        self._in_body = False
        self._stop_clock()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        # Asked before the next one, if it is here already, begins.
        rests = not self._stranger and not self.followed
        super().on_response_complete()
        if rests and not self.transport.is_closing():
            self._all.resting[self] = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - ours is a problem, as every refusal
        self._refuse(400, "what was sent is not HTTP/1.1")

    def _wake_watchers(self) -> None:
        for wake in list(self._watchers):
            wake()

    def _await_headers(self) -> None:
        self._late = self.loop.call_later(HEADER_SECONDS, self._too_slow)

    def _stop_clock(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_slow(self) -> None:
        self._late = None
        self._refuse(408, f"headers must be complete within {HEADER_SECONDS:g} s")

    def _never_complete(self) -> None:
        """Whether or not it was answered: what still comes on this connection is of no use."""
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
    """All open connections of a server: those that have shown no key, and those between two requests.

    There is always room for one more: for a stranger the oldest stranger is closed, and when the process can
    open no more files, the connection that has rested longest.
    """

    def __init__(self) -> None:
        self._all: set[Connection] = set()
        # Dictionaries for their order: the oldest first.
        self.strangers: dict[Connection, None] = {}
        self.resting: dict[Connection, None] = {}
        self.most = max(_most_files() - _OTHER_FILES, 10)
        self.most_strangers = min(MOST_STRANGERS, self.most // 2)

    def opened(self, connection: Connection) -> None:
        self._all.add(connection)
        self.strangers[connection] = None
        if len(self.strangers) > self.most_strangers:
            self._end_first(self.strangers)
        elif len(self._all) > self.most:
            self._end_first(self.resting or self.strangers)

    def closed(self, connection: Connection) -> None:
        self._all.discard(connection)
        self.strangers.pop(connection, None)
        self.resting.pop(connection, None)

    def sweep(self, now: float) -> None:
        """Cut off callers that do not read their answers; if too much is unread in all, those with most."""
        unread = {each: each.unread(now) for each in list(self._all)}
        total = sum(unread.values())
        for each in sorted(unread, key=unread.__getitem__, reverse=True):
            if total <= _MOST_UNREAD:
                return
            total -= unread[each]
            each.transport.abort()

    def _end_first(self, connections: dict[Connection, None]) -> None:
        first = next(iter(connections))
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
