"""How is the system every few seconds? Depths, rates, memory, files, dead rows."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable

import psutil

from soak.fleet import MEGABYTE, Fleet
from soak.stores import Place
from windlass.errors import WindlassError
from windlass.job import JobState
from windlass.store.store import Store

_LIVE = (JobState.PENDING, JobState.PROCESSING)
_STEADY = ("steady server", "steady worker", "application")


class Sampler:
    """Looks from a thread of its own; what cannot be seen at a moment is missing in its sample."""

    def __init__(self, store: Store, place: Place, fleet: Fleet, every: float) -> None:
        self._store = store
        self._place = place
        self._fleet = fleet
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)
        self.samples: list[dict[str, float]] = []
        self.begun = time.time()
        self.depth = 0.0
        # What else is known at each look.
        self.more: Callable[[], dict[str, float]] = dict

    def start(self) -> None:
        """Begin to look."""
        self.begun = time.time()
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._over.wait(max(0.0, self.begun + number * self._every - time.time())):
            number += 1
            sample = {"seconds": round(time.time() - self.begun, 1)}
            for look in (self._jobs, self._tables, self._place.files, self._processes, self.more):
                sample |= self._seen(look)
            self.samples.append(sample)
            self.depth = sample.get("depth", self.depth)

    def _seen(self, look: Callable[[], dict[str, float]]) -> dict[str, float]:
        # A database that restarts ends whatever is asked of it.
        with contextlib.suppress(WindlassError, OSError, *_errors()):
            return {name: round(value, 2) for name, value in look().items()}
        return {}

    def _jobs(self) -> dict[str, float]:
        counts: Counter[JobState] = Counter()
        for each in self._store.counts().counts:
            counts[each.state] += each.count
        return {
            "depth": sum(counts[state] for state in _LIVE),
            "completed": counts[JobState.COMPLETED],
            "dead": counts[JobState.DEAD],
        }

    def _tables(self) -> dict[str, float]:
        found = {table.name.removeprefix("windlass_"): table for table in self._store.database().tables}
        live, archive = found["jobs"], found["archive"]
        return {
            "live table": live.size_bytes / MEGABYTE,
            "dead rows": live.dead_rows,
            "archive": archive.size_bytes / MEGABYTE,
        }

    def _processes(self) -> dict[str, float]:
        found: dict[str, float] = {}
        killed = []
        for name, process in self._fleet.alive():
            with contextlib.suppress(psutil.Error):
                resident = process.memory_info().rss / MEGABYTE
                if name in _STEADY:
                    found[f"memory of the {name}"] = resident
                    found[f"open files of the {name}"] = process.num_fds()
                elif "worker" in name:
                    killed.append(resident)
        if killed:
            found["memory of killed workers"] = max(killed)
        return found


def _errors() -> tuple[type[Exception], ...]:
    import psycopg  # noqa: PLC0415 - an extra

    return (psycopg.Error,)


def columns(samples: list[dict[str, float]]) -> dict[str, list[float | None]]:
    """The samples by what was seen, for the result."""
    names = dict.fromkeys(name for sample in samples for name in sample)
    return {name: [sample.get(name) for sample in samples] for name in names}
