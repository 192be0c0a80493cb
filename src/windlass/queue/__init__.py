"""What do producers hold?"""

from windlass.queue.client import Client
from windlass.queue.handle import JobHandle
from windlass.queue.jobtype import ContextJobType, JobType
from windlass.queue.queue import Queue

__all__ = ["Client", "ContextJobType", "JobHandle", "JobType", "Queue"]
