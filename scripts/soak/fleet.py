"""The processes of a soak: two servers, workers, an application, and those that make calls.

The first worker and the second server are never killed, so that growth can be seen in them.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from soak import notes
from soak.plan import SERVICES, Plan
from tests.history.processes import WINDLASS, Process
from tests.history.record import Recorder
from tests.servers.ports import free_port
from windlass import Queue
from windlass.ops import Ops
from windlass.ops.access import KeyWish

SCRIPTS = Path(__file__).parents[1]
MEGABYTE = 2**20
WORKERS = 3
STOP_WITHIN = 60.0
# What `windlass` says when it cannot reach its store.
NO_STORE = 3


class Fleet:
    """All processes that belong to the system under load."""

    def __init__(self, folder: Path, recorder: Recorder, url: str, seed: int) -> None:
        self._folder = folder
        self._recorder = recorder
        self._environment = {"WINDLASS_DATABASE_URL": url, notes.FILE: str(folder / "notes")}
        self._chance = random.Random(seed)
        self.ports = [free_port(), free_port()]
        self.web = free_port()
        self._processes: dict[str, Process] = {}
        self._numbers = 0
        self.codes: list[int] = []
        self._callers: list[Process] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start everything."""
        for number in range(len(self.ports)):
            self.start_server(number)
        words = [sys.executable, "-m", "uvicorn", "soak.web:app", "--port", str(self.web), "--no-access-log"]
        self._start("application", words)
        self._start_worker("steady worker")
        for _ in range(WORKERS - 1):
            self._start_worker()

    def start_server(self, number: int) -> None:
        """Start one server at its port."""
        words = [WINDLASS, "serve", "--port", str(self.ports[number])]
        self._start(("killed server", "steady server")[number], words)

    def serves(self, port: int) -> bool:
        """Whether a process listens there."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    def kill_worker(self) -> None:
        """Kill one of those that may be, and start another in its place."""
        killable = [name for name in self._processes if name.startswith("killed worker")]
        with self._lock:
            self._end(self._chance.choice(killable), kill=True)
            self._start_worker()

    def end_server(self, *, kill: bool) -> None:
        """End the first server, and start it again."""
        with self._lock:
            self._end("killed server", kill=kill)
            self.start_server(0)

    def revive(self) -> None:
        """Start again what found no store at its start; anything else that ended is an error."""
        with self._lock:
            for name, process in list(self._processes.items()):
                code = process.poll()
                if code == NO_STORE:
                    self._start(name, [str(word) for word in process.args])  # type: ignore[union-attr]
                elif code is not None:
                    raise RuntimeError(f"{name} ended with exit code {code}; see {self._folder}")

    def alive(self) -> Iterator[tuple[str, psutil.Process]]:
        """Every process with its name; a worker that was started later has the name of its place."""
        for name, process in list(self._processes.items()):
            with contextlib.suppress(psutil.NoSuchProcess):
                yield name, psutil.Process(process.pid)

    def stop(self) -> None:
        """Ask all to end: their exit codes are kept."""
        for process in self._processes.values():
            process.terminate()
        codes = {name: process.wait(STOP_WITHIN) for name, process in self._processes.items()}
        # The application is uvicorn's, which ends by the signal itself.
        self.codes = [code for name, code in codes.items() if name != "application"]
        self._processes.clear()

    def end(self) -> None:
        """Leave nothing behind, whatever happened."""
        for process in (*self._processes.values(), *self._callers):
            if process.poll() is None:
                process.kill()
                process.wait()

    def caller(self, module: str, *words: str, given: Mapping[str, Any] | None = None) -> Process:
        """Start a process that makes calls, which the caller waits for."""
        line = [sys.executable, "-m", module, *words]
        self._callers.append(self._popen(line, f"{module}.log", {"SOAK_LOAD": json.dumps(given or {})}))
        return self._callers[-1]

    def command(self, *words: str) -> Process:
        """Run a command of the command line."""
        return self._popen([WINDLASS, *words], "commands.log", {})

    def _end(self, name: str, *, kill: bool) -> None:
        process = self._processes.pop(name)
        process.kill() if kill else process.terminate()
        process.wait(STOP_WITHIN)

    def _start_worker(self, name: str = "") -> None:
        self._numbers += 1
        words = [WINDLASS, "worker", "start", "soak.app:queue"]
        self._start(name or f"killed worker {self._numbers}", words)

    def _start(self, name: str, words: Sequence[str]) -> None:
        self._processes[name] = self._popen(words, f"{name.rstrip(' 0123456789')}.log", {})

    def _popen(self, words: Sequence[str], log: str, more: Mapping[str, str]) -> Process:
        with (self._folder / log).open("ab") as output:
            return Process(
                words,
                self._recorder,
                env={**self._environment, **more},
                cwd=SCRIPTS,
                stdout=output,
                stderr=output,
            )


def prepare(queue: Queue, plan: Plan) -> list[str]:
    """What the store knows before the load: types, settings, a key for each service."""
    queue.publish()
    settings = {"keep_ended": "3650d", "soft_depth": "1000000000", "hard_depth": "1000000000"}
    for name, value in settings.items():
        queue.store.set_setting(name, value)
    ops = Ops(queue.store, wakeup=queue.wakeup, by="soak")
    rate = max(1.0, plan.posts)
    made = [
        ops.create_key(KeyWish(name=f"service{number:02}", roles=("producer",), rate=rate + 1000))
        for number in range(SERVICES)
    ]
    return [each.key for each in made if each.key is not None]
