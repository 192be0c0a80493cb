"""A simulated worker: the real parts, whose loops tick when the world says so."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from windlass.config import WorkerConfig
from windlass.errors import StoreError
from windlass.job import Lease
from windlass.loop import Loop, pause_after
from windlass.outcome import Result
from windlass.testing.simulation.process import Process
from windlass.worker.parts import Parts
from windlass.worker.run import Run
from windlass.worker.shutdown import Shutdown

if TYPE_CHECKING:
    from windlass.testing.simulation.world import World

_LONGEST_PAUSE = 4.0


class Hands:
    """Stands in for the threads of a worker: a run begins and ends when the world says so."""

    def __init__(self) -> None:
        self.waiting: list[Run] = []
        self.running: list[tuple[Run, Result]] = []

    def start(self, run: Run) -> None:
        self.waiting.append(run)

    def carried(self) -> list[Run]:
        return [run for run, _ in self.running]

    def close(self) -> None:
        """Nothing to end."""


class Timer:
    """When a loop ticks next."""

    def __init__(self, loop: Loop, now: float) -> None:
        self.loop = loop
        self.at = now
        self._failures = 0

    def is_due(self, now: float) -> bool:
        # After a failure a wake-up does not shorten the pause.
        return now >= self.at or (not self._failures and self.loop._woken.is_set())  # noqa: SLF001

    def tick(self, now: Callable[[], float]) -> None:
        loop = self.loop
        loop._woken.clear()  # noqa: SLF001
        try:
            answer = loop._tick()  # noqa: SLF001
        except Exception:
            self._failures += 1
            self.at = now() + pause_after(self._failures, _LONGEST_PAUSE)
            raise
        self._failures = 0
        self.at = now() + (loop._every if answer is None else max(0.0, answer))  # noqa: SLF001


class Worker(Process):
    """One worker process."""

    def __init__(self, world: World, name: str, release: int) -> None:
        super().__init__(world, name, release)
        self.parts = Parts(
            self.store,
            self.queue.wakeup,
            self.queue.registry,
            WorkerConfig(concurrency=4),
            clock=world.clock,
            asked_to_drain=self._drain,
        )
        self.hands = Hands()
        self.parts.runner.threads = self.hands  # type: ignore[assignment]
        self.timers: dict[str, Timer] = {}
        self.drained = False
        self._shutdown = Shutdown(self.parts)

    def start(self) -> None:
        """Enter the fleet; as `Worker.start` does, without its threads."""
        parts, now = self.parts, self.world.clock.monotonic()
        parts.publish()
        parts.live.refresh()
        parts.heartbeat.join()
        self.queue.wakeup.subscribe(parts.triggers.hint)
        self.timers = {loop.name: Timer(loop, now) for loop in (*parts.loops, *parts.reporting)}
        self.timers["claimer"] = Timer(parts.claimer.loop, now)

    @property
    def started(self) -> bool:
        return bool(self.timers)

    def due(self, now: float) -> Sequence[str]:
        """The loops that could tick now."""
        return [name for name, timer in self.timers.items() if timer.is_due(now)]

    def tick(self, name: str) -> None:
        """Let one loop tick; a store that fails is the loop's own affair."""
        try:
            self.timers[name].tick(self.world.clock.monotonic)
        except StoreError as error:
            self.world.tell(f"{name} failed: {error}")

    def begin(self, place: int) -> None:
        """Call the handler of a run that waits for a thread. Its result is not reported yet."""
        run = self.hands.waiting.pop(place)
        result = contextvars.copy_context().run(self.parts.runner.call, run)
        if self.alive:
            self.hands.running.append((run, result))

    def end(self, place: int) -> None:
        """The handler of a run returns."""
        run, result = self.hands.running.pop(place)
        self.parts.runner.done(run, result)

    def leases(self) -> list[Lease]:
        """What it believes to hold."""
        return [run.lease for run in self.parts.runs.values()]

    def leave(self) -> None:
        """Leave the fleet, as a worker that was drained does once nothing runs and all is written."""
        self.store.leave(self.parts.membership.id)

    @property
    def idle(self) -> bool:
        """Whether nothing waits, runs or has to be written."""
        return not self.parts.runs and self.parts.settler.empty

    def _drain(self) -> None:
        self.drained = True
        self.timers.pop("claimer", None)
        self._shutdown.drain()
