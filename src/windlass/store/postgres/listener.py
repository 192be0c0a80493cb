"""How do other machines learn that jobs may be there? NOTIFY after a commit, LISTEN elsewhere."""

from __future__ import annotations

import os
import secrets
import select
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg

from windlass.errors import StoreUnavailable
from windlass.store.postgres.connections import LONGEST, Link
from windlass.store.postgres.session import Connection, explain, open_connection

if TYPE_CHECKING:
    from windlass.store.postgres.address import Address
    from windlass.store.postgres.connections import Guard

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
            self._telling.run(self._answered_or_told)

    def tell(self) -> None:
        """Notify whoever listens; what we tell ourselves is not heard."""
        self._tell(CHANNEL)

    def ask(self) -> None:
        """Notify ourselves alone, by the way that others take."""
        self._tell(self._own)

    def hear(self, seconds: float) -> tuple[bool, bool]:
        """Wait so long for hints, of others and of our own. Raises when the connection is bad."""
        self._check_ours()
        try:
            if self._hearing is None or self._hearing.closed:
                self._hearing = open_connection(self._address, "listen")
                with self._guard.watching(self._hearing, LONGEST["listen"]):
                    self._hearing.execute(f"listen {self._own}".encode())
                    self._hearing.execute(f"listen {CHANNEL}".encode())
                # Something may have been told before we listened.
                return True, False
            heard = list(self._hearing.notifies(timeout=seconds, stop_after=1))
        except psycopg.Error as error:
            self.begin_anew()
            raise explain(error, self._address.shown) from error
        hint = any(each.channel == CHANNEL and each.payload != self.name for each in heard)
        return hint, any(each.channel == self._own for each in heard)

    def begin_anew(self) -> None:
        """Let go of the connection that hears; the next hearing opens another."""
        connection, self._hearing = self._hearing, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def close(self) -> None:
        """Let go of both; what a forked process inherited is its parent's."""
        if os.getpid() != self._opened_by:
            return
        self._telling.close()
        self.begin_anew()

    def _tell(self, channel: str) -> None:
        self._check_ours()

        def send(connection: Connection) -> None:
            self._answered(connection)
            connection.execute("select pg_notify($1, $2)", [channel, self.name])

        self._telling.run(send)

    def _send(self, connection: Connection) -> None:
        if self._begun is connection:
            raise psycopg.OperationalError("the last hint is not answered yet")
        self._begun = connection
        connection.pgconn.send_query(self._hint)
        # So short a text goes out whole unless the way is blocked; then the rest goes with the wait.
        connection.pgconn.flush()

    def _answered(self, connection: Connection) -> bool:
        """Take the answer to what was sent on this connection; False if nothing was."""
        begun, self._begun = self._begun, None
        if begun is not connection:
            return False
        _take_answer(connection)
        return True

    def _answered_or_told(self, connection: Connection) -> None:
        if not self._answered(connection):
            connection.execute(self._hint)

    def _check_ours(self) -> None:
        if os.getpid() != self._opened_by:
            raise StoreUnavailable(
                f"{self._address.shown} was opened before this process was forked; open it again"
            )


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
