"""The world: its processes, the steps that are possible, and the choice between them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from windlass.clock import ManualClock
from windlass.context import Context
from windlass.errors import StoreError
from windlass.testing.simulation.checker import Checker
from windlass.testing.simulation.determinism import reseed
from windlass.testing.simulation.people import Operator, Producer
from windlass.testing.simulation.process import Killed, Process
from windlass.testing.simulation.worker import Worker

_MOST_WORKERS = 3
# By how many seconds the wall clock is wrong at most.
_MOST_WRONG = 300
# How much a world likes a kind of step, by chance; those that it needs it never dislikes altogether.
_LIKES = (0.0, 0.3, 1.0, 1.0, 4.0)
_LIKES_NEEDED = (0.1, 0.3, 1.0, 3.0)
_NEEDED = frozenset({"new worker", "start", "claimer", "settler", "begin", "end"})
# By these the fleet finds out who is dead: where they come at random, no worker ever is.
_STEADY = frozenset({"time", "heartbeat", "reaper", "thaw", "heal"})
# However much people do, time goes on and workers work.
_MOST_PEOPLE = 4.0
# Time goes on to the next tick of a loop, or in leaps.
_LEAPS = (0.01, 1.0, 5.0, 31.0)
_LEAP_WEIGHTS = (0.5, 6, 0.1, 0.05)
# By when everything has ended after the last fault.
_CALM_SECONDS = 40_000.0
_CALM_STEPS = 20_000


class Step(NamedTuple):
    """One step: who does what, and the seed of what is chosen within it."""

    who: str
    what: str
    seed: int


class Started(NamedTuple):
    """A handler was called."""

    step: int
    job: str
    attempt: int
    fence: int


class World:
    """A store and those who use it, on one thread."""

    def __init__(self, folder: Path, clock: ManualClock, faults: frozenset[str]) -> None:
        self.path = folder / "jobs.db"
        self.url = f"sqlite:///{self.path}"
        self.clock = clock
        self.faults = faults
        self.verbs = self.steps = 0
        self.lines: list[str] = []
        self.started: list[Started] = []
        # No more faults: everything comes to its end.
        self.calm = False
        self._likes: dict[str, float] = {}
        self._made = 0
        self._wrong = 0
        self.workers: list[Worker] = []
        self.producer, self.operator = Producer(self), Operator(self)
        self.checker = Checker(self)

    # --- one step ---

    def choose(self, chance: random.Random) -> Step:
        """The next step, by chance among those that are possible."""
        options = [(who, what, weight * self._liking(what, chance)) for who, what, weight in self._options()]
        people = {self.producer.name, self.operator.name}
        asked = sum(weight for who, _, weight in options if who in people)
        share = min(1.0, _MOST_PEOPLE / asked) if asked else 1.0
        weights = [weight * (share if who in people else 1.0) for who, _, weight in options]
        [(who, what, _)] = chance.choices(options, weights)
        return Step(who, what, chance.getrandbits(48))

    def _liking(self, what: str, chance: random.Random) -> float:
        """Each world has its own character: in one no job is cancelled, in another workers freeze often."""
        if self.calm or what in _STEADY:
            return 1.0
        if what not in self._likes:
            self._likes[what] = chance.choice(_LIKES_NEEDED if what in _NEEDED else _LIKES)
        return self._likes[what]

    def _options(self) -> Iterable[tuple[str, str, float]]:
        # Mostly time waits until every process has done what is due; in calm it always does.
        busy = any(each.is_due() for each in self.workers)
        if not (self.calm and busy):
            yield "world", "time", 0.3 if busy else 20.0
        if sum(not each.drained for each in self.workers) < (1 if self.calm else _MOST_WORKERS):
            yield "world", "new worker", 1.0
        if "jump" in self.faults and not self.calm:
            yield "world", "jump", 0.1
        for process in self.workers if self.calm else self.processes:
            yield from ((process.name, what, weight) for what, weight in process.options())

    @property
    def processes(self) -> list[Process]:
        """All that are there."""
        return [self.producer, self.operator, *self.workers]

    def do(self, step: Step) -> bool:
        """Carry out a step; False if it is not possible now, as in a replay that leaves out others."""
        if not any((who, what) == step[:2] for who, what, _ in self._options()):
            return False
        self.steps += 1
        reseed(step.seed)
        self.note(f"{step.who}: {step.what}")
        if step.who == "world":
            self._do(step.what)
        else:
            self._let_do(next(each for each in self.processes if each.name == step.who), step.what)
        self.checker.check(step)
        return True

    def _let_do(self, process: Process, what: str) -> None:
        try:
            process.do(what)
        except Killed:
            process.kill()
        except StoreError as error:
            self.note(f"failed: {error}")
        self.workers = [each for each in self.workers if each.alive]

    def _do(self, what: str) -> None:
        if what == "time":
            self._pass_time()
        elif what == "jump":
            self._jump(random.randint(-_MOST_WRONG, _MOST_WRONG))
        else:
            self._made += 1
            self.workers.append(Worker(self, f"w{self._made}", random.choice((1, 2))))

    def _jump(self, wrong: int) -> None:
        self.clock.jump(timedelta(seconds=wrong - self._wrong))
        self._wrong = wrong

    def _pass_time(self) -> None:
        now = self.clock.monotonic()
        ticks = [each.next_tick for each in self.workers]
        wait = min((tick for tick in ticks if tick is not None), default=now + 1.0) - now
        if not self.calm:
            wait = random.choices((wait, *_LEAPS), (2, *_LEAP_WEIGHTS))[0]
        # Clocks go in microseconds: never a little less than until the next tick.
        self.clock.advance(min(math.ceil(wait * 1e6) / 1e6 + 1e-6, _LEAPS[-1]))

    # --- the end ---

    def quieten(self, chance: random.Random) -> None:
        """No more faults: everything that was accepted comes to its end, or a promise is broken."""
        self.calm = True
        for process in self.processes:
            process.heal()
        self._jump(0)
        self.operator.resume_all()
        end = self.clock.monotonic() + _CALM_SECONDS
        for _ in range(_CALM_STEPS):
            if not self.checker.unfinished():
                return
            if self.clock.monotonic() > end:
                break
            self.do(self.choose(chance))
        self.checker.fail("liveness", f"in calm, {self.checker.unfinished()} did not end")

    def close(self) -> None:
        """End every process."""
        for process in self.processes:
            process.heal()
            process.kill()
        self.checker.close()

    # --- what happened ---

    def note_start(self, process: Process, ctx: Context) -> None:
        """A handler was called."""
        self.started.append(Started(self.steps, ctx.id, ctx.attempt, ctx.fence))
        self.note(f"{process.name} runs {ctx.type} {ctx.id[-6:]}, attempt {ctx.attempt}")

    def note(self, line: str) -> None:
        """Add a line to the story."""
        self.lines.append(f"{self.steps:5d} {self.clock.monotonic():9.2f}  {line}")
