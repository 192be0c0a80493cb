"""How does a PostgreSQL server fail for the tests, and who takes its place?"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psutil

from tests.servers import postgres
from tests.waiting import PATIENCE


def required(major: int) -> Path:
    """The programs of a major version, or the test is skipped."""
    if major not in postgres.majors():
        postgres.missing(f"PostgreSQL {major} is not here: apt-get install postgresql-{major}")
    return postgres.majors()[major]


# --- harm ---------------------------------------------------------------------------------------


def kill(server: postgres.Server) -> None:
    """End all of a server's processes, as a loss of power does."""
    _end(server, signal.SIGKILL, processes(server))


def stop_at_once(server: postgres.Server) -> None:
    """As `pg_ctl stop -m immediate`: no farewell to anybody, and a recovery at the next start."""
    _end(server, signal.SIGQUIT, processes(server)[:1])


def freeze(server: postgres.Server) -> None:
    """Let all its processes stand still: connections stay open, and nobody answers."""
    # First the one that begins the others.
    psutil.Process(server.pid).suspend()
    for process in processes(server)[1:]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()


def thaw(server: postgres.Server) -> None:
    """Let them go on."""
    for process in reversed(processes(server)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def processes(server: postgres.Server) -> list[psutil.Process]:
    """The postmaster, then its children."""
    postmaster = psutil.Process(server.pid)
    return [postmaster, *postmaster.children(recursive=True)]


def _end(server: postgres.Server, number: signal.Signals, victims: list[psutil.Process]) -> None:
    everybody = processes(server)
    for process in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    server.stop()
    # Those too who only notice that the postmaster is gone: they hold memory that a new one would claim.
    _, left = psutil.wait_procs(everybody, timeout=PATIENCE)
    assert not left, left


# --- a primary and its standby ------------------------------------------------------------------


class Standby(postgres.Server):
    """A copy of a running server that follows it, and takes its place when it is promoted."""

    def __init__(self, primary: postgres.Server, programs: Path, *, durable: bool) -> None:
        self._primary = primary
        super().__init__(programs, durable=durable, wal_retrieve_retry_interval="200ms")

    def promote(self) -> None:
        """Be the primary from now on; answers when it can be written to."""
        self.run("select pg_promote(true)")

    def _make_data(self) -> None:
        words = [str(self._programs / "pg_basebackup"), "-D", str(self._data), "-R", "-U", "postgres"]
        words += ["-h", str(self._primary.folder), "--checkpoint=fast", "--no-sync"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, **self._account)


class Pair:
    """A primary and its synchronous standby: what was answered by the one is also held by the other."""

    def __init__(self, major: int, *, durable: bool = False) -> None:
        programs = required(major)
        # Sessions that do not ask for it, such as the tests' own, do not wait for the standby.
        self.primary = postgres.Server(
            programs, durable=durable, synchronous_standby_names="*", synchronous_commit="local"
        )
        self.primary.start()
        try:
            self.standby = Standby(self.primary, programs, durable=durable)
            self.standby.start()
            self.wait_until_in_step()
        except BaseException:
            self.primary.close()
            raise

    def url(self, database: str = "postgres") -> str:
        """Both servers; whoever connects finds the one that can be written to."""
        hosts = ",".join(quote(str(each.folder), safe="") for each in (self.primary, self.standby))
        return f"postgresql://postgres@/{database}?host={hosts}&target_session_attrs=read-write"

    def new_database(self) -> str:
        """The name of an empty database."""
        return name_of(self.primary.new_database())

    def wait_until_in_step(self) -> None:
        """Wait until the standby confirms what the primary commits."""
        pause = threading.Event()
        for _ in range(int(PATIENCE / 0.05)):
            if self.primary.run("select sync_state from pg_stat_replication") == [("sync",)]:
                return
            pause.wait(0.05)
        raise RuntimeError("the standby does not follow")

    def close(self) -> None:
        """Stop both and throw everything away."""
        self.standby.close()
        self.primary.close()


@contextlib.contextmanager
def pair(major: int) -> Iterator[Pair]:
    """A primary and its standby, for as long as the block lasts."""
    made = Pair(major)
    try:
        yield made
    finally:
        made.close()


def name_of(url: str) -> str:
    """The database that a URL of the launcher names."""
    return url.partition("@/")[2].partition("?")[0]


def socket_in(folder: Path) -> str:
    """The path of the socket of the server in that folder."""
    return os.fspath(folder / ".s.PGSQL.5432")
