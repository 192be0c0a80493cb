"""What do producers hold?"""

from windlass.queue.handle import JobHandle
from windlass.queue.jobtype import ContextJobType, JobType
from windlass.queue.queue import Queue

__all__ = ["ContextJobType", "JobHandle", "JobType", "Queue"]
