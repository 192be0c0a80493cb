"""Where is it measured? New, empty stores on servers of our own, with every promise to the disk kept."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from bench.contenders import StoreKind
from tests.servers import postgres

REDIS_INSTALL = "apt-get install redis-server"
_POSTGRES_MAJOR = 15
# Beyond the server's own defaults; fsync, synchronous_commit and full_page_writes stay on.
POSTGRES_OPTIONS = {"shared_buffers": "512MB", "max_wal_size": "4GB", "log_line_prefix": "%d "}
# An answer means that the job is on disk, as it does on PostgreSQL and SQLite.
REDIS_OPTIONS = {"appendonly": "yes", "appendfsync": "always", "save": ""}
_READY_SECONDS = 10.0
# Ends the server when its standard input closes, which happens however we end.
_KEEPER = '"$@" </dev/null & read -r _; kill $!; wait $!'


class Missing(Exception):
    """A server is not installed; the message says how to."""


class Place(NamedTuple):
    """A store for one driver: its URL as a driver takes it, and how it ends."""

    url: str
    kind: StoreKind
    close: Any


class Places:
    """Makes stores, starts the servers when they are first needed, and ends them all."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._postgres: postgres.Server | None = None
        # Cases that run together ask for servers at the same time.
        self._starting = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def fresh(self, kind: StoreKind, *, plain_path: bool, counted: bool = False) -> Place:
        """A new, empty store; `plain_path` for peers that take a file's path and not a URL.

        Where they are to be `counted`, a server of PostgreSQL writes down what its sessions ask.
        """
        if kind == "postgres":
            server = self.postgres()
            url = server.new_database()
            if counted:
                server.run(f"alter database {_database(url)} set log_statement = 'all'")
            return Place(url, kind, lambda: server.drop_database(url))
        folder = Path(tempfile.mkdtemp(prefix="wl-b-", dir="/tmp"))
        if kind == "sqlite":
            path = folder / "jobs.db"
            return Place(str(path) if plain_path else f"sqlite:///{path}", kind, lambda: _remove(folder))
        process, port = _start_redis(folder)
        return Place(f"redis://127.0.0.1:{port}/0", kind, lambda: _end(process, folder))

    def postgres(self) -> postgres.Server:
        """The one server of this run."""
        with self._starting:
            if self._postgres is None:
                found = postgres.majors()
                if not found:
                    raise Missing(postgres.install(_POSTGRES_MAJOR))
                major = _POSTGRES_MAJOR if _POSTGRES_MAJOR in found else max(found)
                running = postgres.running(major, durable=True, **POSTGRES_OPTIONS)
                self._postgres = self._stack.enter_context(running)
            return self._postgres

    def tidy(self, place: Place) -> None:
        """Vacuum and analyse, as autovacuum would have done some time after a great change."""
        if place.kind == "postgres":
            self.postgres().run("vacuum analyze", _database(place.url))

    def asked(self, place: Place) -> int | None:
        """How many statements or commands a store's sessions have asked of the server so far."""
        if place.kind == "postgres":
            log = (self.postgres().folder / "log").read_text(errors="replace")
            return statements_in(log, _database(place.url))
        if place.kind == "redis":
            return _redis_commands(int(place.url.rpartition(":")[2].partition("/")[0]))
        return None

    def version(self, kind: StoreKind) -> str:
        """Which release of the server this is."""
        if kind == "postgres":
            return str(self.postgres().run("show server_version")[0][0])
        told = subprocess.run(
            ["redis-server", "--version"], capture_output=True, text=True, check=False
        ).stdout
        return told.partition("v=")[2].partition(" ")[0]


def _database(url: str) -> str:
    return url.partition("@/")[2].partition("?")[0]


def statements_in(log: str, database: str) -> int:
    """How many statements the sessions of a database have run, by what the server wrote down.

    Not by its count of transactions, which has those of its vacuum in it. Of a statement's lines only the
    first bears the database's name.
    """
    return len(re.findall(rf"^{re.escape(database)} LOG:  (?:statement|execute )", log, re.MULTILINE))


def _start_redis(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    program = shutil.which("redis-server")
    if program is None:
        raise Missing(f"redis-server is not here: {REDIS_INSTALL}")
    port = _free_port()
    options = {"port": str(port), "bind": "127.0.0.1", "dir": str(folder), **REDIS_OPTIONS}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    process = subprocess.Popen(
        ["sh", "-c", _KEEPER, "sh", program, *words], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    until = time.monotonic() + _READY_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            _redis_commands(port)
            return process, port
        time.sleep(0.02)
    _end(process, folder)
    raise Missing("redis-server does not start")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _redis_commands(port: int) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"INFO stats\r\n")
        told = b""
        while b"total_commands_processed:" not in told or not told.endswith(b"\r\n"):
            told += connection.recv(65536)
    return int(told.partition(b"total_commands_processed:")[2].partition(b"\r\n")[0])


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    process.communicate()
    _remove(folder)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def filesystem(path: str = "/tmp") -> str:  # noqa: S108 - where the stores are
    """The kind of file system under the stores."""
    told = subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=False)
    return told.stdout.strip() or os.name
