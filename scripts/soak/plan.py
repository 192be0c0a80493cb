"""What happens in a soak, and when? Everything follows from its length, its scale and its seed."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import NamedTuple

SERVICES, TYPES = 20, 30
# Jobs that one user-facing request enqueues.
ORDER_JOBS = 4
BATCH = 100


class Event(NamedTuple):
    """Something that is done to the system, and when, in seconds from the start."""

    at: float
    what: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The load, and how often what is done to it. Short runs have each kind of event at least once."""

    store: str
    seconds: float
    scale: float
    seed: int
    # Jobs a second by single posts, batches of 100 a second, jobs a second in bursts by the Python API.
    posts: float
    batches: float
    burst: float
    # User-facing requests and calls of the SDK a second.
    orders: float
    calls: float
    burst_seconds: float
    # Records a second that retention is to delete.
    pruned: float
    every: dict[str, float]

    @classmethod
    def of(cls, store: str, seconds: float, scale: float, seed: int) -> Plan:
        """The usual numbers, times the scale."""
        every = {
            "kill a worker": min(20.0, seconds / 8),
            "burst": min(300.0, seconds / 2.5),
            "kill a server": min(400.0, seconds / 2.5),
            "restart a server": min(400.0, seconds / 2.5),
            "prune": min(60.0, seconds / 6),
        }
        if store == "postgres":
            every["restart PostgreSQL"] = min(900.0, seconds / 2)
        return cls(
            store=store,
            seconds=seconds,
            scale=scale,
            seed=seed,
            posts=500 * scale,
            batches=0.5 * scale,
            burst=5_000 * scale,
            orders=5 * scale,
            calls=20 * scale,
            burst_seconds=min(10.0, seconds / 30),
            pruned=550 * scale,
            every=every,
        )

    def events(self) -> list[Event]:
        """All events, in their order. None comes in the last twelfth, so that the end is calm."""
        chance, found = random.Random(self.seed), []
        for number, (what, every) in enumerate(self.every.items()):
            # Kinds with the same period do not come together.
            at = every * (0.3 + 0.1 * number)
            while at < self.seconds * 11 / 12:
                found.append(Event(at, what))
                at += every if what == "prune" else every * chance.uniform(0.7, 1.3)
        return sorted(found)

    def past(self) -> list[int]:
        """How many records of each earlier day retention finds, the oldest first: a day for each pruning.

        Every fifth is twice as large: PostgreSQL drops such a day whole, and clears others row by row.
        """
        prunings = sum(event.what == "prune" for event in self.events())
        size = self.pruned * self.every["prune"]
        return [round(size * (2 if number % 5 == 4 else 1)) for number in range(prunings)]  # noqa: PLR2004

    def document(self) -> dict[str, object]:
        """For the result."""
        return asdict(self)
