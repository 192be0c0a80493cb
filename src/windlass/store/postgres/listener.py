"""How do other machines learn that jobs may be there? NOTIFY after a commit, LISTEN elsewhere."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg

from windlass.errors import StoreUnavailable
from windlass.store.postgres.failures import explain
from windlass.store.postgres.link import LONGEST, Link
from windlass.store.postgres.session import Connection, open_connection

if TYPE_CHECKING:
    from windlass.store.postgres.address import Address
    from windlass.store.postgres.guard import Guard

CHANNEL = "windlass"


class Listener:
    """Two connections: one that hears, one that tells. Nothing of it is needed for correctness."""

    def __init__(self, address: Address, guard: Guard) -> None:
        self._address = address
        self._guard = guard
        self._opened_by = os.getpid()
        self._telling = Link(address, "listen", guard)
        self._hearing: Connection | None = None
        self._teller = 0

    def tell(self, word: str = "") -> None:
        """Notify whoever listens, ourselves excepted unless there is a word to recognise."""
        self._check_ours()

        def send(connection: Connection) -> None:
            self._teller = connection.info.backend_pid
            connection.execute("select pg_notify($1, $2)", [CHANNEL, word])

        self._telling.run(send)

    def hear(self, seconds: float) -> list[str] | None:
        """Wait so long for hints: their words, or None. Raises when the connection is bad."""
        self._check_ours()
        try:
            if self._hearing is None or self._hearing.closed:
                self._hearing = open_connection(self._address, "listen")
                self._ask(self._hearing, f"listen {CHANNEL}")
                # Something may have been told before we listened.
                return [""]
            heard = self._hearing.notifies(timeout=seconds, stop_after=1)
            words = [each.payload for each in heard if each.payload or each.pid != self._teller]
        except psycopg.Error as error:
            self._drop()
            raise explain(error, self._address.shown) from error
        return words or None

    def check(self) -> None:
        """Ask the hearing connection something, so that a half-open one is noticed."""
        if self._hearing is None:
            return
        try:
            self._ask(self._hearing, "select 1")
        except psycopg.Error as error:
            self._drop()
            raise explain(error, self._address.shown) from error

    def close(self) -> None:
        """Let go of both; what a forked process inherited is its parent's."""
        if os.getpid() != self._opened_by:
            return
        self._telling.close()
        self._drop()

    def _ask(self, connection: Connection, statement: str) -> None:
        with self._guard.watching(connection, LONGEST["listen"]):
            connection.execute(statement.encode())

    def _check_ours(self) -> None:
        if os.getpid() != self._opened_by:
            raise StoreUnavailable(
                f"{self._address.shown} was opened before this process was forked; open it again"
            )

    def _drop(self) -> None:
        connection, self._hearing = self._hearing, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()
