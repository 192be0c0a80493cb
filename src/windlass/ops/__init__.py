"""What can an operator do? Every verb once; the command line and all other surfaces translate it."""

from windlass.loop import Pace
from windlass.ops.bulk import Bulk
from windlass.ops.flow import SettingValue
from windlass.ops.jobs import Ties
from windlass.ops.ops import Ops
from windlass.ops.overview import Overview, TypeStatus, WorkerHealth
from windlass.ops.schedules import ScheduleStatus, ScheduleWish

__all__ = [
    "Bulk",
    "Ops",
    "Overview",
    "Pace",
    "ScheduleStatus",
    "ScheduleWish",
    "SettingValue",
    "Ties",
    "TypeStatus",
    "WorkerHealth",
]
