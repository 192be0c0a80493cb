"""Where do the storms of the flow take place? A store, a fleet that can be killed, and a verdict."""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

# The servers of the tests lie beside the scripts.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.servers import postgres

STOP_WITHIN = 40.0
PAUSE = 0.02


class Stage:
    """A folder, a store in it or on a server, and workers."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self._workers: list[subprocess.Popen[bytes]] = []
        self.kills = 0
        self.broken: list[str] = []

    def start(self, *types: str) -> None:
        """Start one more worker."""
        windlass = Path(sys.executable).with_name("windlass")
        chosen = ["--types", ",".join(types)] if types else []
        with (self.folder / "workers.log").open("ab") as log:
            self._workers.append(
                subprocess.Popen(
                    [windlass, "worker", "start", "flow_app:queue", "--no-shell", *chosen],
                    cwd=Path(__file__).parent,
                    stderr=log,
                )
            )

    def kill_one(self, *types: str) -> None:
        """Kill a worker at random and start another one in its place."""
        worker = self._workers.pop(random.randrange(len(self._workers)))
        worker.kill()
        worker.wait()
        self.kills += 1
        self.start(*types)

    def cpu(self) -> float:
        """How many seconds of CPU the workers have used."""
        total = 0
        for worker in self._workers:
            told = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
            total += int(told[11]) + int(told[12])
        return total / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """Ask all to end, and see to it that they do."""
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        until = time.monotonic() + STOP_WITHIN
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(max(0.1, until - time.monotonic()))
            if worker.poll() is None:
                worker.kill()
                worker.wait()

    def promise(self, what: str, told: str, *, held: bool) -> None:
        """Say whether a promise held."""
        print(f"  {'held  ' if held else 'BROKEN'} {what}: {told}")
        if not held:
            self.broken.append(what)


def perform(
    story: str | None,
    run: Callable[[Stage, argparse.Namespace], None],
    *,
    seconds: int,
    meaning: str,
    choices: dict[str, tuple[str, ...]] | None = None,
) -> int:
    """What a script does: run on each store, each time on a stage of its own; 1 if a promise did not hold."""
    parser = argparse.ArgumentParser(description=(story or "").partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=seconds, help=f"{meaning} (default {seconds})")
    parser.add_argument("--store", choices=["sqlite", "postgres"], help="only this one")
    for name, values in (choices or {}).items():
        parser.add_argument(f"--{name}", choices=values, help="only this one")
    options = parser.parse_args()
    broken: list[str] = []
    for kind in [options.store] if options.store else ["sqlite", "postgres"]:
        with contextlib.ExitStack() as closing:
            stage = _stage(kind, closing)
            run(stage, options)
            broken += stage.broken
    return 1 if broken else 0


def _stage(kind: str, closing: contextlib.ExitStack) -> Stage:
    folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="flow_")))
    if kind == "sqlite":
        url = f"sqlite:///{folder}/jobs.db"
    else:
        url = closing.enter_context(postgres.fresh(max(postgres.majors())))
    os.environ["WINDLASS_DATABASE_URL"] = url
    os.environ["FLOW_LOG"] = str(folder / "runs.log")
    os.environ["FLOW_UP"] = str(folder / "up")
    stage = Stage(folder, url)
    closing.callback(stage.stop)
    print(f"{kind}:")
    return stage


def until(holds: object, seconds: float) -> bool:
    """Wait until something holds; False if it never did."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if callable(holds) and holds():
            return True
        time.sleep(PAUSE)
    return False
