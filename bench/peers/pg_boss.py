"""pg-boss on PostgreSQL, in batches."""

from __future__ import annotations

from bench.drive import contract
from bench.peers import node


class Driver(node.Driver):
    """A queue for each task, polled on its own."""

    package = peer = "pg-boss"
    settings = (
        "`work()` with batches of 2,000 no-ops or 10 others, each completed by one statement;"
        " a poll every 0.5 s (its least) on each of five queues, and at once after a batch"
    )
    leaves_out = (
        "fence (a completion asks for the state only), history of attempts, an end of its own for each job"
        " (a batch completes or fails as a whole)"
    )

    def crowd(self, kind: str, count: int) -> None:
        """Finished jobs stay in the queue's table for 12 hours; its calls cannot make them."""
        if kind == "archived":
            raise contract.Cannot("finished jobs come only from its workers")
        super().crowd(kind, count)


driver = Driver
