"""How many statements does this process send to its server? Told by libpq's own trace of each connection.

Not by the server's count of transactions: its vacuum's are among those, and those of whoever else is there.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import psycopg
from psycopg.pq.abc import PGconn

# What we send once for each statement: its text alone, or the order to run what was bound before.
_STATEMENT = re.compile(rb"\tF\t\d+\t(?:Query|Execute)\t")


class Wire:
    """Follows the connections that this process opens from now on."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="windlass-wire-")
        self._numbers = itertools.count(1)
        begin = psycopg.Connection.__init__

        def followed(connection: psycopg.Connection[Any], server: PGconn, *args: Any, **options: Any) -> None:
            begin(connection, server, *args, **options)
            server.trace(self._file())

        psycopg.Connection.__init__ = followed  # type: ignore[method-assign, assignment]

    def statements(self) -> int:
        """How many were sent so far."""
        traces = Path(self._folder.name).iterdir()
        return sum(len(_STATEMENT.findall(trace.read_bytes())) for trace in traces)

    def _file(self) -> int:
        # Of its own: lines of several would mix. libpq keeps it open and writes line by line.
        path = Path(self._folder.name) / str(next(self._numbers))
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
