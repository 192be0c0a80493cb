"""Run a seed, and shrink what fails to a short story."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import NamedTuple

from tests.interleaving.checker import ENDED, Checker
from tests.interleaving.deeds import wanting
from tests.interleaving.scenes import Scene
from tests.interleaving.stage import Stage
from tests.interleaving.turns import FAULTS, Actor, Stuck, Turns
from windlass.job import Error, Reason
from windlass.outcome import Again, Dead, Done
from windlass.store.engine import Settlement
from windlass.testing.simulation.checker import Violation

MOST_STEPS = 1500
_TICK = 0.001
_ROUNDS = 12
_MOST_IN_A_ROW = 25


class Choice(NamedTuple):
    """One step of a schedule: who goes on, and what happens to it."""

    actor: str
    fault: str = ""


class Story(NamedTuple):
    """What a run came to."""

    seed: int
    scene: str
    choices: tuple[Choice, ...]
    # The calls that were left out, by actor and place.
    without: frozenset[tuple[str, int]]
    lines: tuple[str, ...]
    broken: Violation | None

    @property
    def size(self) -> int:
        """How many steps it has."""
        return len(self.choices)

    @property
    def cost(self) -> tuple[int, int]:
        """How hard it is to read: its steps, and how often another actor goes on."""
        return self.size, sum(one.actor != next_one.actor for one, next_one in pairwise(self.choices))


def run(
    stage: Stage,
    seed: int,
    *,
    plan: Sequence[Choice] | None = None,
    without: frozenset[tuple[str, int]] = frozenset(),
) -> Story:
    """Play a seed; with a plan, its choices instead of those that the seed would make."""
    stage.reset()
    scene = Scene(stage, seed)
    for actor in scene.actors:
        actor.script = [deed for at, deed in enumerate(actor.script) if (actor.name, at) not in without]
    actors = [actor for actor in scene.actors if actor.script]
    turns = Turns(stage.observer, lambda: stage.clock.advance(_TICK))
    done: list[Choice] = []
    broken = None
    try:
        checker = Checker(stage.observer, scene.facts, actors)
        turns.begin(actors)
        chooser = _Chooser(seed) if plan is None else _Planned(plan)
        while turns.ready():
            choice = chooser.choose(turns.ready())
            done.append(choice)
            actor = next(each for each in actors if each.name == choice.actor)
            if turns.step(actor, choice.fault) or actor.state == "done":
                checker.look(turns.steps)
            if turns.steps > MOST_STEPS:
                checker.fail("ends", f"calls have not ended after {MOST_STEPS} steps")
        checker.look(turns.steps)
        checker.finish()
        _calm(stage, checker, turns.steps + 2)
    except Violation as error:
        broken = error
    except Stuck as error:
        broken = Violation("deadlock", str(error))
    finally:
        turns.end()
        stage.doubted |= broken is not None or any(choice.fault for choice in done)
    return Story(seed, scene.kind, tuple(done), without, tuple(turns.lines), broken)


class _Chooser:
    """Chooses by chance. Some seeds switch at nearly every statement; others let an actor run to its end.

    The latter have an order of the actors, and a few steps at which the one that runs becomes the last:
    these find what needs a call to be stopped late and another one to run whole.
    """

    def __init__(self, seed: int) -> None:
        self._chance = Random(f"schedule {seed}")
        self._stay = self._chance.choice((0.0, 0.5, 0.8, 0.9))
        self._ordered = self._chance.random() < 0.6
        within = self._chance.choice((5, 10, 30))
        self._demotions = self._chance.sample(range(2, within), self._chance.choice((1, 2, 3)))
        self._faults = self._chance.choice((0, 0, 0, 1, 1, 2))
        self._order: list[str] = []
        self._last = ""
        self._steps = self._in_a_row = 0

    def choose(self, ready: Sequence[Actor]) -> Choice:
        self._steps += 1
        names, before = [each.name for each in ready], self._last
        if self._ordered:
            self._last = self._first(names)
        elif self._last not in names or self._chance.random() >= self._stay:
            self._last = self._chance.choice(names)
        self._in_a_row = self._in_a_row + 1 if self._last == before else 0
        fault = ""
        if self._faults and self._chance.random() < 0.08:
            self._faults -= 1
            fault = self._chance.choice(FAULTS)
        return Choice(self._last, fault)

    def _first(self, names: Sequence[str]) -> str:
        # One that asks again and again for what another has locked lets that one go on.
        demoted = self._steps in self._demotions or self._in_a_row >= _MOST_IN_A_ROW
        if demoted and self._last in self._order:
            self._in_a_row = 0
            self._order.remove(self._last)
            self._order.append(self._last)
        for name in names:
            if name not in self._order:
                self._order.insert(self._chance.randint(0, len(self._order)), name)
        return next(name for name in self._order if name in names)


class _Planned:
    """Follows a plan as far as it is possible; then one actor after the other comes to its end."""

    def __init__(self, plan: Sequence[Choice]) -> None:
        self._left = list(plan)

    def choose(self, ready: Sequence[Actor]) -> Choice:
        names = [each.name for each in ready]
        while self._left:
            choice = self._left.pop(0)
            if choice.actor in names:
                return choice
        return Choice(names[0])


def _calm(stage: Stage, checker: Checker, step: int) -> None:
    """Let a worker end all that is left, without interleaving: nothing may be stuck, and nothing damaged."""
    house, types = stage.house, ("plain", "limited")
    for number in range(_ROUNDS):
        stage.clock.advance(timedelta(hours=1))
        left = house.expired(limit=100)
        lost = Error(Reason.LEASE_EXPIRED)
        house.settle(
            [
                Settlement(
                    each,
                    Dead(lost) if each.job.attempts >= each.job.max_attempts else Again(timedelta(0), lost),
                )
                for each in left
            ]
        )
        leases = house.claim(wanting("house", *types)).leases
        house.settle([Settlement(each, Done()) for each in leases])
        if not left and not leases and number > 1:
            break
    checker.look_at_end(step)
    if problems := house.check():
        checker.fail("check", problems[0])
    waiting = {each["child_id"] for each in checker.state["dependencies"]}
    stuck = [job for job, row in checker.jobs.items() if row["state"] not in ENDED and job not in waiting]
    if stuck:
        checker.fail("liveness", f"{stuck} did not end")


def shrink(stage: Stage, story: Story, *, replays: int = 120) -> Story:
    """The shortest story that still breaks the same promise: without calls, then without choices."""
    best, left = story, replays

    def still(plan: Sequence[Choice], without: frozenset[tuple[str, int]]) -> Story | None:
        nonlocal left
        left -= 1
        again = run(stage, story.seed, plan=plan, without=without)
        same = again.broken is not None and again.broken.promise == story.broken.promise  # type: ignore[union-attr]
        return again if same else None

    names = dict.fromkeys(each.actor for each in best.choices)
    for call in [(name, at) for name in names for at in (2, 1, 0)]:
        if (found := still(best.choices, best.without | {call})) is not None:
            best = found
    size = max(1, best.size // 2)
    while size and left > 0:
        start = 0
        while start < best.size and left > 0:
            found = still(best.choices[:start] + best.choices[start + size :], best.without)
            if found is not None and found.cost < best.cost:
                best = found
            else:
                start += size
        size //= 2
    return best
