"""Who is measured, on which store?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StoreKind = Literal["postgres", "sqlite", "redis"]


@dataclass(frozen=True, slots=True)
class Contender:
    """One peer on one store."""

    name: str
    title: str
    store: StoreKind
    # The module in bench/peers that drives it.
    driver: str
    # The pins in bench/peers that it is installed from.
    pins: str
    # About how many no-ops a process drains in a second: says how many are put in, nothing else.
    pace: int
    # How many jobs one process runs at once in the recovery case.
    at_once: int = 10
    # The cases that it takes part in; all if empty.
    only: tuple[str, ...] = ()
    # Whether its store keeps finished jobs, among which the others can be measured.
    keeps_finished: bool = False
    # The oldest Python that it runs on; None is ours.
    python: tuple[int, int] | None = None

    @property
    def is_ours(self) -> bool:
        """Whether this is Windlass."""
        return self.driver == "windlass"

    @property
    def is_raw(self) -> bool:
        """Whether this is the database itself."""
        return self.driver == "raw"


ALL = (
    Contender("raw-postgres", "PostgreSQL itself", "postgres", "raw", "windlass", pace=25_000),
    Contender(
        "windlass-postgres",
        "Windlass, PostgreSQL",
        "postgres",
        "windlass",
        "windlass",
        pace=12_000,
        keeps_finished=True,
    ),
    Contender("pgqueuer", "PgQueuer", "postgres", "pgqueuer", "pgqueuer", pace=6_000),
    Contender(
        "pgqueuer-200",
        "PgQueuer, batches of 200",
        "postgres",
        "pgqueuer_large",
        "pgqueuer",
        pace=9_000,
        only=("drain_one", "drain_two", "cpu"),
    ),
    Contender(
        "procrastinate",
        "Procrastinate",
        "postgres",
        "procrastinate",
        "procrastinate",
        pace=400,
        keeps_finished=True,
    ),
    Contender(
        "oban", "Oban for Python", "postgres", "oban", "oban", pace=900, python=(3, 12), keeps_finished=True
    ),
    Contender("saq", "SAQ, PostgreSQL", "postgres", "saq", "saq", pace=400),
    Contender("flexiq-postgres", "FlexiQ, PostgreSQL", "postgres", "flexiq", "flexiq", pace=450),
    Contender(
        "graphile-worker", "graphile-worker", "postgres", "graphile_worker", "graphile-worker", pace=1_000
    ),
    Contender(
        "graphile-worker-tuned",
        "graphile-worker, tuned",
        "postgres",
        "graphile_worker_tuned",
        "graphile-worker",
        pace=20_000,
        only=("drain_one", "drain_two", "wait", "cpu", "dispatch"),
    ),
    # More than it drains: its first batch of 2,000 is claimed before a drain begins.
    Contender("pg-boss", "pg-boss", "postgres", "pg_boss", "pg-boss", pace=10_000),
    Contender("raw-sqlite", "SQLite itself", "sqlite", "raw", "windlass", pace=10_000),
    Contender(
        "windlass-sqlite",
        "Windlass, SQLite",
        "sqlite",
        "windlass",
        "windlass",
        pace=7_000,
        keeps_finished=True,
    ),
    Contender("huey", "Huey, SQLite", "sqlite", "huey", "huey", pace=2_300),
    Contender("flexiq-sqlite", "FlexiQ, SQLite, unsynced", "sqlite", "flexiq", "flexiq", pace=600),
    Contender("celery", "Celery, Redis", "redis", "celery", "celery", pace=600),
    Contender("dramatiq", "Dramatiq, Redis", "redis", "dramatiq", "dramatiq", pace=1_900),
    Contender("taskiq", "taskiq, Redis", "redis", "taskiq", "taskiq", pace=1_800),
    Contender("rq", "RQ, Redis", "redis", "rq", "rq", pace=45, at_once=1),
    Contender("bullmq", "BullMQ, Redis", "redis", "bullmq", "bullmq", pace=5_000),
)
BY_NAME = {each.name: each for each in ALL}


def chosen(names: str | None) -> list[Contender]:
    """Those whose names were given, in their usual order; everybody without names."""
    if not names:
        return list(ALL)
    wanted = names.split(",")
    unknown = [name for name in wanted if name not in BY_NAME]
    if unknown:
        raise ValueError(f"no contender is called {unknown[0]!r}; there are {', '.join(BY_NAME)}")
    return [each for each in ALL if each.name in wanted]
