"""Run a seed, and shrink what fails to a short story."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest import mock

from windlass.clock import ManualClock
from windlass.testing.simulation.checker import Violation
from windlass.testing.simulation.determinism import reseed, seeded
from windlass.testing.simulation.world import Step, World
from windlass.upkeep.membership import Place
from windlass.worker import parts

FAULTS = frozenset({"kill", "freeze", "cut off", "lost answer", "kill in write", "jump"})
STEPS = 1000
# Files in memory, where the system has them.
_MEMORY = Path("/dev/shm")  # noqa: S108


class Story(NamedTuple):
    """What a run came to."""

    seed: int
    steps: tuple[Step, ...]
    lines: tuple[str, ...]
    verbs: int
    # What the store held in the end, byte for byte.
    dump: str
    broken: Violation | None


def run(
    seed: int, *, steps: int = STEPS, faults: frozenset[str] = FAULTS, plan: Sequence[Step] | None = None
) -> Story:
    """Play a seed; with a plan, its steps instead of those that the seed would choose."""
    clock, chance, done = ManualClock(), Random(seed), []
    where = _MEMORY if _MEMORY.is_dir() else None
    place = Place(host="simulated", boot="", pid_space="", pid=1, pid_started=1)
    with (
        tempfile.TemporaryDirectory(dir=where, prefix="windlass-") as folder,
        seeded(clock),
        mock.patch.object(parts, "here", return_value=place),
        mock.patch.object(parts, "resident", return_value=0),
    ):
        reseed(seed)
        world = World(Path(folder), clock, faults)
        broken = None
        try:
            for number in range(steps) if plan is None else range(len(plan)):
                step = world.choose(chance) if plan is None else plan[number]
                done.append(step)
                world.do(step)
            world.quieten(Random(seed))
        except Violation as error:
            broken = error
        finally:
            dump = "\n".join(world.checker._db.iterdump()) if broken is None else ""  # noqa: SLF001
            world.close()
    return Story(seed, tuple(done), tuple(world.lines), world.verbs, dump, broken)


def shrink(story: Story, *, faults: frozenset[str] = FAULTS) -> Story:
    """The shortest story that still breaks the same promise, by leaving out more and more of its steps."""
    assert story.broken is not None  # noqa: S101 - there is nothing to shrink otherwise
    best, size = story, max(1, len(story.steps) // 2)
    while size:
        start = 0
        while start < len(best.steps):
            plan = best.steps[:start] + best.steps[start + size :]
            again = run(story.seed, faults=faults, plan=plan)
            if again.broken is not None and again.broken.promise == story.broken.promise:
                best = again
            else:
                start += size
        size //= 2
    return best
