"""graphile-worker on PostgreSQL, at its defaults."""

from __future__ import annotations

from bench.peers import node


class Driver(node.Driver):
    """One job at once."""

    package = peer = "graphile-worker"
    settings = "defaults: `run()` with 1 job at once, each claimed and completed alone"
    leaves_out = (
        "fence (a completion deletes by id alone), history, results and archive (a finished row is gone)"
    )


driver = Driver
