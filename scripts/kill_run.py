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
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.context import SpawnProcess
from pathlib import Path

import kill_app
from kill_stores import FilePlace, Place, ServerPlace

from proofs import lives  # kill_app lets these be found
from tests.history import result
from tests.history.check import Rules, check
from tests.history.end import look
from tests.history.processes import WINDLASS, Process
from tests.history.record import FILE, Call, Reader, Recorder, Verb
from windlass.errors import StoreError
from windlass.job import JobState

RULES = Rules(rerun=15.0)
KILL_EVERY = 1.0
STOP_WITHIN = 35.0
START_WITHIN = 60.0
BUSY_WITHIN = 15.0
PAUSE = 0.05
# What `windlass worker start` says when it cannot reach its store.
NO_STORE = 3


def main() -> int:
    """Run and report; 1 if a promise did not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=result.count, default=4, help="worker processes (default 4)")
    parser.add_argument("--slots", type=result.count, default=10, help="jobs at once in each (default 10)")
    parser.add_argument("--producers", type=result.count, default=4, help="producer processes (default 4)")
    parser.add_argument("--jobs", type=result.count, default=5000, help="jobs in all (default 5000)")
    parser.add_argument(
        "--seconds", type=result.count, default=20, help="how long to kill, once a second (default 20)"
    )
    parser.add_argument(
        "--wait", type=result.count, default=180, help="seconds for all jobs to end after that (default 180)"
    )
    parser.add_argument(
        "--slack",
        type=result.positive,
        default=1.0,
        help="how many times longer things may take here (default 1)",
    )
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL, which fails meanwhile")
    parser.add_argument("--seed", type=int, default=None, help="the same seed gives the same jobs")
    parser.add_argument("--keep", action="store_true", help="keep the folder with store and logs")
    result.add_option(parser)
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.randrange(2**32)
    folder = Path(tempfile.mkdtemp(prefix="kill_run_"))
    place = ServerPlace(options.seconds) if options.postgres else FilePlace(folder)
    try:
        held = run(options, folder, place)
    finally:
        place.close()
    if held and not options.keep:
        shutil.rmtree(folder)
    else:
        print(f"store and logs: {folder}")
    return 0 if held else 1


def run(options: argparse.Namespace, folder: Path, place: Place) -> bool:
    """All of it; whether every promise held."""
    recorder = Recorder(folder / "history")
    os.environ["WINDLASS_DATABASE_URL"] = place.url
    os.environ[FILE] = str(recorder.path)
    history = Reader(recorder.path)
    fleet = Fleet(folder, recorder, options.workers, options.slots)
    try:
        wait_for_the_fleet(options)
        producers = start_producers(options)
        busy_worker(options, fleet, history)
        place.begin(recorder)
        kills = list(killing(options, fleet, history))
        place.finish()
        for producer in producers:
            producer.join()
        ended = wait_for_the_end(options, fleet, history)
        codes = fleet.stop(STOP_WITHIN * options.slack)
    finally:
        fleet.end()
    end = look(kill_app.queue.store, place.url)
    verdict = check(history.read(), end, RULES.times(options.slack))
    shown = result.Result("kill-run", place.url, seed=options.seed)
    verdict.add_to(shown)
    shown.promise("as many kills as seconds", len(kills), held=len(kills) == options.seconds)
    # What a worker ran when it was chosen may have ended when it is killed.
    hits = sum(map(bool, kills))
    shown.promise("most kills hit running jobs", f"{hits} of {len(kills)}", held=hits > len(kills) / 2)
    shown.promise("workers end with exit code 0 when asked", codes, held=not any(codes))
    shown.promise("all jobs ended in time", held=ended)
    shown.promise("every producer finished", held=all(producer.exitcode == 0 for producer in producers))
    strange = lives.strange(end.jobs.values())
    shown.promise("every life is one of the lease model's", result.few(strange.items()), held=not strange)
    unsound = place.problems()
    shown.promise("the store's files are sound", result.few(unsound), held=not unsound)
    for outage in history.of(Verb.OUTAGE):
        print(f"{outage.note:<10} {recovery(outage, history)}")
    return shown.close(options.json)


def recovery(outage: Call, history: Reader) -> str:
    """How soon after an outage the first job began."""
    assert outage.end is not None
    later = [run.start - outage.end for run in history.of(Verb.RUN) if run.start > outage.end]
    next_one = f"the next job began {min(later):.2f} s later" if later else "no job began later"
    return f"{outage.end - outage.start:.2f} s away, {next_one}"


# --- workers and producers ----------------------------------------------------------------------


class Fleet:
    """The worker processes: killed and started again."""

    def __init__(self, folder: Path, recorder: Recorder, count: int, slots: int) -> None:
        self._log = folder / "workers.log"
        self._recorder = recorder
        self._slots = slots
        self._processes: dict[str, Process] = {}
        for _ in range(count):
            self.start()

    def start(self) -> None:
        """Start one more worker, as a person would."""
        words = [WINDLASS, "worker", "start", "kill_app:queue", "--concurrency", str(self._slots)]
        with self._log.open("ab") as log:
            process = Process(words, self._recorder, cwd=Path(__file__).parent, stderr=log)
        self._processes[process.name] = process

    def kill(self, name: str) -> None:
        """Kill one, and start another in its place."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        self.start()

    def alive(self) -> list[str]:
        """The processes that run; one that found no store at its start is started again."""
        for name, process in list(self._processes.items()):
            if process.poll() == NO_STORE:
                del self._processes[name]
                self.start()
        return [name for name, process in self._processes.items() if process.poll() is None]

    def stop(self, within: float) -> list[int]:
        """Ask all to end; their exit codes."""
        for process in self._processes.values():
            process.terminate()
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


def start_producers(options: argparse.Namespace) -> list[SpawnProcess]:
    """Let all producers begin."""
    share, rest = divmod(options.jobs, options.producers)
    spawn = multiprocessing.get_context("spawn")
    producers = [
        spawn.Process(target=kill_app.produce, args=(share + (number < rest), options.seed + number))
        for number in range(options.producers)
    ]
    for producer in producers:
        producer.start()
    return producers


def killing(options: argparse.Namespace, fleet: Fleet, history: Reader) -> Iterator[int]:
    """Kill a worker that runs something, every second, for as long as asked; how many jobs each cut off."""
    begun = time.monotonic()
    for number in range(1, options.seconds + 1):
        while time.monotonic() < begun + number * KILL_EVERY:
            time.sleep(PAUSE)
        name = busy_worker(options, fleet, history)
        if name is None:
            print(f"\nno worker is busy {number} s after the start: take more jobs", file=sys.stderr)
            return
        fleet.kill(name)
        history.read()
        cut_off = len(history.running().get(name, []))
        progress(f"{number:3} s: {cut_off:3} jobs cut off, {history.ended:6} executions ended")
        yield cut_off


def busy_worker(options: argparse.Namespace, fleet: Fleet, history: Reader) -> str | None:
    """One of those that run something; waits for the next moment at which there is one."""
    until = time.monotonic() + BUSY_WITHIN * options.slack
    while time.monotonic() < until:
        history.read()
        running = history.running()
        busy = [name for name in fleet.alive() if running.get(name)]
        if busy:
            return random.choice(busy)
        time.sleep(PAUSE)
    return None


def wait_for_the_end(options: argparse.Namespace, fleet: Fleet, history: Reader) -> bool:
    """Wait until nothing is pending or processing; False if it takes too long."""
    until = time.monotonic() + options.wait * options.slack
    while time.monotonic() < until:
        fleet.alive()
        try:
            counts = kill_app.queue.store.counts().counts
        except StoreError:
            continue
        left = sum(each.count for each in counts if each.state in {JobState.PENDING, JobState.PROCESSING})
        history.read()
        progress(f"waiting: {left:6} jobs left, {history.ended:6} executions ended")
        if not left:
            print()
            return True
        time.sleep(PAUSE * 5)
    print()
    return False


def progress(text: str) -> None:
    """One line that stays in its place."""
    print(f"\r{text:<78}", end="" if sys.stdout.isatty() else "\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
