"""What an application holds: a Queue or Client, its job types, and handles of enqueued jobs."""

from windlass.queue.jobs import ContextJobType, JobHandle, JobType
from windlass.queue.queue import Client, Queue

__all__ = ["Client", "ContextJobType", "JobHandle", "JobType", "Queue"]
