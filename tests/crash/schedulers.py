"""Does each fire time fire once while schedulers are killed? Their clock is ours, and so are their deaths."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from tests.unit.cron_oracle import fire_times
from tests.waiting import PATIENCE
from windlass import connect
from windlass.clock import to_micros
from windlass.schedule import NewSchedule, Timing
from windlass.store.jobs import Filter
from windlass.store.schedules import REMEMBERED, FireOutcome
from windlass.store.store import Store
from windlass.upkeep.scheduler import Scheduler
from windlass.wakeup import Wakeup

ROOT = Path(__file__).parents[2]
AROUND = timedelta(hours=20)
_BYTES = 8
_OFTEN = "*/10 * * * *"


class Night(NamedTuple):
    """A night in which the clocks of a zone change, and local times that it skips or shows twice."""

    name: str
    zone: str
    change: datetime
    local_times: tuple[str, ...]


def _night(name: str, zone: str, change: str, *local_times: str) -> Night:
    return Night(name, zone, datetime.fromisoformat(change).replace(tzinfo=UTC), local_times)


NIGHTS = (
    _night("berlin-spring", "Europe/Berlin", "2026-03-29T01:00", "30 2", "0,30 1-3"),
    _night("berlin-autumn", "Europe/Berlin", "2026-10-25T01:00", "30 2", "0,30 1-3"),
    _night("new-york-spring", "America/New_York", "2026-03-08T07:00", "30 2", "15 0-5"),
    _night("new-york-autumn", "America/New_York", "2026-11-01T06:00", "30 1", "15 0-5"),
    _night("lord-howe-spring", "Australia/Lord_Howe", "2026-10-03T15:30", "15 2", "0,10,20,40 2"),
    _night("lord-howe-autumn", "Australia/Lord_Howe", "2026-04-04T15:00", "45 1", "0,10,20,40 1,2"),
)


class SharedClock:
    """A clock in a file: one process sets it, all read it."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_BYTES))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _BYTES)

    def set(self, moment: datetime) -> None:
        self._memory[:] = to_micros(moment).to_bytes(_BYTES, "little")

    def micros(self) -> int:
        return int.from_bytes(self._memory[:], "little")

    def monotonic(self) -> float:
        return time.monotonic()

    def uptime(self) -> float:
        return time.monotonic()


class Doing:
    """What a scheduler is doing, in a file of its own: starting, between two looks, or within one."""

    STARTING, RESTING, LOOKING = range(3)

    def __init__(self, folder: Path, pid: int) -> None:
        self._path = folder / f"doing-{pid}"

    def say(self, what: int) -> None:
        self._path.write_bytes(bytes([what]))

    def told(self) -> int:
        return next(iter(self._path.read_bytes()), self.STARTING) if self._path.exists() else self.STARTING


class Fleet:
    """Schedulers in processes of their own, killed and replaced."""

    def __init__(self, url: str, folder: Path, count: int, chance: random.Random) -> None:
        self._words = [sys.executable, "-m", "tests.crash.schedulers", url, str(folder)]
        self._folder = folder
        self._chance = chance
        # By what they were doing when they died.
        self.kills: Counter[int] = Counter()
        self._processes = [self._start() for _ in range(count)]

    def strike(self) -> None:
        """Kill one of them, mostly one that is at work, and start another in its place."""
        ready = [each for each in self._processes if self._doing(each).told() != Doing.STARTING]
        victim = self._chance.choice(ready if ready and self._chance.random() < 0.9 else self._processes)
        self._end(victim)
        self.kills[self._doing(victim).told()] += 1
        self._processes.remove(victim)
        self._processes.append(self._start())

    def await_one(self) -> None:
        """Wait until one of them is at work."""
        deadline = time.monotonic() + PATIENCE
        while all(self._doing(each).told() == Doing.STARTING for each in self._processes):
            if time.monotonic() > deadline:
                raise TimeoutError("no scheduler has started")
            time.sleep(0.005)

    def close(self) -> None:
        for process in self._processes:
            self._end(process)

    def _doing(self, process: subprocess.Popen[bytes]) -> Doing:
        return Doing(self._folder, process.pid)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._words, cwd=ROOT)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()


class Verdict(NamedTuple):
    """What a run came to."""

    fire_times: int
    kills: int
    # Of these within a look, which is when a transaction may be open.
    kills_within: int
    problems: list[str]


def run(
    url: str, folder: Path, *, nights: Sequence[Night] = NIGHTS, schedulers: int = 4, seed: int = 1
) -> Verdict:
    """Let the nights pass over a store, with schedulers that die."""
    chance = random.Random(seed)
    clock = SharedClock(folder / "clock")
    clock.set(nights[0].change - AROUND)
    opened = connect.open(url, clock=clock)
    problems: list[str] = []
    total = 0
    with contextlib.closing(opened):
        fleet = Fleet(url, folder, schedulers, chance)
        try:
            for night in nights:
                expected, wrong = _pass(opened.store, night, clock, fleet, chance)
                total += len(expected)
                problems += wrong + _judged(opened.store, night, expected)
        finally:
            fleet.close()
    return Verdict(total, fleet.kills.total(), fleet.kills[Doing.LOOKING], problems)


def _pass(
    store: Store, night: Night, clock: SharedClock, fleet: Fleet, chance: random.Random
) -> tuple[Counter[str], list[str]]:
    """Let one night pass; the keys of the jobs that should be there after it, and what is wrong already."""
    now, end = night.change - AROUND, night.change + AROUND
    clock.set(now)
    schedules = list(_schedules(night))
    expected: Counter[str] = Counter()
    for name, cron in schedules:
        # Each fire time must come to a job, whoever was dead at that moment.
        timing = Timing(cron=cron, tz=night.zone, catch_up="all", overlap="queue")
        store.add_schedule(NewSchedule(name=name, timing=timing, type="night"))
        expected.update(
            f"schedule:{name}:{fire:%Y-%m-%dT%H:%M:%SZ}" for fire in fire_times(cron, night.zone, now, end)
        )
    # Of this one only the last fire time is made up for; the others must be told as missed.
    last = f"{night.name}.last"
    timing = Timing(cron=_OFTEN, tz=night.zone, catch_up="last", overlap="queue")
    store.add_schedule(NewSchedule(name=last, timing=timing, type="last"))
    while now < end:
        now = min(end, now + timedelta(seconds=chance.randrange(60, 2400)))
        clock.set(now)
        # Some fire times find nobody there; most find somebody, who may die of it.
        if chance.random() < 0.8:
            fleet.await_one()
        time.sleep(chance.random() * 0.01)
        if chance.random() < 1 / 3:
            fleet.strike()
    _until_dealt_with(store, end)
    problems = _accounted_for(store, last, night, end)
    for name in (last, *(name for name, _ in schedules)):
        store.remove_schedule(name)
    return expected, problems


def _schedules(night: Night) -> Iterator[tuple[str, str]]:
    yield f"{night.name}.half-hourly", "*/30 * * * *"
    for number, local in enumerate(night.local_times):
        yield f"{night.name}.local-{number}", f"{local} * * *"


def _until_dealt_with(store: Store, end: datetime) -> None:
    deadline = time.monotonic() + PATIENCE
    while any(each.next_at is None or each.next_at <= end for each in store.schedules()):
        if time.monotonic() > deadline:
            raise TimeoutError("the schedulers have not dealt with every fire time")
        time.sleep(0.02)


def _accounted_for(store: Store, name: str, night: Night, end: datetime) -> list[str]:
    """Whether each fire time was either fired or told as missed, and no other: as far as is remembered."""
    fires = store.fires(name, limit=REMEMBERED)
    fired = [fire.at for fire in fires if fire.outcome is FireOutcome.ENQUEUED]
    gaps = [(fire.at, fire.until or end) for fire in fires if fire.outcome is FireOutcome.MISSED]
    every = fire_times(_OFTEN, night.zone, night.change - AROUND, end)
    expected = [each for each in every if each >= fires[-1].at]
    passed_over = [each for each in expected if any(at <= each < until for at, until in gaps)]
    told = Counter(fired) + Counter(passed_over)
    return [
        f"{name}: {each} is told {told[each]} times" for each in sorted({*told, *expected}) if told[each] != 1
    ]


def _judged(store: Store, night: Night, expected: Counter[str]) -> list[str]:
    made: Counter[str] = Counter()
    cursor: str | None = None
    while True:
        page = store.find(Filter(), limit=1000, cursor=cursor)
        made.update(
            job.key or "" for job in page.jobs if job.type == "night" and f":{night.name}." in (job.key or "")
        )
        cursor = page.next
        if cursor is None:
            break
    lost, too_many = expected - made, made - expected
    return [f"{night.name}: never fired {key}" for key in sorted(lost)] + [
        f"{night.name}: fired too often {key}" for key in sorted(too_many)
    ]


def main() -> None:
    """Be a scheduler that looks as often as it can."""
    url, folder = sys.argv[1], Path(sys.argv[2])
    opened = connect.open(url, clock=SharedClock(folder / "clock"))
    scheduler = Scheduler(opened.store, Wakeup())
    doing = Doing(folder, os.getpid())
    parent = os.getppid()
    while os.getppid() == parent:
        doing.say(Doing.LOOKING)
        scheduler.tick()
        doing.say(Doing.RESTING)
        time.sleep(0.002)


if __name__ == "__main__":
    main()
