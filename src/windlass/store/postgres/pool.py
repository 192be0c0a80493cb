"""How do producers and operators share a few connections, and what if none can be had?"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import psycopg
from psycopg.pq import TransactionStatus

from windlass.errors import StoreUnavailable
from windlass.store import caller
from windlass.store.engine import StoreClosed
from windlass.store.postgres.failures import is_away, is_stale, told
from windlass.store.postgres.session import Connection, check_confirmed, open_connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windlass.store.postgres.address import Address
    from windlass.store.postgres.guard import Guard

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
        self._connect = connect or partial(open_connection, use="pool")
        self._changed = threading.Condition()
        self._idle: list[tuple[Connection, float]] = []
        self._out = 0
        self._closed = False
        # Connections that were used before this moment are asked first whether they still are any.
        self._doubted = 0.0
        self._opening = threading.Lock()
        self._pause = threading.Event()
        self._refused: psycopg.Error | None = None

    def deadline(self) -> float:
        """When the patience of who comes now is at its end."""
        return monotonic() + caller.patience(self._patience)

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
        try:
            connection = self._usable(until, checked=checked)
            caller.check_wanted()
            if seconds is None:
                left = caller.run_limit(self._patience, until - monotonic())
                seconds = max(left, _LEAST_SECONDS_TO_RUN)
            with self._guard.watching(connection, seconds):
                yield connection
            check_confirmed(connection, self._address.shown)
        except psycopg.Error as error:
            self._judge(connection, error)
            raise
        finally:
            self._leave(connection)

    def close(self) -> None:
        """Let go of everything; what is in use, when it comes back."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._pause.set()
        self._clear()

    def _judge(self, connection: Connection | None, error: psycopg.Error) -> None:
        """What one connection's error says about the others: they may be broken, or as stale as this one."""
        if is_away(error):
            self._doubted = monotonic()
        if connection is not None and is_stale(error):
            _close(connection)
            self._clear()

    def _clear(self) -> None:
        with self._changed:
            resting, self._idle = self._idle, []
        for connection, _ in resting:
            _close(connection)

    # --- coming and going ---

    def _enter(self, until: float) -> None:
        with self._changed:
            free = self._changed.wait_for(
                lambda: self._closed or self._out < _MOST, max(0.0, until - monotonic())
            )
            self._check_open()
            if not free:
                raise StoreUnavailable(
                    f"{self._address.shown}: all of {_MOST} connections of this process were in use for "
                    f"{caller.patience(self._patience):g} s; nothing was written: try again"
                )
            self._out += 1

    def _leave(self, connection: Connection | None) -> None:
        stale: list[Connection] = []
        with self._changed:
            self._out -= 1
            if connection is not None:
                if self._closed or not _is_idle(connection):
                    stale.append(connection)
                else:
                    self._idle.append((connection, monotonic()))
            if self._idle and monotonic() - self._idle[0][1] > _REST_SECONDS:
                stale.append(self._idle.pop(0)[0])
            self._changed.notify()
        for each in stale:
            _close(each)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(self._address.shown)

    # --- a connection that is one ---

    def _usable(self, until: float, *, checked: bool) -> Connection:
        connection = self._rested(checked=checked)
        if connection is not None:
            return connection
        # One tries while the others wait: a server that comes back is not met by all at once.
        if not self._opening.acquire(timeout=max(0.0, until - monotonic())):
            raise self._no_connection() from None
        try:
            return self._open(until)
        finally:
            self._opening.release()

    def _open(self, until: float) -> Connection:
        pause = _FIRST_PAUSE
        while True:
            self._check_open()
            caller.check_wanted()
            # One of ours may have come back meanwhile.
            rested = self._rested()
            if rested is not None:
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

    def _rested(self, *, checked: bool = True) -> Connection | None:
        """One that is there already and still works."""
        while True:
            with self._changed:
                if not self._idle:
                    return None
                connection, used = self._idle.pop()
            if self._works(connection, used, checked=checked):
                return connection
            _close(connection)

    def _works(self, connection: Connection, used: float, *, checked: bool) -> bool:
        if connection.closed or self._guard.is_elsewhere(connection):
            return False
        if used > self._doubted and (not checked or monotonic() - used <= _FRESH_SECONDS):
            return True
        try:
            with self._guard.watching(connection, _CHECK_SECONDS):
                connection.execute("")
        except psycopg.Error as error:
            self._judge(connection, error)
            return False
        return True

    def _no_connection(self) -> StoreUnavailable:
        why = "it did not answer" if self._refused is None else told(self._refused)
        seconds = caller.patience(self._patience)
        return StoreUnavailable(
            f"{self._address.shown} gave no connection for {seconds:g} s ({why}); try again"
        )


def _is_idle(connection: Connection) -> bool:
    return not connection.closed and connection.pgconn.transaction_status == TransactionStatus.IDLE


def _close(connection: Connection) -> None:
    with suppress(psycopg.Error):
        connection.close()
