"""Fire schedules when their time has come, and declare those of the code. Any number of workers may."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import timedelta

from windlass.loop import Loop
from windlass.registry import SHELL, Registry
from windlass.schedule import NewSchedule
from windlass.store.store import Store
from windlass.upkeep.maintenance import SCHEDULE
from windlass.wakeup import Wakeup

log = logging.getLogger("windlass.scheduler")

# As soon as somebody's new schedule is noticed; a fire time that is known is met to the moment.
_LOOK_EVERY = timedelta(seconds=5)
# Whoever is told each second when the next one is need not look so often.
_TOLD_LOOK_EVERY = timedelta(seconds=30)
# A time that comes before it is told of the next time, or as good as that.
_SOON = timedelta(seconds=1.5)
_JITTER = 0.1
# If a time has come and there was nothing to do: somebody else is at it, or it cannot be done now.
_LET_OTHERS = 1.0


class Scheduler:
    """Looks at the schedules and sleeps until the next fire time, but not for long."""

    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        ticked: Callable[[str], None] = lambda _: None,
        *,
        told: bool = False,
    ) -> None:
        self._store = store
        self._ticked = ticked
        self._wakeup = wakeup
        self._every = _TOLD_LOOK_EVERY if told else _LOOK_EVERY
        self.loop = Loop("scheduler", self.tick, every=self._every, jitter=_JITTER)

    def saw(self, next_in: timedelta | None) -> None:
        """A look tells when the next fire time comes: it may be one of a schedule that nobody knew of yet."""
        if next_in is not None and next_in < _SOON:
            self.loop.wake()

    def tick(self) -> float | None:
        """Deal with the fire times that have come; the seconds until the next look."""
        fired = self._store.fire()
        self._ticked(SCHEDULE)
        if fired.jobs:
            self._wakeup.notify()
            log.info("schedule.fired", extra={"jobs": len(fired.jobs)})
        if fired.next_in is None:
            return None
        if fired.next_in <= timedelta(0):
            return 0.0 if fired.jobs else _LET_OTHERS
        return min(fired.next_in, self._every).total_seconds()


class Declarer:
    """Tells the store which schedules the code declares for some types: at the start, then each minute."""

    def __init__(self, store: Store, registry: Registry, types: Collection[str]) -> None:
        self._store = store
        self._registry = registry
        # Commands belong to no application: nobody can say that a schedule of theirs has gone.
        self._types = [name for name in types if name != SHELL]
        self._begun = False

    @property
    def schedules(self) -> list[NewSchedule]:
        """What the code declares."""
        return [schedule for schedule in self._registry.schedules() if schedule.type in self._types]

    def tell(self) -> None:
        """Declare them; the first time, say which of them an operator's own schedules replace."""
        declared = self.schedules
        if self._begun and self._store.declared(declared, self._types):
            return
        held = self._store.declare(declared, self._types)
        note = "an operator's schedule has this name; remove it to use the code's"
        for name in () if self._begun else held:
            log.warning("schedule.not_declared", extra={"schedule": name, "note": note})
        self._begun = True
