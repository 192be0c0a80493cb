"""The process that claims jobs and runs them."""

from windlass.worker.shutdown import Remaining
from windlass.worker.worker import Worker

__all__ = ["Remaining", "Worker"]
