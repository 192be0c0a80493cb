"""What do the workers of two_hosts.py run? A job that records each of its executions."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.history.record import from_environment
from windlass import Context, Queue

queue = Queue()
recorder = from_environment()


@queue.job(max_attempts=1)
def note(ctx: Context, number: int) -> int:
    """Record that this job ran here."""
    with recorder.run(ctx.id, ctx.attempt):
        return number
