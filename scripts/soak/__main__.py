"""Does it stay the same for an hour of load, kills, restarts and pruning?

Real processes: PostgreSQL (or a SQLite file), two servers with API keys, workers, an application, and
services that post 500 jobs a second, with bursts of 5,000. Meanwhile workers and a server are killed, the
other server restarts, PostgreSQL restarts at once, and retention deletes records of earlier days. At the end
the whole history is judged. Exit 1 if a promise was broken or something grew; an aim that was not met is only
shown, for it depends on the machine.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]

from bench.load import others  # noqa: E402 - found by the line above
from bench.machine import commit  # noqa: E402 - likewise
from soak import notes, portions, report, stores  # noqa: E402 - likewise
from soak.fleet import Fleet, prepare  # noqa: E402 - likewise
from soak.plan import Event, Plan  # noqa: E402 - likewise
from soak.samples import Sampler, columns  # noqa: E402 - likewise
from tests.history import result  # noqa: E402 - likewise
from tests.history.check import Rules  # noqa: E402 - likewise
from tests.history.record import FILE, Recorder, Verb  # noqa: E402 - likewise
from windlass import Queue, connect  # noqa: E402 - likewise
from windlass.errors import StoreError  # noqa: E402 - likewise
from windlass.job import JobState  # noqa: E402 - likewise

# Machines that do other things, too, take longer for everything.
RULES = Rules().times(6.0)
SAMPLE_SECONDS = 5.0
START_WITHIN = 120.0
DRAIN_WITHIN = 900.0
JUDGE_WITHIN = 1800.0
# After a fault or a burst, calls are calm again when this has passed.
SETTLED = 10.0
PLOTTED = 10.0


def main() -> int:
    """Run one soak, and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hours", type=result.positive, default=0.0, help="how long (default: an hour)")
    parser.add_argument(
        "--seconds", type=result.positive, default=0.0, help="how long, in seconds; 60 for a quick look"
    )
    parser.add_argument(
        "--scale", type=result.positive, default=1.0, help="times the usual rates (default 1)"
    )
    parser.add_argument("--store", choices=["postgres", "sqlite"], default="postgres")
    parser.add_argument("--seed", type=int, default=None, help="of when things happen, and to which worker")
    parser.add_argument(
        "--plots", type=Path, metavar="FOLDER", help="draw there (default: beside the result)"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder with store, history and logs")
    result.add_option(parser)
    options = parser.parse_args()
    if options.hours and options.seconds:
        parser.error("--hours and --seconds exclude each other")
    seconds = options.seconds or (options.hours or 1.0) * 3600
    seed = random.randrange(2**32) if options.seed is None else options.seed
    plan = Plan.of(options.store, seconds, options.scale, seed)
    folder = Path(tempfile.mkdtemp(prefix="soak_"))
    held = False
    try:
        with stores.opened(options.store, folder) as place:
            held = Soak(plan, folder, place).run(options.json, options.plots)
    finally:
        if held and not options.keep:
            shutil.rmtree(folder)
        else:
            print(f"store, history and logs: {folder}")
    return 0 if held else 1


class Soak:
    """One run."""

    def __init__(self, plan: Plan, folder: Path, place: stores.Place) -> None:
        self.plan = plan
        self.folder = folder
        self.place = place
        os.environ["WINDLASS_DATABASE_URL"] = place.url
        self.recorder = Recorder(folder / "history", "soak")
        os.environ[FILE] = str(self.recorder.path)
        self.fleet = Fleet(folder, self.recorder, place.url, plan.seed)
        self.past = plan.past()
        self.left = sum(self.past)
        self.prunings: list[tuple[float, float]] = []
        self._pruning = threading.Lock()
        # When calls were not calm, and what happened when.
        self.disturbed: list[tuple[float, float]] = []
        self.marks: dict[str, list[float]] = {}
        self.injected: Counter[str] = Counter()
        self._acting: list[threading.Thread] = []
        self._error: BaseException | None = None
        self._commit = commit()
        self.judged = portions.Judged()

    def run(self, file: Path | None, plots: Path | None) -> bool:
        """Load, judge, report."""
        say(f"seed {self.plan.seed}; filling in {self.left:,} records of {len(self.past)} earlier days")
        self.place.fill(self.past)
        from soak import app, web  # noqa: PLC0415 - they read the URL when they are imported

        with app.queue as queue:
            keys = prepare(queue, self.plan)
            web.create()
            sampler = Sampler(queue.store, self.place, self.fleet, self._sample_every())
            sampler.more = lambda: {"past": self.left, "pruned": sum(self.past) - self.left}
            try:
                self.fleet.start()
                self._await_start(queue)
                with others() as machine:
                    sampler.start()
                    self._load(keys, sampler)
                drained = self._drain(sampler)
                sampler.stop()
                self.fleet.stop()
            finally:
                self.fleet.end()
            shown = self._judge(drained=drained)
            return self._report(shown, sampler, machine.share, (file, plots))

    def _sample_every(self) -> float:
        return min(SAMPLE_SECONDS, max(1.0, self.plan.seconds / 60))

    def _await_start(self, queue: Queue) -> None:
        """Faults shall happen to a system that works, not to one that is still starting."""
        until = time.monotonic() + START_WITHIN
        ports = [*self.fleet.ports, self.fleet.web]
        while len(queue.store.workers()) < 3 or not all(map(self.fleet.serves, ports)):  # noqa: PLR2004 - workers
            if time.monotonic() > until:
                raise RuntimeError(
                    f"the processes did not start within {START_WITHIN:g} s; see {self.folder}"
                )
            time.sleep(0.1)

    # --- the load, and what is done meanwhile ---

    def _load(self, keys: list[str], sampler: Sampler) -> None:
        rates = {"posts": self.plan.posts, "batches": self.plan.batches, "orders": self.plan.orders}
        told = {"servers": self.fleet.ports, "web": self.fleet.web, "keys": keys, "rates": rates}
        told["seconds"] = self.plan.seconds
        calls = {"url": f"http://127.0.0.1:{self.fleet.ports[0]}", "keys": keys, "rate": self.plan.calls}
        callers = [
            self.fleet.caller("soak.load", given=told),
            self.fleet.caller("soak.callers", given=calls | {"seconds": self.plan.seconds}),
        ]
        begun = time.time()
        for event in self.plan.events():
            self._wait(begun + event.at, sampler)
            self._act(event, begun)
        self._wait(begun + self.plan.seconds, sampler)
        codes = [caller.wait(START_WITHIN) for caller in callers]
        for thread in self._acting:
            thread.join()
        if any(codes) or self._error is not None:
            raise RuntimeError(f"callers ended with {codes}; see {self.folder}") from self._error

    def _wait(self, until: float, sampler: Sampler) -> None:
        while (now := time.time()) < until:
            self.fleet.revive()
            if self._error is not None:
                raise RuntimeError(f"what was to happen did not; see {self.folder}") from self._error
            progress(f"{now - sampler.begun:6.0f} s: {sampler.depth:8,.0f} jobs live, {self._done()}")
            time.sleep(min(0.5, until - now))

    def _done(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in self.injected.items())

    def _act(self, event: Event, begun: float) -> None:
        """Let something happen; what takes a while has a thread of its own."""
        acts: dict[str, Callable[[], None]] = {
            "kill a worker": self.fleet.kill_worker,
            "burst": self._burst,
            "kill a server": lambda: self._end_server(kill=True),
            "restart a server": lambda: self._end_server(kill=False),
            "restart PostgreSQL": self._restart_store,
            "prune": self._prune,
        }
        self.injected[event.what] += 1
        self.marks.setdefault(event.what, []).append(round(time.time() - begun, 1))
        if event.what == "kill a worker":
            acts[event.what]()
            return

        def act() -> None:
            try:
                acts[event.what]()
            except BaseException as error:  # noqa: BLE001 - raised by _load
                self._error = error

        self._acting = [thread for thread in self._acting if thread.is_alive()]
        self._acting.append(threading.Thread(target=act, name=event.what, daemon=True))
        self._acting[-1].start()

    def _burst(self) -> None:
        begun = time.time()
        words = [str(self.plan.burst), str(self.plan.burst_seconds)]
        if self.fleet.caller("soak.burst", *words).wait() != 0:
            raise RuntimeError(f"a burst failed; see {self.folder}")
        # Until what it has left is done.
        while self._depth() > self.plan.posts:
            time.sleep(1.0)
        self.disturbed.append((begun, time.time() + SETTLED))

    def _depth(self) -> int:
        """Jobs that are due, as the store says; none while it is away."""
        from soak import app  # noqa: PLC0415 - as above

        try:
            return sum(each.count for each in app.queue.store.counts().counts if each.view == "due")
        except StoreError:
            return 0

    def _end_server(self, *, kill: bool) -> None:
        begun = time.time()
        self.fleet.end_server(kill=kill)
        while not self.fleet.serves(self.fleet.ports[0]):
            time.sleep(0.1)
        self.disturbed.append((begun, time.time() + SETTLED))

    def _restart_store(self) -> None:
        begun = time.time()
        with self.recorder.fault(Verb.OUTAGE, note="restart"):
            self.place.restart()
        self.disturbed.append((begun, time.time() + SETTLED))

    def _prune(self) -> None:
        """A day's records go: by the command that operators have."""
        with self._pruning:
            begun, kept = time.time(), len(self.past) - len(self.prunings)
            while self.fleet.command("db", "prune", "--ended", f"{kept}d").wait() != 0:
                time.sleep(1.0)
            self.prunings.append((begun, time.time()))
            self.left = self.place.left()

    # --- the end ---

    def _drain(self, sampler: Sampler) -> bool:
        until = time.monotonic() + DRAIN_WITHIN
        sampler.depth = 1.0
        while sampler.depth:
            if time.monotonic() > until:
                return False
            progress(f"waiting: {sampler.depth:8,.0f} jobs live")
            self.fleet.revive()
            time.sleep(0.5)
        return True

    def _judge(self, *, drained: bool) -> result.Result:
        say("\njudging the history")
        shown = result.Result("soak", self.place.url, seed=self.plan.seed)
        files = portions.split(self.recorder.path, self.folder / "portions")
        try:
            # The store's own check takes minutes with a million jobs.
            with closing(connect.open(self.place.url, patience=JUDGE_WITHIN)) as opened:
                self.judged = portions.judge(opened.store, self.place.url, files, RULES)
            shown.add(*self.judged.all())
        except StoreError as error:
            # What was measured is not lost with it.
            shown.promise("the history can be judged", error, held=False)
        shown.counts |= self.judged.counts
        shown.recovery = sorted(self.judged.recovery)
        shown.injected |= self.injected
        shown.promise("all jobs ended in time", held=drained)
        shown.promise("processes end with exit code 0 when asked", held=not any(self.fleet.codes))
        shown.promise("retention left nothing of the earlier days", self.left, held=not self.left)
        return shown

    def _report(
        self, shown: result.Result, sampler: Sampler, busy: float, out: tuple[Path | None, Path | None]
    ) -> bool:
        measured = self._measured(shown, sampler)
        rows, grown = report.aims(measured), report.growth(sampler.samples)
        for each in grown:
            detail = f"{each.first:,.1f}, then {each.second:,.1f}"
            shown.promises.append(result.Promise(f"{each.what} does not grow", each.stayed, detail))
        print()
        for line in report.table(rows, grown):
            print(line)
        print(f"others took {busy:.0%} of the machine meanwhile")
        document = self._document(shown, sampler, measured, rows) | {"others": round(busy, 3)}
        file = out[0]
        if file is not None:
            # Of the commit that ran, whatever has happened to the tree since.
            result.write_document(file, name="soak", commit=self._commit, **document)
        plots = out[1] or (self.folder if file is None else file.parent)
        stem = file.stem if file is not None else f"soak-{shown.store}"
        for part, text in report.draw(document).items():
            path = plots / f"{stem}-{part}.svg"
            path.write_text(text, encoding="utf-8")
            print(f"plot: {path}")
        return shown.close()

    def _measured(self, shown: result.Result, sampler: Sampler) -> report.Measured:
        disturbed, pruning = notes.Spans(self.disturbed), notes.Spans(self.prunings)
        calls = notes.by_kind(notes.read(self.folder / "notes"), disturbed)
        posts = sorted(
            note.took
            for note in notes.read(self.folder / "notes")
            if note.kind == "post" and note.done and note.due in pruning and note.due not in disturbed
        )
        in_load = [
            each for each in sampler.samples if each["seconds"] <= self.plan.seconds and "completed" in each
        ]
        first, last = in_load[0], in_load[-1]
        stored = sum(shown.counts.get(state.value, 0) for state in JobState)
        over = max((until for _, until in self.prunings), default=0.0) - sampler.begun
        return report.Measured(
            calls=calls,
            rate=(last["completed"] - first["completed"]) / (last["seconds"] - first["seconds"]),
            processed=shown.counts.get("completed", 0) / max(1.0, stored + shown.counts.get("lost", 0)),
            pairs=sum(caller.startswith("service") for caller, _ in self.judged.pairs),
            pruned=sum(self.past) - self.left,
            prune_seconds=sum(until - since for since, until in self.prunings),
            prune_span=max(self.plan.seconds, over),
            load_seconds=self.plan.seconds,
            post_p99_pruning=result.at(posts, 0.99) if posts else float("inf"),
            scale=self.plan.scale,
        )

    def _document(
        self,
        shown: result.Result,
        sampler: Sampler,
        measured: report.Measured,
        rows: list[report.Aim],
    ) -> dict[str, object]:
        path = self.folder / "notes"
        kinds = ("post", "batch", "order")
        return {
            "store": shown.store,
            "versions": result.versions(self.place.url),
            "seed": self.plan.seed,
            "seconds": self.plan.seconds,
            "scale": self.plan.scale,
            "plan": self.plan.document(),
            "injected": shown.injected,
            "counts": shown.counts,
            "promises": [each._asdict() for each in shown.promises],
            "recovery_seconds": [round(each, 3) for each in shown.recovery],
            "calls": {kind: calls.figures() for kind, calls in sorted(measured.calls.items())},
            "aims": [each._asdict() for each in rows],
            "marks": {what: moments for what, moments in self.marks.items() if what in SHOWN_MARKS},
            "samples": columns(sampler.samples),
            "latency": {kind: notes.series(notes.read(path), kind, sampler.begun, PLOTTED) for kind in kinds},
        }


SHOWN_MARKS = ("kill a server", "restart a server", "restart PostgreSQL", "burst")


def say(words: str) -> None:
    """A line of its own."""
    print(words, flush=True)


def progress(text: str) -> None:
    """One line that stays in its place; nothing where lines do not."""
    if sys.stdout.isatty():
        print(f"\r{text:<110}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
