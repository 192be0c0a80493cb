"""The process that claims jobs and runs them."""

from windlass.worker.worker import Remaining, Worker

__all__ = ["Remaining", "Worker"]
