"""What does a worker do that has a supervisor? It dies with it, and tells it each second how it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta

import msgspec

from windlass.loop import Loop
from windlass.worker.children.system import die_with_parent
from windlass.worker.health import Health

# The supervisor's process, the mark that it ends this worker's processes by, and where reports go.
VARIABLE = "WINDLASS_SUPERVISED"
EVERY = timedelta(seconds=1)


class Supervised(msgspec.Struct, frozen=True):
    """What a supervisor has given this process."""

    supervisor: int
    mark: str
    reports: int
    # What it watches this process by, if it does; see watch.py.
    box: int | None = None

    def told(self) -> str:
        """As the environment carries it."""
        box = "" if self.box is None else f":{self.box}"
        return f"{self.supervisor}:{self.mark}:{self.reports}{box}"

    def report(self, health: Callable[[], Health]) -> Loop:
        """A loop that tells the supervisor how this worker is."""

        def tick() -> None:
            try:
                os.write(self.reports, msgspec.json.encode(health()) + b"\n")
            except BlockingIOError:
                return
            except OSError:
                # Where the system does not end us with our supervisor, this is how we learn of it.
                os._exit(1)

        return Loop("report", tick, every=EVERY)


def take_up() -> Supervised | None:
    """Whether this process has a supervisor; from now on it dies with it. Jobs do not inherit that."""
    told = os.environ.pop(VARIABLE, None)
    if told is None:
        return None
    # A supervisor that was started by an older release gives no box.
    supervisor, mark, reports, *box = told.split(":")
    found = Supervised(int(supervisor), mark, int(reports), int(box[0]) if box else None)
    if found.box is not None:
        os.set_inheritable(found.box, False)  # noqa: FBT003 - it takes no keyword
    die_with_parent(found.supervisor)
    os.set_inheritable(found.reports, False)  # noqa: FBT003 - it takes no keyword
    os.set_blocking(found.reports, False)
    return found
