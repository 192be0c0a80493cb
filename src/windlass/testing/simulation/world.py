"""The world: its processes, the steps that are possible, and the choice between them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from windlass.clock import ManualClock
from windlass.context import Context
from windlass.errors import FatalError, Snooze, StoreError, WindlassError
from windlass.job import NewJob
from windlass.ops import Ops
from windlass.testing.simulation.checker import Checker
from windlass.testing.simulation.determinism import reseed
from windlass.testing.simulation.process import Killed, Process, When
from windlass.testing.simulation.worker import Worker

TYPES = ("plain", "limited", "flaky")
LIMIT = 2
EVERY = 30
_MOST_WORKERS = 3
_MOST_JOBS = 60
_KEYS = 6
_UNIQUE = 3
_JUMP = 300
# How long the world may take to finish everything after the last fault.
_CALM_SECONDS = 40_000.0
_CALM_STEPS = 20_000
# How much a world likes a kind of step, by chance; these it needs.
_LIKES = (0.0, 0.3, 1.0, 1.0, 4.0)
_PEOPLE = frozenset({"producer", "operator"})
_MOST_PEOPLE = 4.0
_NEEDED = (0.1, 0.3, 1.0, 3.0)
_ALWAYS = frozenset(
    {"time", "new worker", "start", "claimer", "settler", "heartbeat", "begin", "end", "thaw", "heal"}
)
# Loops that only report or look after the house come seldom, and some must not win every race.
_WEIGHTS = dict.fromkeys(("ledger", "ticks", "settings", "pruner", "timeouts", "verifier"), 1.0) | {
    "heartbeat": 6.0
}


class Step(NamedTuple):
    """One step: who does what, and the seed of what is chosen within it."""

    who: str
    what: str
    seed: int


class Call(NamedTuple):
    """Something that a producer or an operator asked for, and the answer it got (None: it got none)."""

    step: int
    verb: str
    asked: Any
    answer: Any


class World:
    """A store and those who use it, on one thread."""

    def __init__(self, folder: Path, clock: ManualClock, faults: frozenset[str]) -> None:
        self.url = f"sqlite:///{folder}/jobs.db"
        self.path = folder / "jobs.db"
        self.clock = clock
        self.faults = faults
        self.verbs = 0
        self.steps = 0
        self.lines: list[str] = []
        self.calls: list[Call] = []
        # Which handler was called where: (step, process, job, attempt, token's fence).
        self.started: list[tuple[int, str, str, int, int]] = []
        self.calm = False
        self.limit = LIMIT
        self._likes: dict[str, float] = {}
        self.processes: dict[str, Process] = {}
        self._made = 0
        # Drafts whose answer was lost: a producer sends the same again.
        self._unsure: list[tuple[str, Any]] = []
        self.producer = self._join(Process(self, "producer", 1))
        self.operator = self._join(Process(self, "operator", 1))
        self.ops = Ops(self.operator.store, by="operator")
        self.checker = Checker(self)

    # --- the application ---

    def app(self, process: Process) -> None:
        """What every process of a release imports."""
        queue = process.queue

        def handle(ctx: Context, number: int) -> dict[str, int]:
            self.started.append((self.steps, process.name, ctx.id, ctx.attempt, ctx.fence))
            self.tell(f"{process.name} runs {ctx.type} {_short(ctx.id)}, attempt {ctx.attempt}")
            return self._handle(ctx, queue, number)

        def tick(ctx: Context) -> None:
            handle(ctx, 0)

        for name in TYPES:
            options: dict[str, Any] = {"concurrency": LIMIT} if name == "limited" else {}
            queue.job(name=name, max_attempts=3, **options)(handle)
        queue.job(name="tick", every=EVERY if process.release == 1 else 2 * EVERY, max_attempts=2)(tick)

    def _handle(self, ctx: Context, queue: Any, number: int) -> dict[str, int]:
        luck = 0.0 if self.calm else random.random()
        if luck > 0.95:
            raise FatalError("hopeless")
        if luck > 0.75 or (ctx.type == "flaky" and luck > 0.4):
            raise ValueError("bad luck")
        if luck > 0.7:
            raise Snooze(timedelta(seconds=random.choice((1, 20))))
        if luck > 0.65 and ctx.type != "tick":
            ctx.enqueue(queue.draft("plain", {"number": number + 1000}))
        elif luck > 0.55:
            with ctx.transaction() as connection:
                connection.execute("insert into effects values (?)", (ctx.id,))
        return {"number": number}

    # --- one step ---

    def choose(self, chance: random.Random) -> Step:
        """The next step, by chance among those that are possible."""
        options = [(who, what, weight * self._liking(what, chance)) for who, what, weight in self._options()]
        # However much they do, time goes on and workers work.
        people = sum(weight for who, _, weight in options if who in _PEOPLE) or 1.0
        share = min(1.0, _MOST_PEOPLE / people)
        options = [(who, what, weight * (share if who in _PEOPLE else 1)) for who, what, weight in options]
        total = sum(weight for _, _, weight in options)
        place = chance.random() * total
        for who, what, weight in options:
            place -= weight
            if place <= 0:
                break
        return Step(who, what, chance.getrandbits(48))

    def _liking(self, what: str, chance: random.Random) -> float:
        """Each world has its own character: here nobody cancels, there workers freeze all the time."""
        if self.calm:
            return 1.0
        if what not in self._likes:
            self._likes[what] = chance.choice(_NEEDED if what in _ALWAYS else _LIKES)
        return self._likes[what]

    def do(self, step: Step) -> bool:
        """Carry out a step; False if it is not possible now, as in a replay that leaves out others."""
        if not any((who, what) == step[:2] for who, what, _ in self._options()):
            return False
        self.steps += 1
        reseed(step.seed)
        self.tell(f"{step.who}: {step.what}")
        process = self.processes.get(step.who)
        try:
            self._act(step, process)
        except Killed:
            pass
        except StoreError as error:
            self.tell(f"failed: {error}")
        if process is not None and not process.alive and process.name in self.processes:
            self._bury(process)
        self.checker.check(step)
        return True

    def _options(self) -> Iterable[tuple[str, str, float]]:
        now = self.clock.monotonic()
        workers = [each for each in self.processes.values() if isinstance(each, Worker)]
        busy = False
        for worker in workers:
            if not worker.acts:
                if worker.frozen:
                    yield worker.name, "thaw", 3.0 if self.checker.is_dead(worker) else 0.2
                continue
            if not worker.started:
                yield worker.name, "start", 5
                continue
            due = worker.due(now)
            busy = busy or bool(due)
            # What a worker does that others took for dead is where it gets interesting.
            stale = 5.0 if self.checker.is_dead(worker) else 1.0
            yield from ((worker.name, name, _WEIGHTS.get(name, 6.0 * stale)) for name in due)
            if worker.hands.waiting:
                yield worker.name, "begin", 4 * stale
            if worker.hands.running:
                yield worker.name, "end", 4 * stale
            if worker.drained and worker.idle:
                yield worker.name, "leave", 2
            if not self.calm:
                yield from self._faults_of(worker)
            elif worker.away:
                yield worker.name, "heal", 5
        yield "world", "time", 2 if busy else 20
        if len([each for each in workers if not each.drained]) < (1 if self.calm else _MOST_WORKERS):
            yield "world", "new worker", 1.0
        if not self.calm:
            yield from self._people()

    def _faults_of(self, worker: Worker) -> Iterable[tuple[str, str, float]]:
        # Somebody must be left who notices.
        others = any(
            each.acts and not each.away
            for each in self.processes.values()
            if each not in self._bystanders(worker)
        )
        busy = (3.0 if worker.hands.running else 0.1) if others else 0.0
        weights = {
            "kill": 0.15,
            "freeze": busy,
            "cut off": busy / 2,
            "lost answer": 0.4,
            "kill in write": 0.2,
        }
        for fault, weight in weights.items():
            if fault in self.faults:
                yield worker.name, fault, weight
        if worker.away:
            yield worker.name, "heal", 3.0 if self.checker.is_dead(worker) else 0.3

    def _bystanders(self, worker: Worker) -> tuple[Process, ...]:
        return worker, self.producer, self.operator

    def _people(self) -> Iterable[tuple[str, str, float]]:
        if self.checker.live < _MOST_JOBS:
            for what in (
                "enqueue",
                "enqueue many",
                "enqueue key",
                "enqueue unique",
                "enqueue child",
                "batch",
            ):
                yield "producer", what, 0.6
        for what in (
            "cancel",
            "bury",
            "replay",
            "priority",
            "pause",
            "resume",
            "limit",
            "drain",
            "run schedule",
        ):
            yield "operator", what, 0.25
        if "clock" in self.faults:
            yield "world", "jump", 0.1
        if "lost answer" in self.faults:
            yield "producer", "lost answer", 0.2
            yield "operator", "lost answer", 0.1
        yield "producer", "checkpoint", 0.1

    # --- what a step does ---

    def _act(self, step: Step, process: Process | None) -> None:
        what = step.what
        if isinstance(process, Worker):
            self._act_of_worker(what, process)
        elif what == "lost answer":
            assert process is not None  # noqa: S101 - the world has no answers to lose
            process.fault = (random.choice(list(When)), False)
        elif what == "checkpoint":
            writer = self.producer.store._writer  # type: ignore[attr-defined]  # noqa: SLF001
            writer._checkpointer.run(writer._connection)  # noqa: SLF001
        elif step.who == "producer":
            self._produce(what)
        elif step.who == "operator":
            self._operate(what)
        elif what == "time":
            self._pass_time()
        elif what == "new worker":
            self._made += 1
            release = random.choice((1, 2))
            self._join(Worker(self, f"w{self._made}", release))
        elif what == "jump":
            self.clock.jump(timedelta(seconds=random.randint(-_JUMP, _JUMP)))

    def _act_of_worker(self, what: str, worker: Worker) -> None:
        if what in worker.timers:
            worker.tick(what)
        elif what == "start":
            try:
                worker.start()
            except StoreError as error:
                self.tell(f"did not start: {error}")
                worker.kill()
        elif what == "begin":
            worker.begin(random.randrange(len(worker.hands.waiting)))
        elif what == "end":
            worker.end(random.randrange(len(worker.hands.running)))
        elif what == "leave":
            try:
                worker.leave()
            finally:
                worker.kill()
        elif what == "kill":
            worker.kill()
        elif what in ("freeze", "thaw"):
            worker.frozen = what == "freeze"
        elif what in ("cut off", "heal"):
            worker.away = what == "cut off"
        elif what in ("lost answer", "kill in write"):
            worker.fault = (random.choice(list(When)), what == "kill in write")

    def _pass_time(self) -> None:
        now = self.clock.monotonic()
        timers = [
            timer.at
            for each in self.processes.values()
            if isinstance(each, Worker) and each.acts
            for timer in each.timers.values()
            if timer.at > now
        ]
        nearest = min(timers, default=now + 1.0) - now
        if self.calm:
            # Not longer than a worker may be silent.
            self.clock.advance(max(nearest, 3.0))
        else:
            self.clock.advance(nearest if random.random() < 0.8 else random.choice((0.01, 0.5, 5.0, 31.0)))

    def _produce(self, what: str) -> None:
        queue, number = self.producer.queue, self.steps
        drafts: list[NewJob]
        if self._unsure and random.random() < 0.5:
            verb, asked = self._unsure.pop()
        elif what == "batch":
            verb, asked = (
                "batch",
                [queue.draft("plain", {"number": number}) for _ in range(random.randint(1, 3))],
            )
        else:
            kind = random.choice(TYPES)
            options: dict[str, Any] = {"priority": random.randint(0, 10)}
            if random.random() < 0.2:
                options["delay"] = random.choice((1, 20))
            if what == "enqueue key":
                number = random.randrange(_KEYS)
                kind, options["key"] = "plain", f"key{number}"
            elif what == "enqueue unique":
                until = random.choice(("start", "done"))
                options |= {"unique": f"name{random.randrange(_UNIQUE)}", "until": until}
                options["on_unique"] = random.choice(("skip", "replace"))
            elif what == "enqueue child" and self.checker.known:
                parents = random.sample(self.checker.known, min(2, len(self.checker.known)))
                options |= {"depends_on": parents, "on_dead": random.choice(("wait", "cancel", "run"))}
            count = 3 if what == "enqueue many" else 1
            verb = "enqueue"
            asked = [queue.draft(kind, {"number": number}, **options) for _ in range(count)]
        drafts = asked
        self._call(verb, asked, lambda: self._send(verb, drafts))

    def _send(self, verb: str, drafts: list[NewJob]) -> list[str]:
        queue = self.producer.queue
        if verb == "enqueue":
            return [handle.id for handle in queue.enqueue_many(drafts)]
        with queue.batch("some") as batch:
            batch.add(*drafts)
            batch.then(queue.draft("plain", {"number": 1}))
        return [handle.id for handle in batch.jobs]

    def _operate(self, what: str) -> None:
        ops, known = self.ops, self.checker.known
        worker = next((each for each in self.processes.values() if isinstance(each, Worker)), None)
        acts: dict[str, Callable[[str], Any]] = {
            "cancel": ops.cancel,
            "bury": ops.bury,
            "replay": ops.replay,
            "priority": lambda name: ops.priority(name, random.randint(0, 10)),
        }
        if what in acts and known:
            name = random.choice(self.checker.dead or known) if what == "replay" else random.choice(known)
            self._call(what, name, lambda: acts[what](name))
        elif what in ("pause", "resume"):
            kind = random.choice(TYPES)
            self._call(what, kind, lambda: getattr(ops, what)(kind))
        elif what == "limit":
            most = str(random.randint(1, LIMIT))
            self._call(what, most, lambda: ops.set_limit("limited", {"concurrency": most}))
        elif what == "drain" and worker is not None and worker.started and random.random() < 0.2:
            name = worker.parts.membership.id
            self._call(what, name, lambda: ops.drain(name))
        elif what == "run schedule":
            self._call(what, "tick", lambda: ops.schedules.run("tick"))

    def _call(self, verb: str, asked: Any, act: Callable[[], Any]) -> None:
        """Ask, and record the answer; one that does not come is None."""
        try:
            answer = act()
        except StoreError as error:
            self.tell(f"no answer: {error}")
            if verb == "enqueue":
                self._unsure.append((verb, asked))
            answer = None
        except WindlassError as error:
            # Refused: nothing was changed.
            self.tell(f"refused: {error}")
            return
        self.calls.append(Call(self.steps, verb, asked, answer))

    # --- life and death ---

    def _join(self, process: Process) -> Process:
        self.processes[process.name] = process
        return process

    def _bury(self, process: Process) -> None:
        if process.name in ("producer", "operator"):
            return
        del self.processes[process.name]
        process.kill()

    def quieten(self, chance: random.Random) -> None:
        """No more faults: everything that was accepted comes to its end. AssertionError if it does not."""
        self.calm = True
        for process in self.processes.values():
            process.fault, process.away, process.frozen = None, False, False
        for kind in TYPES:
            self._call("resume", kind, partial(self.ops.resume, kind))
        end = self.clock.monotonic() + _CALM_SECONDS
        for _ in range(_CALM_STEPS):
            if self.checker.is_over():
                return
            if self.clock.monotonic() > end:
                break
            self.do(self.choose(chance))
        self.checker.fail("liveness", f"after {_CALM_SECONDS:g} s of calm: {self.checker.unfinished()}")

    def tell(self, line: str) -> None:
        """Note what happens, for whoever reads the story."""
        self.lines.append(f"{self.steps:5d} {self.clock.monotonic():9.2f}  {line}")

    def close(self) -> None:
        """End every process."""
        for process in list(self.processes.values()):
            process.fault, process.away = None, False
            process.kill()
        self.checker.close()


def _short(job_id: str) -> str:
    return job_id[-6:]
