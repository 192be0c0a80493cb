"""Connections to PostgreSQL: one for each hot use, a pool for the rest, one that listens, and their guard."""

from __future__ import annotations

import math
import os
import secrets
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TypeVar

import msgspec
import psycopg
from psycopg.pq import TransactionStatus

from windlass.errors import StoreUnavailable
from windlass.loop import Loop
from windlass.store.engine import StoreClosed
from windlass.store.group_commit import calling, check_wanted
from windlass.store.postgres import session
from windlass.store.postgres.address import Address
from windlass.store.postgres.session import Connection

_EVERY = timedelta(seconds=0.5)
_CANCEL_SECONDS = 3.0
# What was cancelled has so long to say so; then its connection is taken for dead.
_GRACE = 1.0


class Guard:
    """Ends what has run past its time.

    First it is cancelled: a commit that waits for its replica then says that it was not confirmed. If nothing
    is heard even so, the connection is broken off, and whoever waits on it gets an error and may try anew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, _Watch] = {}
        self._loop: Loop | None = None
        self._place: tuple[str, int] | None = None
        # How often a new connection led to another server than the one before: older ones lead nowhere.
        self.moves = 0

    @contextmanager
    def watching(self, connection: Connection, seconds: float) -> Iterator[None]:
        if self._loop is None:
            self._start()
        key = id(connection)
        self._running[key] = _Watch(connection, monotonic() + seconds)
        try:
            yield
        finally:
            # Not while it is being broken off: its number may be another socket's the moment it is closed.
            with self._lock:
                self._running.pop(key, None)

    def tick(self) -> None:
        now = monotonic()
        for watch in list(self._running.values()):
            if now >= watch.until + _GRACE:
                self.break_off(watch.connection, watch)
            elif now >= watch.until and not watch.cancelled:
                watch.cancelled = True
                # On a thread of its own: a frozen server takes its time to refuse, and others wait, too.
                threading.Thread(target=_cancel, args=(watch.connection,), daemon=True).start()

    def arrived(self, connection: Connection) -> None:
        """A new connection was made. If it led to another server, who waits for the old one waits in vain."""
        place = _place(connection)
        with self._lock:
            moved = self._place not in (None, place)
            self._place = place
            self.moves += moved
        if moved:
            for watch in list(self._running.values()):
                if _place(watch.connection) != place:
                    self.break_off(watch.connection, watch)

    def close(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.stop()

    def break_off(self, connection: Connection, watch: _Watch | None = None) -> None:
        """End what runs on this connection now, if anything does: with `watch`, only what that watches."""
        with self._lock:
            running = self._running.get(id(connection))
            if running is None or watch not in (None, running):
                return
            with (
                suppress(psycopg.Error, OSError),
                socket.socket(fileno=os.dup(connection.fileno())) as handle,
            ):
                handle.shutdown(socket.SHUT_RDWR)

    def _start(self) -> None:
        with self._lock:
            if self._loop is None:
                loop = Loop("guard", self.tick, every=_EVERY)
                loop.start()
                self._loop = loop


class _Watch(msgspec.Struct, eq=False):
    connection: Connection
    until: float
    cancelled: bool = False


def _cancel(connection: Connection) -> None:
    with suppress(psycopg.Error):
        connection.cancel_safe(timeout=_CANCEL_SECONDS)


def _place(connection: Connection) -> tuple[str, int] | None:
    with suppress(psycopg.Error):
        return connection.info.host, connection.info.port
    return None


T = TypeVar("T")

# Seconds after which our side gives up, a little more than the server's own limits. A beat is given up
# sooner: on a new connection it must still come before others take its worker for dead.
LONGEST = {"claim": 20.0, "settle": 35.0, "beat": 3.0, "listen": 6.0, "upkeep": math.inf}
# How long a verb that is under way may take to end when the store is closed.
_CLOSE_SECONDS = 1.0


class Link:
    """One connection for one use, opened when it is needed and again after it broke."""

    def __init__(self, address: Address, use: str, guard: Guard) -> None:
        self._address = address
        self._use = use
        self._guard = guard
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._closed = False
        self._opened_by = os.getpid()

    def run(self, call: Callable[[Connection], T], *, again: bool = True) -> T:
        """Call with the connection, alone. One that broke is opened anew and, with `again`, asked once more.

        Only for what may be repeated: a settle that was written finds itself done.
        """
        # Not even its lock is ours in a process that was forked off.
        if self._opened_by != os.getpid():
            raise StoreClosed(self._address.shown)
        with self._lock:
            if calling().wanted is not None:
                check_wanted()
            again = again and self._connection is not None
            while True:
                if self._closed:
                    raise StoreClosed(self._address.shown)
                try:
                    if self._connection is None or self._connection.closed:
                        self._connection = session.open_connection(self._address, self._use)
                        self._guard.arrived(self._connection)
                    with self._guard.watching(self._connection, LONGEST[self._use]):
                        answer = call(self._connection)
                    if session.unconfirmed:
                        session.check_confirmed(self._connection, self._address.shown)
                    return answer
                except psycopg.Error as error:
                    if session.is_away(error):
                        self._drop()
                    if not session.is_away(error) or not again or self._closed:
                        raise session.explain(error, self._address.shown) from error
                again = False

    def run_at_once(self, call: Callable[[Connection], None]) -> bool:
        """Call with the connection if it is there and nobody uses it, else answer False; never waits."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._closed or self._connection is None or self._connection.closed:
                return False
            call(self._connection)
            return True
        except psycopg.Error:
            return False
        finally:
            self._lock.release()

    def close(self) -> None:
        """Let go of the connection, also when somebody waits on it for an answer that does not come."""
        self._closed = True
        if not self._lock.acquire(timeout=_CLOSE_SECONDS):
            if self._connection is not None:
                self._guard.break_off(self._connection)
            self._lock.acquire()
        self._drop()
        self._lock.release()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        _close(connection)


_MOST = 10
# A connection that was of use so recently is not asked whether it still is.
_FRESH_SECONDS = 1.0
_CHECK_SECONDS = 3.0
_REST_SECONDS = 300.0
# Between two attempts to connect: short at first, for a server that is restarted is soon back.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 1.0
# Whoever has used up its time elsewhere may still ask once.
_LEAST_SECONDS = 0.5
# What begins late in somebody's patience is not cut off at once.
_LEAST_SECONDS_TO_RUN = 5.0


class Pool:
    """At most ten connections, made by whoever needs one and kept for the next.

    The one that was used last is given first. While the server is away each caller waits for its own
    patience, one of them tries to connect, and the error says why that did not succeed.
    """

    def __init__(
        self,
        address: Address,
        guard: Guard,
        *,
        patience: float,
        connect: Callable[[Address], Connection] | None = None,
    ) -> None:
        self._address = address
        self._guard = guard
        self._patience = patience
        self._connect = connect or partial(session.open_connection, use="pool")
        self._changed = threading.Condition()
        # Each with the time of its last use, and how often the server had moved before it.
        self._idle: list[tuple[Connection, float, int]] = []
        self._out = 0
        self._closed = False
        # Connections that were used before this moment are asked first whether they still are any.
        self._doubted = 0.0
        self._opening = threading.Lock()
        self._pause = threading.Event()
        self._refused: psycopg.Error | None = None

    def deadline(self) -> float:
        return monotonic() + min(self._patience, calling().patience)

    @contextmanager
    def connection(
        self, until: float | None = None, *, seconds: float | None = None, checked: bool = True
    ) -> Iterator[Connection]:
        """A connection for one use, which is short unless it is said to take so many seconds.

        Whoever asks again anyway if it is broken, and keeps nobody waiting, need not have it `checked`.
        """
        until = self.deadline() if until is None else max(until, monotonic() + _LEAST_SECONDS)
        self._enter(until)
        connection: Connection | None = None
        # Read before the use: one that was under way while the server moved led to the old one.
        moves = self._guard.moves
        try:
            connection = self._rested(checked=checked)
            if connection is None:
                connection, moves = self._opened(until), self._guard.moves
            left = until - monotonic()
            caller = calling()
            if caller.wanted is not None:
                check_wanted()
                left = self._patience if caller.run is None else caller.run
            if seconds is None:
                seconds = max(left, _LEAST_SECONDS_TO_RUN)
            with self._guard.watching(connection, seconds):
                yield connection
            if session.unconfirmed:
                session.check_confirmed(connection, self._address.shown)
        except psycopg.Error as error:
            self._judge(connection, error)
            raise
        finally:
            self._leave(connection, moves)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._pause.set()
        self._clear()

    def _judge(self, connection: Connection | None, error: psycopg.Error) -> None:
        """What one connection's error says about the others: they may be broken, or as stale as this one."""
        if session.is_away(error):
            self._doubted = monotonic()
        if connection is not None and session.is_stale(error):
            _close(connection)
            self._clear()

    def _clear(self) -> None:
        with self._changed:
            resting, self._idle = self._idle, []
        for connection, *_ in resting:
            _close(connection)

    def _enter(self, until: float) -> None:
        with self._changed:
            while self._out >= _MOST and not self._closed and (left := until - monotonic()) > 0:
                self._changed.wait(left)
            if self._closed:
                raise StoreClosed(self._address.shown)
            if self._out >= _MOST:
                raise StoreUnavailable(
                    f"{self._address.shown}: all of {_MOST} connections of this process were in use for "
                    f"{min(self._patience, calling().patience):g} s; nothing was written: try again"
                )
            self._out += 1

    def _leave(self, connection: Connection | None, moves: int) -> None:
        stale: list[Connection] = []
        with self._changed:
            self._out -= 1
            if connection is not None:
                status = None if connection.closed else connection.pgconn.transaction_status
                if self._closed or status != TransactionStatus.IDLE:
                    stale.append(connection)
                else:
                    self._idle.append((connection, monotonic(), moves))
            if self._idle and monotonic() - self._idle[0][1] > _REST_SECONDS:
                stale.append(self._idle.pop(0)[0])
            self._changed.notify()
        for each in stale:
            _close(each)

    def _opened(self, until: float) -> Connection:
        # One tries while the others wait: a server that comes back is not met by all at once.
        if not self._opening.acquire(timeout=max(0.0, until - monotonic())):
            raise self._no_connection() from None
        try:
            pause = _FIRST_PAUSE
            while True:
                if self._closed:
                    raise StoreClosed(self._address.shown)
                check_wanted()
                # One of ours may have come back meanwhile.
                if (rested := self._rested()) is not None:
                    return rested
                try:
                    connection = self._connect(self._address)
                except psycopg.Error as error:
                    self._refused = error
                else:
                    self._refused = None
                    self._guard.arrived(connection)
                    return connection
                if monotonic() + pause >= until:
                    raise self._no_connection() from self._refused
                self._pause.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._opening.release()

    def _rested(self, *, checked: bool = True) -> Connection | None:
        while True:
            with self._changed:
                if not self._idle:
                    return None
                connection, used, moves = self._idle.pop()
            if not connection.closed and moves == self._guard.moves:
                recent = not checked or monotonic() - used <= _FRESH_SECONDS
                if (recent and used > self._doubted) or self._answers(connection):
                    return connection
            _close(connection)

    def _answers(self, connection: Connection) -> bool:
        try:
            with self._guard.watching(connection, _CHECK_SECONDS):
                connection.execute("")
        except psycopg.Error as error:
            self._judge(connection, error)
            return False
        return True

    def _no_connection(self) -> StoreUnavailable:
        why = "it did not answer" if self._refused is None else session.told(self._refused)
        seconds = min(self._patience, calling().patience)
        return StoreUnavailable(
            f"{self._address.shown} gave no connection for {seconds:g} s ({why}); try again"
        )


def _close(connection: Connection | None) -> None:
    if connection is not None:
        with suppress(psycopg.Error):
            connection.close()


CHANNEL = "windlass"


class Listener:
    """Two connections: one that hears, one that tells. Nothing of it is needed for correctness."""

    def __init__(self, address: Address, guard: Guard) -> None:
        self._address = address
        self._guard = guard
        self._opened_by = os.getpid()
        self._telling = Link(address, "listen", guard)
        # On which a hint was sent whose answer has not been taken.
        self._begun: Connection | None = None
        self._hearing: Connection | None = None
        # Stands in our hints, which we need not hear.
        self.name = secrets.token_hex(8)
        self._hint = f"select pg_notify('{CHANNEL}', '{self.name}')".encode()
        # On a channel that nobody else hears.
        self._own = f"{CHANNEL}_{self.name}"

    def begin_to_tell(self) -> bool:
        """Send a hint and do not wait for the answer; False if that is not possible now."""
        return os.getpid() == self._opened_by and self._telling.run_at_once(self._send)

    def end_telling(self) -> None:
        """Wait for the answer to what was begun, if anything was; what the connection lost is told again."""
        if self._begun is not None:
            self._telling.run(partial(self._tell, None))

    def tell(self, channel: str = CHANNEL) -> None:
        """Notify whoever listens; what we tell ourselves is not heard."""
        self._telling.run(partial(self._tell, channel))

    def ask(self) -> None:
        self.tell(self._own)

    def hear(self, seconds: float) -> tuple[bool, bool]:
        """Wait so long for hints, of others and of our own. Raises when the connection is bad."""
        if os.getpid() != self._opened_by:
            raise StoreClosed(self._address.shown)
        try:
            if self._hearing is None or self._hearing.closed:
                self._hearing = session.open_connection(self._address, "listen")
                with self._guard.watching(self._hearing, LONGEST["listen"]):
                    self._hearing.execute(f"listen {self._own}".encode())
                    self._hearing.execute(f"listen {CHANNEL}".encode())
                # Something may have been told before we listened.
                return True, False
            heard = list(self._hearing.notifies(timeout=seconds, stop_after=1))
        except psycopg.Error as error:
            self.begin_anew()
            raise session.explain(error, self._address.shown) from error
        hint = any(each.channel == CHANNEL and each.payload != self.name for each in heard)
        return hint, any(each.channel == self._own for each in heard)

    def begin_anew(self) -> None:
        """Let go of the connection that hears; the next hearing opens another."""
        connection, self._hearing = self._hearing, None
        _close(connection)

    def close(self) -> None:
        """Let go of both; what a forked process inherited is its parent's."""
        if os.getpid() != self._opened_by:
            return
        self._telling.close()
        self.begin_anew()

    def _send(self, connection: Connection) -> None:
        if self._begun is connection:
            raise psycopg.OperationalError("the last hint is not answered yet")
        self._begun = connection
        connection.pgconn.send_query(self._hint)
        # So short a text goes out whole unless the way is blocked; then the rest goes with the wait.
        connection.pgconn.flush()

    def _tell(self, channel: str | None, connection: Connection) -> None:
        """Take the answer to a hint that was begun here; without a channel, tell only what was lost."""
        begun, self._begun = self._begun, None
        if begun is connection:
            _take_answer(connection)
        if channel is not None or begun is not connection:
            connection.execute("select pg_notify($1, $2)", [channel or CHANNEL, self.name])


def _take_answer(connection: Connection) -> None:
    """Wait for the answer to what was sent; the guard breaks the connection off if none comes."""
    server = connection.pgconn
    ready = select.poll()
    while True:
        left = server.flush()
        server.consume_input()
        while not server.is_busy():
            if server.get_result() is None:
                return
        ready.register(server.socket, select.POLLIN | (select.POLLOUT if left else 0))
        ready.poll()
