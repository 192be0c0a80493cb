"""Which workers are alive, as far as their rows tell?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

import msgspec

from windlass.store.fleet import WorkerInfo

# A worker whose beat is older than this is taken for dead by the others.
SILENT_AFTER = timedelta(seconds=10)
LIVING = ("running", "draining")


class Seen(msgspec.Struct, frozen=True):
    """The fleet at one moment."""

    alive: list[WorkerInfo]
    silent: list[WorkerInfo]

    @property
    def states(self) -> dict[str, int]:
        """How many workers are what; one that drains or is deaf is alive as well."""
        return {
            "alive": len(self.alive),
            "draining": sum(worker.state == "draining" for worker in self.alive),
            "deaf": sum(worker.deaf for worker in self.alive),
            "silent": len(self.silent),
        }

    def serving(self, job_type: str) -> int:
        """How many that are alive take jobs of a type."""
        return sum(any(fnmatchcase(job_type, pattern) for pattern in each.types) for each in self.alive)


def seen(workers: Sequence[WorkerInfo], now: datetime) -> Seen:
    """Who is alive, and who should be and says nothing."""
    living = [worker for worker in workers if worker.state in LIVING]
    alive = [worker for worker in living if worker.beat_at is None or now - worker.beat_at <= SILENT_AFTER]
    return Seen(alive, [worker for worker in living if worker not in alive])
