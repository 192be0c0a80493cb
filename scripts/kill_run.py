#!/usr/bin/env python3
"""Is any accepted job lost when workers are killed at random under load?

Starts workers on one SQLite file, lets producers enqueue jobs of mixed length from processes of their own,
kills a worker that is running something every second, starts another in its place, and then checks every
promise against what the producers were answered and what the handlers wrote down. Exit 1 if one is broken.

With --postgres the store is a primary with a synchronous standby; meanwhile the primary is restarted twice
without a farewell and then killed for good, and the standby takes its place.
"""

import argparse
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.context import SpawnProcess
from pathlib import Path

import kill_app
from kill_stores import FilePlace, Place, ServerPlace
from kill_verdict import Bounds, Facts, Kill, Log

from windlass.errors import StoreError
from windlass.job import Job, JobState
from windlass.store.jobs import Filter

KILL_EVERY = 1.0
STOP_WITHIN = 35.0
START_WITHIN = 60.0
PAUSE = 0.05
# What `windlass worker start` says when it cannot reach its store.
NO_STORE = 3


def main() -> int:
    """Run and report; 1 if a promise did not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, default=4, help="worker processes (default 4)")
    parser.add_argument("--slots", type=int, default=10, help="jobs at once in each (default 10)")
    parser.add_argument("--producers", type=int, default=4, help="producer processes (default 4)")
    parser.add_argument("--jobs", type=int, default=5000, help="jobs in all (default 5000)")
    parser.add_argument(
        "--seconds", type=int, default=20, help="how long to kill, once a second (default 20)"
    )
    parser.add_argument(
        "--wait", type=int, default=180, help="seconds for all jobs to end after that (default 180)"
    )
    parser.add_argument(
        "--slack", type=float, default=1.0, help="how many times longer things may take here (default 1)"
    )
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL, which fails meanwhile")
    parser.add_argument("--seed", type=int, default=None, help="the same seed gives the same jobs")
    parser.add_argument("--keep", action="store_true", help="keep the folder with store and logs")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kill_run_"))
    place = ServerPlace(options.seconds) if options.postgres else FilePlace(folder)
    try:
        held = run(options, folder, place)
    finally:
        place.close()
    if held and not options.keep:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    else:
        print(f"store and logs: {folder}")
    return 0 if held else 1


def run(options: argparse.Namespace, folder: Path, place: Place) -> bool:
    """All of it; whether every promise held."""
    os.environ["WINDLASS_DATABASE_URL"] = place.url
    os.environ["KILL_RUN_LOG"] = str(folder / "executions.log")
    log = Log(folder / "executions.log")
    fleet = Fleet(folder, options.workers, options.slots)
    try:
        wait_for_the_fleet(options)
        producers, answers = start_producers(options, folder)
        busy_worker(options, fleet, log)
        place.begin()
        kills = list(killing(options, fleet, log))
        place.finish()
        for producer in producers:
            producer.join()
        ended = wait_for_the_end(options, fleet, log)
        codes = fleet.stop(STOP_WITHIN * options.slack)
    finally:
        fleet.end()
    log.read()
    accepted = [line for file in answers for line in file.read_text().split()]
    facts = Facts(place, log.all(), kills, accepted, all_jobs(), Bounds().times(options.slack))
    facts.promise("as many kills as seconds", held=len(kills) == options.seconds, told=str(len(kills)))
    facts.promise("workers end with exit code 0 when asked", held=not any(codes), told=str(codes))
    facts.promise("all jobs ended in time", held=ended)
    facts.promise("every producer finished", held=all(producer.exitcode == 0 for producer in producers))
    return facts.report()


# --- workers and producers ----------------------------------------------------------------------


class Fleet:
    """The worker processes: killed and started again."""

    def __init__(self, folder: Path, count: int, slots: int) -> None:
        self._folder = folder
        self._slots = slots
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for _ in range(count):
            self.start()

    def start(self) -> None:
        """Start one more worker, as a person would."""
        windlass = Path(sys.executable).with_name("windlass")
        app = "kill_app:queue"
        with (self._folder / "workers.log").open("ab") as log:
            process = subprocess.Popen(
                [windlass, "worker", "start", app, "--concurrency", str(self._slots)],
                cwd=Path(__file__).parent,
                stderr=log,
            )
        self._processes[process.pid] = process

    def kill(self, pid: int) -> Kill:
        """Kill one, and start another in its place."""
        process = self._processes.pop(pid)
        process.kill()
        killed = Kill(time.time(), pid)
        process.wait()
        self.start()
        return killed

    def alive(self) -> list[int]:
        """The processes that run; one that found no store at its start is started again."""
        for pid, process in list(self._processes.items()):
            if process.poll() == NO_STORE:
                del self._processes[pid]
                self.start()
        return [pid for pid, process in self._processes.items() if process.poll() is None]

    def stop(self, within: float) -> list[int]:
        """Ask all to end; their exit codes."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        return [process.wait(within) for process in self._processes.values()]

    def end(self) -> None:
        """Leave nothing behind, whatever happened."""
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()


def wait_for_the_fleet(options: argparse.Namespace) -> None:
    """What happens to the store shall happen to workers that work, not to such as are still starting."""
    within = START_WITHIN * options.slack
    until = time.monotonic() + within
    while len(kill_app.queue.store.workers()) < options.workers:
        if time.monotonic() > until:
            raise SystemExit(f"the workers did not start within {within:g} s")
        time.sleep(PAUSE)


def start_producers(options: argparse.Namespace, folder: Path) -> tuple[list[SpawnProcess], list[Path]]:
    """Let all producers begin; each writes down what was answered."""
    share, rest = divmod(options.jobs, options.producers)
    spawn = multiprocessing.get_context("spawn")
    seed = random.randrange(2**32) if options.seed is None else options.seed
    producers, answers = [], []
    for number in range(options.producers):
        answers.append(folder / f"accepted-{number}.txt")
        count = share + (number < rest)
        producers.append(spawn.Process(target=kill_app.produce, args=(count, seed + number, answers[-1])))
        producers[-1].start()
    return producers, answers


def killing(options: argparse.Namespace, fleet: Fleet, log: Log) -> Iterator[Kill]:
    """Kill a worker that runs something, every second, for as long as asked."""
    begun = time.monotonic()
    for number in range(1, options.seconds + 1):
        while time.monotonic() < begun + number * KILL_EVERY:
            time.sleep(PAUSE)
        pid = busy_worker(options, fleet, log)
        if pid is None:
            print(f"\nno worker is busy {number} s after the start: take more jobs", file=sys.stderr)
            return
        kill = fleet.kill(pid)
        log.read()
        kill.cut_off = log.running().get(pid, [])
        progress(f"{number:3} s: {len(kill.cut_off):3} jobs cut off, {log.ended():6} executions ended")
        yield kill


def busy_worker(options: argparse.Namespace, fleet: Fleet, log: Log) -> int | None:
    """One of those that run something; waits for the next moment at which there is one."""
    for _ in range(int(Bounds().times(options.slack).rerun / PAUSE)):
        log.read()
        running = log.running()
        busy = [pid for pid in fleet.alive() if running.get(pid)]
        if busy:
            return random.choice(busy)
        time.sleep(PAUSE)
    return None


def wait_for_the_end(options: argparse.Namespace, fleet: Fleet, log: Log) -> bool:
    """Wait until nothing is pending or processing; False if it takes too long."""
    until = time.monotonic() + options.wait * options.slack
    while time.monotonic() < until:
        fleet.alive()
        try:
            counts = kill_app.queue.store.counts().counts
        except StoreError:
            continue
        left = sum(each.count for each in counts if each.state in {JobState.PENDING, JobState.PROCESSING})
        log.read()
        progress(f"waiting: {left:6} jobs left, {log.ended():6} executions ended")
        if not left:
            print()
            return True
        time.sleep(PAUSE * 5)
    print()
    return False


def progress(text: str) -> None:
    """One line that stays in its place."""
    print(f"\r{text:<78}", end="" if sys.stdout.isatty() else "\n", flush=True)


def all_jobs() -> dict[str, Job]:
    """Everything that the store holds, by id."""
    found: dict[str, Job] = {}
    cursor: str | None = None
    while True:
        page = kill_app.queue.store.find(Filter(), limit=1000, cursor=cursor)
        found |= {job.id: job for job in page.jobs}
        cursor = page.next
        if cursor is None:
            return found


if __name__ == "__main__":
    sys.exit(main())
