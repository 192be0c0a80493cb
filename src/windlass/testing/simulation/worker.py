"""A simulated worker: the real parts, whose loops tick when the world says so."""

from __future__ import annotations

import contextvars
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from windlass.config import WorkerConfig
from windlass.errors import StoreError
from windlass.loop import Loop, pause_after
from windlass.ops.bulk import Carrier
from windlass.outcome import Result, hung
from windlass.testing.simulation.application import SLOW_SECONDS
from windlass.testing.simulation.determinism import by_chance
from windlass.testing.simulation.process import Fault, Killed, Process
from windlass.worker.parts import Parts
from windlass.worker.run import Run
from windlass.worker.worker import Shutdown

if TYPE_CHECKING:
    from windlass.testing.simulation.world import World

_LONGEST_PAUSE = 4.0
_SLOTS = 4
# Producers look at the catalogue that often; and a release is forgotten that was not seen for longer.
_HEARD_SECONDS = 6.0
_FRESH_SECONDS = 500.0
# Which of its writes a fault strikes: any, or what is about its jobs.
_STRUCK = ("", "", "hot.claim_once", "hot.settle")
# Loops that only report or look after the house come seldom.
_SELDOM = frozenset({"ledger", "ticks", "settings", "pruner", "verifier"})


class Worker(Process):
    """One worker process."""

    follows_schema = True

    def __init__(self, world: World, name: str, release: int) -> None:
        super().__init__(world, name, release)
        registry, config = self.queue.registry, WorkerConfig(concurrency=_SLOTS)
        self._parts = Parts(
            self.store, self.queue.wakeup, registry, config, clock=world.clock, asked_to_drain=self._drain
        )
        # As `windlass worker start` does, it carries operators' actions on many jobs as well.
        self._carrier = Carrier(self.store, self.queue.wakeup, clock=world.clock)
        self._carrier._owner = name  # noqa: SLF001
        self._hands = _Hands()
        self._parts.runner.threads = self._hands  # type: ignore[assignment]
        self._shutdown = Shutdown(self._parts)
        self._timers: dict[str, _Timer] = {}
        self.drained = False
        self._began = 0.0

    @property
    def fleet_id(self) -> str:
        """Its name in the fleet."""
        return self._parts.membership.id

    @property
    def next_tick(self) -> float | None:
        """When its next loop is due, by the clock that only rises."""
        now = self.world.clock.monotonic()
        coming = [timer.at for timer in self._timers.values() if timer.at > now]
        coming += [each.until for each in self._hands.running if each.until > now]
        return min(coming) if coming and self.acts else None

    @property
    def has_published(self) -> bool:
        """Whether the catalogue has its release since a while ago, and no reason to forget it."""
        age = self.world.clock.monotonic() - self._began
        steady = self._began > self.world.disturbed
        return bool(self._timers) and self.alive and steady and _HEARD_SECONDS < age < _FRESH_SECONDS

    def at_work_on(self, limit_key: str) -> int:
        """How many handlers under a shared limit are at work here, for leases that it has not lost."""
        return sum(
            each.run.handler.limit_key == limit_key
            and each.run.started is not None
            and each.run.lease.worker == self.fleet_id
            and not each.run.notice.lease_lost
            for each in self._hands.running
        )

    @property
    def watches(self) -> bool:
        """Whether it has been there long enough to see who is gone."""
        return bool(self._timers) and self.acts and not self.away

    @property
    def acts(self) -> bool:
        """Whether it can do anything now."""
        return self.alive and not self.frozen

    def is_due(self) -> bool:
        """Whether it has something to do that its jobs or the fleet wait for."""
        now = self.world.clock.monotonic()
        work = self._hands.waiting or any(
            timer.is_due(now) for name, timer in self._timers.items() if name not in _SELDOM
        )
        return self.acts and bool(work or not self._timers or (self.world.calm and self._ready()))

    def _ready(self) -> list[Running]:
        """The runs whose handler could return now."""
        now = self.world.clock.monotonic()
        return [each for each in self._hands.running if each.until <= now]

    # --- for the world ---

    def options(self) -> Iterable[tuple[str, float]]:
        """What it could do now, and how likely that is."""
        # What a worker does that others took for dead is where it gets interesting.
        stale = self.world.checker.is_dead(self.fleet_id)
        if self.frozen:
            yield "thaw", 3.0 if stale else 0.05
        elif not self._timers:
            yield "start", 5.0
        else:
            yield from self._work(5.0 if stale else 1.0)
            if not self.world.calm:
                yield from self._faults()
            if self.away:
                yield "heal", 3.0 if stale else 0.05

    def _work(self, eager: float) -> Iterable[tuple[str, float]]:
        now = self.world.clock.monotonic()
        for name, timer in self._timers.items():
            if timer.is_due(now):
                yield name, 1.0 if name in _SELDOM else 6.0 if name == "heartbeat" else 6.0 * eager
        if self._hands.waiting:
            yield "begin", 4.0 * eager
        if self._ready():
            yield "end", 4.0 * eager
        if self._hands.running and not self.world.calm:
            yield "interrupt", 0.1
            yield "hang", 0.1
        if self.drained and not self._parts.runs and self._parts.settler.empty:
            yield "leave", 2.0

    def _faults(self) -> Iterable[tuple[str, float]]:
        # Another worker must be left to notice it.
        noticed = any(each.acts and not each.away for each in self.world.workers if each is not self)
        stop = (3.0 if self._hands.running else 0.1) if noticed else 0.0
        weights = {
            "kill": 0.15,
            "freeze": stop,
            "cut off": stop / 2,
            "lost answer": 0.4,
            "kill in write": 0.2,
        }
        yield from ((fault, weight) for fault, weight in weights.items() if fault in self.world.faults)

    def do(self, what: str) -> None:
        """Do one of these."""
        if what in self._timers:
            self._tick(what)
        elif what in ("freeze", "thaw"):
            self.frozen = what == "freeze"
        elif what in ("cut off", "heal"):
            self.away = what == "cut off"
        elif what in ("lost answer", "kill in write"):
            self.fault = Fault.drawn(_STRUCK, kills=what == "kill in write")
        else:
            {
                "start": self._start,
                "begin": self._begin,
                "end": self._end_run,
                "interrupt": self._interrupt,
                "hang": self._hang,
                "leave": self._leave,
                "kill": self.kill,
            }[what]()

    # --- what it does ---

    def _start(self) -> None:
        """Enter the fleet, as `Worker.start` does, without its threads."""
        parts, now = self._parts, self.world.clock.monotonic()
        try:
            parts.publish()
            parts.live.refresh()
            parts.heartbeat.join()
        except StoreError as error:
            self.world.note(f"did not start: {error}")
            self.kill()
            return
        self.queue.wakeup.subscribe(parts.triggers.hint)
        self._began = now
        loops = (*parts.loops, *parts.reporting, parts.claimer.loop, self._carrier.loop)
        self._timers = {loop.name: _Timer(loop, now) for loop in loops}

    def _tick(self, name: str) -> None:
        """Let one loop tick; a store that fails is the loop's own affair."""
        try:
            self._timers[name].tick(self.world.clock.monotonic())
        except StoreError as error:
            self.world.note(f"{name} failed: {error}")

    def _begin(self) -> None:
        """Call the handler of a run that waits for a thread. Its result is not reported yet."""
        run = self._hands.waiting.pop(random.randrange(len(self._hands.waiting)))
        result = contextvars.copy_context().run(self._parts.runner.call, run)
        if not self.alive:
            raise Killed
        slow = run.handler.name == "slow" and not self.world.calm and by_chance(0.5)
        until = self.world.clock.monotonic() + (SLOW_SECONDS if slow else 0.0)
        self._hands.running.append(Running(run, result, until))

    def _end_run(self) -> None:
        """The handler of a run returns."""
        ended = random.choice(self._ready())
        self._hands.running.remove(ended)
        self._parts.runner.done(ended.run, ended.result)

    def _interrupt(self) -> None:
        """The shutdown of a worker that did not wait: it asks every run to stop, and goes on as drained."""
        self._drain()
        self._shutdown._interrupt(0.0)  # noqa: SLF001

    def _hang(self) -> None:
        """Its guard notes that a job keeps it from answering, or that it answers again."""
        lease = random.choice(self._hands.running).run.lease
        self.store.note_hang(lease.job.seq, lease.token, hung(20.0, "") if by_chance(0.6) else None)

    def _drain(self) -> None:
        self.drained = True
        self._timers.pop("claimer", None)
        self._shutdown.drain()

    def _leave(self) -> None:
        """Leave the fleet, as a drained worker does once nothing runs and all is written."""
        try:
            self.store.leave(self.fleet_id)
        finally:
            self.kill()


class _Hands:
    """In the place of a worker's threads: a run begins and ends when the world says so."""

    def __init__(self) -> None:
        self.waiting: list[Run] = []
        self.running: list[Running] = []

    def start(self, run: Run) -> None:
        """Take a run that has a slot."""
        self.waiting.append(run)

    def carried(self) -> list[Run]:
        """The runs under way."""
        return [each.run for each in self.running]


class Running(NamedTuple):
    """A run with the result that its worker has not seen yet, and when its handler may return."""

    run: Run
    result: Result
    until: float


class _Timer:
    """When a loop ticks next."""

    def __init__(self, loop: Loop, now: float) -> None:
        self._loop = loop
        self._failures = 0
        self.at = now

    def is_due(self, now: float) -> bool:
        """Whether it may tick now. After a failure a wake-up does not shorten the pause."""
        return now >= self.at or (not self._failures and self._loop._woken.is_set())  # noqa: SLF001

    def tick(self, now: float) -> None:
        """Let it tick, as `Loop` does on its thread."""
        loop = self._loop
        loop._woken.clear()  # noqa: SLF001
        self._failures += 1
        self.at = now + pause_after(self._failures, _LONGEST_PAUSE)
        answer = loop._tick()  # noqa: SLF001
        self._failures = 0
        self.at = now + (loop._every if answer is None else max(0.0, answer))  # noqa: SLF001
