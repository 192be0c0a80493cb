"""Who makes the jobs of schedules when their time has come? Whoever looks: any number may."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import timedelta

from windlass.loop import Loop
from windlass.registry import SHELL, Registry
from windlass.store.protocol import Store
from windlass.upkeep import ticks
from windlass.wakeup.protocol import Wakeup

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
        ticked: Callable[[str], None] = ticks.ignore,
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
        self._ticked(ticks.SCHEDULE)
        if fired.jobs:
            self._wakeup.notify()
            log.info("schedule.fired", extra={"jobs": len(fired.jobs)})
        if fired.next_in is None:
            return None
        if fired.next_in <= timedelta(0):
            return 0.0 if fired.jobs else _LET_OTHERS
        return min(fired.next_in, self._every).total_seconds()


def declare(store: Store, registry: Registry, types: Collection[str]) -> None:
    """Tell the store what the code declares for these types; what it declares no more is marked there."""
    # Commands belong to no application: nobody can say that a schedule of theirs has gone.
    ours = [name for name in types if name != SHELL]
    declared = [schedule for schedule in registry.schedules() if schedule.type in ours]
    for name in store.declare(declared, ours):
        log.warning(
            "schedule.not_declared",
            extra={"schedule": name, "note": "an operator's own holds; windlass schedule remove gives way"},
        )
