"""How does a verb come to a connection that nobody else can exhaust?"""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import psycopg

from windlass.store.caller import check_wanted
from windlass.store.engine import StoreClosed
from windlass.store.postgres.failures import explain, is_away
from windlass.store.postgres.session import Connection, check_confirmed, open_connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.store.postgres.address import Address
    from windlass.store.postgres.guard import Guard

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

    def run(self, call: Callable[[Connection], T], *, again: bool = True) -> T:
        """Call with the connection, alone. One that broke is opened anew and, with `again`, asked once more.

        Only for what may be repeated: a settle that was written finds itself done.
        """
        with self._lock:
            check_wanted()
            fresh = self._connection is None
            try:
                return self._call(call)
            except psycopg.Error as error:
                if not is_away(error):
                    raise explain(error, self._address.shown) from error
                self._drop()
                if fresh or not again or self._closed:
                    raise explain(error, self._address.shown) from error
            try:
                return self._call(call)
            except psycopg.Error as error:
                if is_away(error):
                    self._drop()
                raise explain(error, self._address.shown) from error

    def run_at_once(self, call: Callable[[Connection], None]) -> bool:
        """Call with the connection if it is there and nobody uses it, else answer False; never waits."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._closed or self._connection is None or self._connection.closed:
                return False
            call(self._connection)
        except psycopg.Error:
            return False
        else:
            return True
        finally:
            self._lock.release()

    def close(self) -> None:
        """Let go of the connection, also when somebody waits on it for an answer that does not come."""
        self._closed = True
        if not self._lock.acquire(timeout=_CLOSE_SECONDS):
            connection = self._connection
            if connection is not None:
                self._guard.break_off(connection)
            self._lock.acquire()
        try:
            self._drop()
        finally:
            self._lock.release()

    def _call(self, call: Callable[[Connection], T]) -> T:
        if self._closed:
            raise StoreClosed(self._address.shown)
        if self._connection is None or self._connection.closed:
            self._connection = open_connection(self._address, self._use)
            self._guard.arrived(self._connection)
        with self._guard.watching(self._connection, LONGEST[self._use]):
            answer = call(self._connection)
        check_confirmed(self._connection, self._address.shown)
        return answer

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()
