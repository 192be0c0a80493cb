"""Which workers are alive, as far as their rows say, and how many the load asks for. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

import msgspec

from windlass.registry import SHELL
from windlass.store.fleet import WorkerInfo

# A worker whose beat is older than this is taken for dead by the others.
SILENT_AFTER = timedelta(seconds=10)
LIVING = ("running", "draining")


class Seen(msgspec.Struct, frozen=True):
    """The fleet at one moment."""

    alive: list[WorkerInfo]
    silent: list[WorkerInfo]
    # They died, and no other worker has started in their place.
    missing: list[WorkerInfo]

    @property
    def states(self) -> dict[str, int]:
        """How many workers are what; one that drains or is deaf is alive as well."""
        return {
            "alive": len(self.alive),
            "draining": sum(worker.state == "draining" for worker in self.alive),
            "deaf": sum(worker.deaf for worker in self.alive),
            "silent": len(self.silent),
            "missing": len(self.missing),
        }

    def serving(self, job_type: str) -> int:
        """How many that are alive take jobs of a type."""
        return sum(any(fnmatchcase(job_type, pattern) for pattern in each.types) for each in self.alive)


def seen(workers: Sequence[WorkerInfo], now: datetime) -> Seen:
    """Who is alive, and who should be and says nothing."""
    living = [worker for worker in workers if worker.state in LIVING]
    alive = [worker for worker in living if worker.beat_at is None or now - worker.beat_at <= SILENT_AFTER]
    return Seen(alive, [worker for worker in living if worker not in alive], missing(workers))


def missing(workers: Sequence[WorkerInfo]) -> list[WorkerInfo]:
    """Workers that died and were not replaced: none that serves one of their types has started since.

    Each worker takes the place of one. One that was asked to leave is not missed, nor any after a day, when
    the rows of dead workers are deleted.
    """
    died = [worker for worker in workers if worker.state == "dead" and not worker.drain]
    died.sort(key=lambda worker: worker.beat_at or _NEVER)
    started = sorted(workers, key=lambda worker: worker.started_at or _NEVER)
    left: list[WorkerInfo] = []
    for worker in died:
        following = next((each for each in started if _replaces(each, worker)), None)
        if following is None:
            left.append(worker)
        else:
            started.remove(following)
    return left


def _replaces(new: WorkerInfo, old: WorkerInfo) -> bool:
    if new.started_at is None or old.beat_at is None or new.started_at < old.beat_at or new.id == old.id:
        return False
    # Nearly every worker runs shell jobs, so they say little about what it is for.
    return bool(_meant_for(new) & _meant_for(old))


def _meant_for(worker: WorkerInfo) -> frozenset[str]:
    return frozenset(worker.types) - {SHELL} or frozenset(worker.types)


_NEVER = datetime.min.replace(tzinfo=UTC)


# --- autoscale -----------------------------------------------------------------------------------


class ScaleTargets(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator wants of it."""

    # What waits shall have started within this time.
    target: timedelta = timedelta(minutes=1)
    least: int = 1
    most: int = 100
    # Fewer only when the load has asked for fewer all this time.
    cooldown: timedelta = timedelta(minutes=5)
    headroom: float = 0.3


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What one type asks for at one moment."""

    type: str
    # Due, and not held back by a pause or an open breaker: more workers would not start those.
    waiting: int = 0
    running: int = 0
    # Per second.
    arrivals: float = 0.0
    # Seconds of a slot that one job takes.
    service: float = 0.0
    # So many of them may run at once, whoever runs them.
    limit: int | None = None


def slots_for(load: Load, target: timedelta) -> float:
    """The slots that keep up with what comes in, and start within the target what waits already."""
    wanted = load.service * (load.arrivals + load.waiting / target.total_seconds())
    # What nobody has measured yet needs at least a slot to be tried in.
    wanted = max(wanted, float(min(load.waiting, 1)))
    return wanted if load.limit is None else min(wanted, float(load.limit))


def desired(loads: Sequence[Load], slots: int, targets: ScaleTargets) -> int:
    """The workers for one moment, each with so many slots; within the bounds, with room to spare."""
    wanted = sum(slots_for(load, targets.target) for load in loads) * (1 + targets.headroom)
    # The sum of many small numbers is a hair beside the whole one that is meant.
    workers = math.ceil(round(wanted / max(slots, 1), 6))
    return min(max(workers, targets.least), targets.most)
