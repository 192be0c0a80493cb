"""PgQueuer with large batches: not its default, but what it can do."""

from __future__ import annotations

from bench.peers import pgqueuer


class Driver(pgqueuer.Driver):
    """Claims more at once."""

    settings = "as PgQueuer, but `--batch-size 200`: its guide says more than 10 for short jobs, not how many"
    batch = 200


driver = Driver
