"""Where does a scenario take place? A folder, a store, the processes it starts, and the promises it checks.

A scenario drives Windlass only through processes and HTTP and never imports it, so that `--src` can point it
at the source tree of another release.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

LOOK_SECONDS = 0.05
COMMAND_SECONDS = 120.0


class Scenario(NamedTuple):
    """A bad day: its number in the list of promises, what happens, and the function that plays it."""

    point: str
    name: str
    story: str
    play: Callable[[Stage], None]
    stores: tuple[str, ...] = ("sqlite", "postgres")


class Promise(NamedTuple):
    """One invariant, what was seen, and whether it held."""

    what: str
    seen: str
    held: bool


class Stage:
    """One scenario on one store."""

    def __init__(self, folder: Path, kind: str, url: str, src: Path) -> None:
        self.folder = folder
        self.kind = kind
        self.url = url
        self.src = src
        self.promises: list[Promise] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """What every process of this stage is started with."""
        ours = {"PYTHONPATH": str(self.src), "WINDLASS_DATABASE_URL": self.url, "PYTHONUNBUFFERED": "1"}
        return {**os.environ, **ours, **(more or {})}

    def write(self, name: str, text: str) -> Path:
        """Write a file, such as an application's module, into the stage's folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(
        self,
        *words: str,
        cwd: Path | None = None,
        log: str = "processes.log",
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Start `python WORDS...` in the background; both its outputs go to the log."""
        with (self.folder / log).open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=cwd or self.folder,
                env=self.environment(env),
                stdout=output,
                stderr=subprocess.STDOUT,
                **options,
            )
        self._processes.append(process)
        return process

    def worker(self, app: str, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start `windlass worker start APP`, and wait until it has joined."""
        log = options.pop("log", "workers.log")
        before = self.log(log).count("worker.started")
        process = self.start("-m", "windlass", "worker", "start", app, *words, log=log, **options)
        started = self.until(lambda: self.log(log).count("worker.started") > before, 60)
        if not started:
            raise StageBroken(f"the worker did not start:\n{self.log(log)[-2000:]}")
        return process

    def windlass(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of the command line to its end."""
        return self.python("-m", "windlass", *words, cwd=cwd)

    def python(
        self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `python WORDS...` to its end."""
        return subprocess.run(
            [sys.executable, *words],
            cwd=cwd or self.folder,
            env=self.environment(env),
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def json(self, *words: str) -> Any:
        """What a command answers with `--json`."""
        done = self.windlass(*words, "--json")
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise StageBroken(f"windlass {' '.join(words)}: {done.stdout}{done.stderr}") from None

    def jobs(self, *filters: str) -> list[dict[str, Any]]:
        """All jobs that match, whatever their number."""
        found: list[dict[str, Any]] = []
        cursor: list[str] = []
        while True:
            page = self.json("list", "--limit", "1000", *filters, *cursor)
            found += page["jobs"]
            if not page.get("next"):
                return found
            cursor = ["--cursor", page["next"]]

    def job(self, job: str) -> dict[str, Any]:
        """One job, with its attempts."""
        found: dict[str, Any] = self.json("show", job)
        return found

    def states(self, *filters: str) -> dict[str, int]:
        """How many jobs are in each state."""
        counts: dict[str, int] = {}
        for job in self.jobs(*filters):
            counts[job["state"]] = counts.get(job["state"], 0) + 1
        return counts

    def log(self, name: str = "workers.log") -> str:
        """What processes have printed so far."""
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    def until(self, holds: Callable[[], object], seconds: float) -> bool:
        """Whether something comes to hold within this time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if holds():
                return True
            time.sleep(LOOK_SECONDS)
        return bool(holds())

    def promise(self, what: str, *, held: bool, seen: object = "") -> None:
        """Record whether an invariant held, with what was seen."""
        self.promises.append(Promise(what, str(seen), held))
        print(f"    {'held  ' if held else 'BROKEN'} {what}: {seen}", flush=True)

    def close(self) -> None:
        """End every process that is left."""
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                    process.kill()
                process.wait()


class StageBroken(Exception):
    """The scenario could not be played; that counts as broken."""
