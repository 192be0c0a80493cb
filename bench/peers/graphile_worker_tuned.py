"""graphile-worker as its page on performance sets it."""

from __future__ import annotations

from bench.peers import graphile_worker


class Driver(graphile_worker.Driver):
    """Claims and completes in batches."""

    peer = "graphile-worker-tuned"
    settings = (
        "what its page on performance names: 24 jobs at once, `localQueue.size` 500,"
        " `completeJobBatchDelay` and `failJobBatchDelay` 0, a pool of 25"
    )


driver = Driver
