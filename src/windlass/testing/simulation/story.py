"""Run a seed, and shrink what fails to a short story."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock

from windlass.clock import ManualClock
from windlass.store.sqlite.connection import SqliteTx
from windlass.testing.simulation.checker import Violation
from windlass.testing.simulation.determinism import reseed, seeded
from windlass.testing.simulation.world import Step, World
from windlass.upkeep.membership import Place
from windlass.worker import parts

FAULTS = frozenset(
    {
        *("kill", "freeze", "cut off", "lost answer", "kill in write"),
        *("jump", "sleep", "restart", "disk full", "migration"),
    }
)
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
    # Whether it was still good when the faults stopped.
    in_calm: bool = False


def run(
    seed: int,
    *,
    steps: int = STEPS,
    faults: frozenset[str] = FAULTS,
    plan: Sequence[Step] | None = None,
    statements: bool = False,
    calm: bool = True,
) -> Story:
    """Play a seed; with a plan, its steps instead of those that the seed would choose.

    With `statements` the story names the SQL statements that each verb has run. Without `calm` it is over
    with its last step.
    """
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
        noted = _noted(world) if statements else nullcontext()
        try:
            with noted:
                for number in range(steps) if plan is None else range(len(plan)):
                    step = world.choose(chance) if plan is None else plan[number]
                    done.append(step)
                    (world.do if plan is None else world.do_if_possible)(step)
                if calm:
                    world.quieten(Random(seed))
        except Violation as error:
            broken = error
        finally:
            dump = world.checker.dump() if broken is None else ""
            world.close()
    return Story(seed, tuple(done), tuple(world.lines), world.verbs, dump, broken, world.calm)


def shrink(story: Story, *, faults: frozenset[str] = FAULTS, seconds: float = 30.0) -> Story:
    """The shortest story that still breaks the same promise, by leaving out more and more of its steps.

    It stops after `seconds` of one core with the shortest that it has found.
    """
    assert story.broken is not None  # noqa: S101 - there is nothing to shrink otherwise
    best, size = story, max(1, len(story.steps) // 2)
    end = time.process_time() + seconds
    while size:
        start = 0
        while start < len(best.steps) and time.process_time() < end:
            plan = best.steps[:start] + best.steps[start + size :]
            again = run(story.seed, faults=faults, plan=plan, calm=story.in_calm)
            if again.broken is not None and again.broken.promise == story.broken.promise:
                best = again
            else:
                start += size
        size //= 2
    return run(story.seed, faults=faults, plan=best.steps, statements=True)


@contextmanager
def _noted(world: World) -> Iterator[None]:
    """Note the name of each statement that is run."""
    noted: list[str] = []
    world.statements = noted

    def named(real: Callable[..., Any]) -> Callable[..., Any]:
        def run_it(tx: SqliteTx, names: str | Sequence[str], /, *args: Any, **values: Any) -> Any:
            noted.extend([names] if isinstance(names, str) else names)
            return real(tx, names, *args, **values)

        return run_it

    with ExitStack() as patches:
        for method in ("rows", "row", "change", "insert", "change_all", "search", "count"):
            patches.enter_context(mock.patch.object(SqliteTx, method, named(getattr(SqliteTx, method))))
        yield
