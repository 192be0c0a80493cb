"""What do posts get while the store is away? How soon, and what is stored of them afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from siege.wire import HOST, Line, post, request
from tests.servers import postgres

SIZES = (1, 3, 20, 200)
# The server's own default patience, and what a busy machine may add.
PATIENCE = 5.0
SLACK = 1.5
KNOWN = 1.0
# After this nobody is waited for any more.
GIVE_UP = 40.0
# Numbers of the jobs, by who sent them.
WAITED, LEFT, KNOWN_AWAY = 1_000, 2_000, 3_000


class Store(NamedTuple):
    """A store that can be taken away."""

    url: str
    away: Callable[[], None]
    back: Callable[[], None]
    # Whether a server must be started anew, as its log asks for.
    restarts: bool = False


class Case(NamedTuple):
    """A way in which a store goes away."""

    kind: str
    name: str
    breaks: Callable[[], contextlib.AbstractContextManager[Store]]


@contextlib.contextmanager
def locked() -> Iterator[Store]:
    """Another process holds the write lock of the file."""
    with tempfile.TemporaryDirectory(prefix="siege_") as folder:
        path = f"{folder}/jobs.db"
        with contextlib.ExitStack() as closing:
            held: list[sqlite3.Connection] = []

            def away() -> None:
                other = closing.enter_context(contextlib.closing(sqlite3.connect(path, isolation_level=None)))
                other.execute("begin immediate")
                held.append(other)

            yield Store(f"sqlite:///{path}", away, lambda: held.pop().rollback())


@contextlib.contextmanager
def removed() -> Iterator[Store]:
    """The file is moved away."""
    with tempfile.TemporaryDirectory(prefix="siege_") as folder:
        path = Path(folder) / "jobs.db"
        aside = path.with_name("aside.db")

        def away() -> None:
            path.rename(aside)

        def back() -> None:
            aside.rename(path)

        yield Store(f"sqlite:///{path}", away, back, restarts=True)


@contextlib.contextmanager
def stopped() -> Iterator[Store]:
    """PostgreSQL is stopped: its port refuses."""
    with postgres.running(max(postgres.majors())) as server:
        yield Store(server.new_database(), server.stop, server.start)


@contextlib.contextmanager
def frozen() -> Iterator[Store]:
    """PostgreSQL stands still, with its connections open."""
    with postgres.running(max(postgres.majors())) as server:

        def each(number: signal.Signals) -> None:
            postmaster = psutil.Process(server.pid)
            for process in [postmaster, *postmaster.children(recursive=True)]:
                process.send_signal(number)

        yield Store(server.new_database(), lambda: each(signal.SIGSTOP), lambda: each(signal.SIGCONT))


CASES = (
    Case("sqlite", "locked by another process", locked),
    Case("sqlite", "file moved away", removed),
    Case("postgres", "stopped", stopped),
    Case("postgres", "frozen", frozen),
)


def outage(case: Case, size: int, src: Path) -> tuple[bool, str]:
    """So many posts at once while the store is away, as many that hang up, and as many once that is known."""
    with case.breaks() as store, _served(store.url, src) as server:
        port = server.port
        asyncio.run(_until_stored(port))
        store.away()
        try:
            waited, known = asyncio.run(_posts(port, size))
        finally:
            store.back()
        if store.restarts:
            server.restart()
        asyncio.run(_until_stored(port))
        stored = asyncio.run(_stored(port))
    accepted = sum(each.startswith("2") for each, _, _ in [*waited, *known])
    kept = sum(WAITED <= number < LEFT or number >= KNOWN_AWAY for number in stored)
    ghosts = sum(LEFT <= number < KNOWN_AWAY for number in stored)
    times, soon = [seconds for _, seconds, _ in waited], [seconds for _, seconds, _ in known]
    broken = []
    if max(times) > PATIENCE + SLACK:
        broken.append(f"one was answered after {max(times):.1f} s")
    if max(soon) > KNOWN:
        broken.append(f"once it was known, one was answered after {max(soon):.1f} s")
    if any(status != "503" or not after for status, _, after in [*waited, *known] if status[0] != "2"):
        broken.append("not all others were answered with 503 and Retry-After")
    if ghosts:
        broken.append(f"{ghosts} jobs of callers that had hung up were stored")
    if kept < accepted:
        broken.append(f"{accepted} accepted, {kept} stored")
    verdict = "held" if not broken else "BROKEN: " + "; ".join(broken)
    return not broken, (
        f"  {case.kind:<9} {case.name:<26} {size:>4} posts: p50 {statistics.median(times):5.2f} s, max "
        f"{max(times):5.2f} s {dict(Counter(status for status, _, _ in waited))}; once known p50 "
        f"{statistics.median(soon):5.2f} s, max {max(soon):5.2f} s; stored afterwards: {kept} of those "
        f"answered ({accepted} with 2xx), {ghosts} of {size} that hung up   {verdict}"
    )


_Answered = tuple[str, float, bool]


async def _posts(port: int, size: int) -> tuple[list[_Answered], list[_Answered]]:
    left = [asyncio.create_task(_leave(port, LEFT + number)) for number in range(size)]
    waited = await asyncio.gather(*(_post(port, WAITED + number) for number in range(size)))
    await asyncio.gather(*left)
    known = await asyncio.gather(*(_post(port, KNOWN_AWAY + number) for number in range(size)))
    return list(waited), list(known)


async def _post(port: int, number: int) -> _Answered:
    began = time.monotonic()
    try:
        async with asyncio.timeout(GIVE_UP):
            line = await Line.open(port)
            answer = await line.ask(post(number))
            line.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return "no answer", time.monotonic() - began, False
    return str(answer.status), time.monotonic() - began, "retry-after" in answer.headers


async def _leave(port: int, number: int) -> None:
    """Somebody who gives up after a second."""
    await asyncio.sleep(0.3)
    line = await Line.open(port)
    line.writer.write(post(number))
    await asyncio.sleep(1)
    line.close()


async def _until_stored(port: int) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if (await _post(port, 1))[0].startswith("2"):
            return
        await asyncio.sleep(0.2)
    raise SystemExit("the store did not come back")


async def _stored(port: int) -> list[int]:
    # Whatever the server still had to write is written by then.
    await asyncio.sleep(3)
    line = await Line.open(port)
    answer = await line.ask(request("GET", "/api/v1/jobs?limit=1000"))
    line.close()
    return [job["payload"]["a"] for job in json.loads(answer.body)["jobs"]]


class _Server:
    """A server without keys, with an application of one type."""

    def __init__(self, url: str, src: Path, folder: str) -> None:
        with socket.create_server((HOST, 0)) as door:
            self.port = int(door.getsockname()[1])
        app = (
            f"from windlass import Queue\nqueue = Queue({url!r})\n@queue.job\ndef add(a: int) -> None: ...\n"
        )
        (Path(folder) / "app.py").write_text(app)
        self._folder = folder
        self._env = {**os.environ, "PYTHONPATH": f"{src}:{folder}"}
        self._process = self._start()

    def restart(self) -> None:
        """End it, and start another one."""
        self.stop()
        self._process = self._start()

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "windlass", "--app", "app:queue", "serve", "--port", str(self.port)]
        with (Path(self._folder) / "log").open("ab") as log:
            return subprocess.Popen(words, cwd=self._folder, env=self._env, stdout=log, stderr=log)


@contextlib.contextmanager
def _served(url: str, src: Path) -> Iterator[_Server]:
    with tempfile.TemporaryDirectory(prefix="siege_") as folder:
        server = _Server(url, src, folder)
        try:
            yield server
        finally:
            server.stop()
