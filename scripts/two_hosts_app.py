"""What do the workers of two_hosts.py run? A job that records each of its executions."""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.history.record import from_environment
from windlass import Context, Queue

queue = Queue()
recorder = from_environment()
go = Path(os.environ.get("GO_FILE", "/"))


@queue.job(max_attempts=1)
def note(ctx: Context, number: int) -> int:
    """Record that this job ran here, once every host has a job."""
    with recorder.run(ctx.id, ctx.attempt):
        while not go.exists():
            time.sleep(0.01)
        return number
