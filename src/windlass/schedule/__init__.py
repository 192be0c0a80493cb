"""When does work come by itself? Times and policies of schedules: pure values, no store and no clock."""

from windlass.schedule.plan import Plan, plan, run_at
from windlass.schedule.timing import CatchUp, NewSchedule, Overlap, Timing, TimingOptions, read_timing

__all__ = [
    "CatchUp",
    "NewSchedule",
    "Overlap",
    "Plan",
    "Timing",
    "TimingOptions",
    "plan",
    "read_timing",
    "run_at",
]
