"""BullMQ on Redis."""

from __future__ import annotations

from bench.peers import node


class Driver(node.Driver):
    """One queue, and a name for each task."""

    package = peer = "bullmq"
    settings = "Redis through ioredis, 100 jobs at once, `removeOnComplete` as its guide advises"
    leaves_out = (
        "history and archive (a finished job is deleted), enqueues within the application's transaction"
    )


driver = Driver
