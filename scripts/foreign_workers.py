#!/usr/bin/env python3
"""Do the workers in sh and in JavaScript run a thousand jobs each while they are killed at random?

No worker of ours is there: the server takes back what the killed ones held. A limit is set, and the store is
asked all the time whether it holds.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.history import result  # found only by the line above
from tests.history.check import NOT_RECORDED, check
from tests.history.end import look
from tests.history.record import Reader, Recorder, Verb
from tests.server.process import ServerProcess
from tests.servers import postgres
from windlass import JobState, Queue
from windlass.job import View
from windlass.store.jobs import Filter

EXAMPLES = Path(__file__).parents[1] / "examples/http"
WORKERS = {"sh": ("sh", str(EXAMPLES / "worker.sh")), "js": ("node", str(EXAMPLES / "worker.mjs"))}
FLEET = 4
AT_ONCE = 6
KILL_EVERY = (1.0, 3.0)
# After the last kill what it held is given to others within 15 s; the rest is work.
PATIENCE = 600.0
MAJOR = 15


def main() -> int:
    """Run each kind on each store; 1 if a promise did not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1_000, help="for each kind of worker (default 1000)")
    parser.add_argument("--kind", choices=[*WORKERS, "both"], default="both")
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="postgres")
    result.add_option(parser)
    options = parser.parse_args()
    kinds = list(WORKERS) if options.kind == "both" else [options.kind]
    for kind in kinds:
        if shutil.which(WORKERS[kind][0]) is None:
            print(f"there is no {WORKERS[kind][0]} here: apt-get install {WORKERS[kind][0]}")
            return 1
    held = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in kinds:
            file = result.file_for(options.json, kind, several=len(kinds) > 1)
            if options.store == "sqlite":
                held &= run(f"sqlite:///{folder}/{kind}.db", folder, kind, options.jobs).close(file)
            else:
                with postgres.running(MAJOR) as server:
                    held &= run(server.new_database(), folder, kind, options.jobs).close(file)
    return 0 if held else 1


class Fleet:
    """Workers in another language, of which one is killed now and then."""

    def __init__(self, kind: str, url: str, recorder: Recorder) -> None:
        self._recorder = recorder
        self._command = WORKERS[kind]
        self._environment = os.environ | {"WINDLASS_URL": url}
        self._workers = [self._start() for _ in range(FLEET)]
        self.kills = 0

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill_one(self) -> None:
        """Kill one with whatever it has started; another takes its place."""
        worker = self._workers.pop(random.randrange(len(self._workers)))
        with self._recorder.fault(Verb.KILL, str(worker.pid)):
            _kill(worker)
        self.kills += 1
        self._workers.append(self._start())

    def end(self) -> None:
        """Nobody works any more."""
        for worker in self._workers:
            _kill(worker)


def _kill(worker: subprocess.Popen[bytes]) -> None:
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def run(url: str, folder: Path, kind: str, count: int) -> result.Result:
    """One kind of worker on one store."""
    shown = result.Result(f"foreign-workers-{kind}", url)
    recorder = Recorder(folder / f"{kind}-history")
    with Queue(url) as queue:

        @queue.job(max_attempts=20, concurrency=AT_ONCE)
        def greet(name: str) -> str:
            return f"hello, {name}"

        queue.publish()
        recorder.enqueue(queue.store, [greet.draft(f"n{number}") for number in range(count)])
        house = ServerProcess(url, folder)
        fleet = Fleet(kind, house.url, recorder)
        begun = time.monotonic()
        next_kill, most = begun + KILL_EVERY[1], 0
        left = count
        try:
            while left and time.monotonic() < begun + PATIENCE:
                if time.monotonic() > next_kill:
                    fleet.kill_one()
                    next_kill = time.monotonic() + random.uniform(*KILL_EVERY)
                most = max(most, queue.store.count(Filter(states=(JobState.PROCESSING,)), limit=100))
                waiting = sum(
                    queue.store.count(Filter(view=view), limit=count) for view in (View.DUE, View.RETRYING)
                )
                left = waiting + queue.store.count(Filter(states=(JobState.PROCESSING,)), limit=count)
                time.sleep(0.05)
        finally:
            fleet.end()
            house.stop()
        seconds = time.monotonic() - begun
        # What these workers run is not recorded: they are the examples as they are.
        end = look(queue.store, url)
        check(Reader(recorder.path).read(), end, NOT_RECORDED).add_to(shown)
    print(f"{kind} on {shown.store}: {seconds:.0f} s")
    wrong = [job.id for job in end.jobs.values() if job.state is not JobState.COMPLETED]
    shown.promise("every job completed", result.few(wrong), held=not wrong)
    shown.promise(f"at most {AT_ONCE} at once", most, held=most <= AT_ONCE)
    shown.promise("workers were killed", fleet.kills, held=fleet.kills > 0)
    expected = {f'"hello, n{number}"' for number in range(count)}
    results = {bytes(job.result or b"").decode() for job in end.jobs.values()}
    shown.promise("the results are those of the jobs", held=results == expected)
    shown.counts["ran again"] = sum(job.attempts > 1 for job in end.jobs.values())
    return shown


if __name__ == "__main__":
    sys.exit(main())
