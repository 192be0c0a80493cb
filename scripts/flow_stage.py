"""Where do the storms of the flow take place? A store, a fleet that can be killed, and a verdict."""

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

# The servers of the tests lie beside the scripts.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.history import result
from tests.history.check import Rules, check
from tests.history.end import look_at
from tests.history.processes import WINDLASS, Process
from tests.history.record import FILE, Reader, Recorder
from tests.servers import postgres
from windlass.store.jobs import Filter

STOP_WITHIN = 40.0
PAUSE = 0.02


class Stage:
    """A folder, a store in it or on a server, workers, and what they are seen to do."""

    def __init__(self, folder: Path, url: str, name: str) -> None:
        self.folder = folder
        self.url = url
        self.recorder = Recorder(folder / "history")
        self.history = Reader(self.recorder.path)
        self.result = result.Result(name, url)
        self.promise = self.result.promise
        self._workers: list[Process] = []
        self.kills = 0

    def start(self, *types: str) -> None:
        """Start one more worker."""
        chosen = ["--types", ",".join(types)] if types else []
        words = [WINDLASS, "worker", "start", "flow_app:queue", "--no-shell", *chosen]
        with (self.folder / "workers.log").open("ab") as log:
            self._workers.append(Process(words, self.recorder, cwd=Path(__file__).parent, stderr=log))

    def kill_one(self, *types: str) -> None:
        """Kill a worker at random and start another one in its place."""
        worker = self._workers.pop(random.randrange(len(self._workers)))
        worker.kill()
        worker.wait()
        self.kills += 1
        self.start(*types)

    def judge(self, rules: Rules, where: Filter | None = None) -> None:
        """Stop the workers, and hold the whole history against what the store shows."""
        self.stop()
        check(self.history.read(), look_at(self.url, where), rules).add_to(self.result)

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
            worker.terminate()
        until = time.monotonic() + STOP_WITHIN
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(max(0.1, until - time.monotonic()))
            if worker.poll() is None:
                worker.kill()
                worker.wait()


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
    result.add_option(parser)
    options = parser.parse_args()
    held = True
    kinds = [options.store] if options.store else ["sqlite", "postgres"]
    for kind in kinds:
        with contextlib.ExitStack() as closing:
            stage = _stage(kind, closing)
            run(stage, options)
            held &= stage.result.close(result.file_for(options.json, kind, several=len(kinds) > 1))
    return 0 if held else 1


def _stage(kind: str, closing: contextlib.ExitStack) -> Stage:
    folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="flow_")))
    if kind == "sqlite":
        url = f"sqlite:///{folder}/jobs.db"
    else:
        url = closing.enter_context(postgres.fresh(max(postgres.majors())))
    os.environ["WINDLASS_DATABASE_URL"] = url
    os.environ["FLOW_UP"] = str(folder / "up")
    stage = Stage(folder, url, Path(sys.argv[0]).stem.replace("_", "-"))
    os.environ[FILE] = str(stage.recorder.path)
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
