"""How does a network between Windlass and PostgreSQL fail, at a moment that the test chooses?

A proxy on the loopback that reads along: it knows which statement is being sent, when the server has executed
it and when it has committed it. So a test says *where* a connection breaks, and never has to guess *when*.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Self
from urllib.parse import quote

from tests.waiting import PATIENCE

_CHUNK = 65536
_CANCEL = 80877102


class Where(Enum):
    """The moment at which a statement's connection breaks."""

    BEFORE = "it never reaches the server"
    EXECUTED = "the server has executed it and has not been told to commit"
    COMMITTED = "the server has committed it, and its answer is on the way"


@dataclass
class Failpoint:
    """One place at which the next connection to come by is cut."""

    marker: str
    where: Where
    left: int = 1
    # Set when a connection has come there; it is cut when the test says so.
    reached: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Wait until a connection stands there."""
        assert self.reached.wait(PATIENCE), f"nobody came to {self.marker!r}"


class Proxy:
    """Stands in front of one server's socket."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self._lock = threading.Lock()
        self._talks: list[_Talk] = []
        self._failpoints: list[Failpoint] = []
        self._silent = False
        self._closed = False
        self.delay = 0.0
        # The share of requests that are held up for a moment, and of those that cost their connection.
        self.stalled = 0.0
        self.cut = 0.0
        self.chance = random.Random(1)
        # How many were.
        self.harmed = 0
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def url(self, database: str, *more: str) -> str:
        """The way to a database through this proxy, then perhaps by other hosts."""
        hosts = ",".join(["127.0.0.1", *(quote(each, safe="") for each in more)])
        ports = ",".join([str(self.port), *("5432" for _ in more)])
        plain = "sslmode=disable&gssencmode=disable"
        return f"postgresql://postgres@/{database}?host={hosts}&port={ports}&{plain}"

    # --- what a test may do ---

    @contextlib.contextmanager
    def failing(
        self, marker: str, where: Where, *, times: int = 1, wait: bool = False
    ) -> Iterator[Failpoint]:
        """Cut the next connections that send a statement with `marker` in it.

        With `wait` they stand there until the test says `go_on`.
        """
        point = Failpoint(marker, where, times)
        if not wait:
            point.go_on.set()
        self._failpoints.append(point)
        try:
            yield point
        finally:
            point.go_on.set()
            self._failpoints.remove(point)

    def cut_all(self) -> None:
        """End every connection."""
        for talk in self._all():
            talk.end()

    def silence(self, marker: str | None = None) -> None:
        """Carry nothing more, and say nothing: on every connection, also new ones, or on those that have sent
        a statement with `marker` in it."""
        self._silent = self._silent or marker is None
        for talk in self._all():
            if marker is None or any(marker in text for text in talk.texts.values()):
                talk.flowing.clear()

    def speak(self) -> None:
        """Carry on."""
        self._silent = False
        for talk in self._all():
            talk.flowing.set()

    def close(self) -> None:
        """End everything."""
        self._closed = True
        # A close alone does not reach who waits at the door.
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        for point in self._failpoints:
            point.go_on.set()
        self.cut_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what the connections ask ---

    def failpoint(self, text: str) -> Failpoint | None:
        """Whether a statement is to fail."""
        with self._lock:
            for point in self._failpoints:
                if point.left and point.marker in text:
                    point.left -= 1
                    return point
        return None

    def weather(self) -> bool:
        """What happens to a request by chance; False if it costs its connection."""
        drawn = self.chance.random()
        self.harmed += drawn < self.cut + self.stalled
        if drawn < self.cut:
            return False
        if drawn < self.cut + self.stalled:
            # As long as it takes until a lost packet is sent again.
            threading.Event().wait(0.2)
        return True

    def _all(self) -> list[_Talk]:
        with self._lock:
            return list(self._talks)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self._target)
        except OSError:
            server.close()
            client.close()
            return
        talk = _Talk(self, client, server)
        if self._silent:
            talk.flowing.clear()
        with self._lock:
            self._talks = [each for each in self._talks if not each.ended] + [talk]
        talk.begin()
        if self._closed:
            talk.end()


class _Talk:
    """One connection: two pumps that read along."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self.texts: dict[bytes, str] = {}
        self.flowing = threading.Event()
        self.flowing.set()
        self.ended = False
        self._pumps = 2
        self._lock = threading.Lock()
        # Where this connection is to break, once a statement was sent that says so.
        self._point: Failpoint | None = None

    def begin(self) -> None:
        for pump in (self._to_server, self._to_client):
            threading.Thread(target=self._run, args=(pump,), daemon=True).start()

    def end(self) -> None:
        self.ended = True
        self.flowing.set()
        for each in (self._client, self._server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _run(self, pump: object) -> None:
        assert callable(pump)
        with contextlib.suppress(OSError, EOFError):
            pump()
        with self._lock:
            self.end()
            self._pumps -= 1
            if not self._pumps:
                self._client.close()
                self._server.close()

    def _to_server(self) -> None:
        reader = _Reader(self._client)
        first = reader.take(4)
        rest = reader.take(_length(first) - 4)
        self._pass(self._server, first + rest)
        if struct.unpack("!i", rest[:4])[0] == _CANCEL:
            return
        while True:
            kind, body = reader.message()
            self._note(kind, body)
            point = self._point
            if point is not None and point.where is Where.BEFORE:
                self._stand(point)
                return
            if kind in b"SQ":
                if point is not None and point.where is Where.EXECUTED:
                    self._stand(point)
                    return
                if not self._proxy.weather():
                    return
            self._pass(self._server, kind + struct.pack("!i", len(body) + 4) + body)

    def _to_client(self) -> None:
        reader = _Reader(self._server)
        held = b""
        while True:
            kind, body = reader.message()
            message = kind + struct.pack("!i", len(body) + 4) + body
            point = self._point
            if point is not None and point.where is Where.COMMITTED:
                # All of this answer is lost if its last message says that the transaction is over.
                held += message
                if (kind, body) == (b"Z", b"I"):
                    self._stand(point)
                    return
                if kind != b"Z":
                    continue
                message, held = held, b""
            if kind == b"Z" and self._proxy.delay:
                threading.Event().wait(self._proxy.delay)
            self._pass(self._client, message)

    def _note(self, kind: bytes, body: bytes) -> None:
        """Learn statements by their names, and see when one is used that is to fail."""
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self.texts[name] = text.decode(errors="replace")
        elif kind == b"B":
            name = body.split(b"\0", 2)[1]
            self._point = self._point or self._proxy.failpoint(self.texts.get(name, ""))
        elif kind == b"Q":
            sent = self.texts[body] = body.decode(errors="replace")
            self._point = self._point or self._proxy.failpoint(sent)

    def _stand(self, point: Failpoint) -> None:
        point.reached.set()
        point.go_on.wait(PATIENCE)

    def _pass(self, to: socket.socket, data: bytes) -> None:
        self.flowing.wait()
        if self.ended:
            raise EOFError
        to.sendall(data)


class _Reader:
    """Whole messages from a socket."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._buffer = b""

    def take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            data = self._source.recv(_CHUNK)
            if not data:
                raise EOFError
            self._buffer += data
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def message(self) -> tuple[bytes, bytes]:
        head = self.take(5)
        return head[:1], self.take(_length(head[1:]) - 4)


def _length(four: bytes) -> int:
    length: int = struct.unpack("!i", four)[0]
    return length
