"""What becomes of the workers of a store that is to be moved?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum

from windlass.errors import Refused
from windlass.ops import Ops
from windlass.ops.words import count
from windlass.store.fleet import WorkerInfo

_BETWEEN_LOOKS = 0.2
_MOST_NAMED = 3


class Running(StrEnum):
    """What to do while workers are alive."""

    REFUSE = "refuse"
    # Ask them to finish what runs and exit, and wait for that.
    DRAIN = "drain"
    # Do not wait. What they run they can no longer settle: it runs again in the target.
    LEAVE = "leave"


def check(fleet: Ops, running: Running) -> None:
    """Refuse to go on while workers are alive, unless it was said what to do about them."""
    alive = _alive(fleet)
    if alive and running is Running.REFUSE:
        named = ", ".join(f"{worker.host} pid {worker.pid}" for worker in alive[:_MOST_NAMED])
        more = f" and {len(alive) - _MOST_NAMED} more" if len(alive) > _MOST_NAMED else ""
        raise Refused(
            f"workers are alive on this store ({named}{more}): stop them with `windlass worker stop`, or "
            "--drain lets them finish what runs, or --force moves now and runs those jobs again"
        )


def wait(fleet: Ops, running: Running, say: Callable[[str], None]) -> None:
    """Come back when no worker is alive, or at once if nobody should be waited for."""
    check(fleet, running)
    told = None
    while running is Running.DRAIN and (alive := _alive(fleet)):
        for worker in alive:
            if not worker.drain:
                fleet.store.drain(worker.id)
        busy = sum(worker.busy for worker in alive)
        words = f"waiting for workers: {len(alive)} alive, {count(busy, 'job')} running"
        if words != told:
            say(words)
        told = words
        threading.Event().wait(_BETWEEN_LOOKS)


def _alive(fleet: Ops) -> list[WorkerInfo]:
    return [worker.info for worker in fleet.workers() if worker.alive]
