"""What does a worker say of itself to Prometheus? Only what nobody else can: the rest is the store's."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from windlass.observe import metrics
from windlass.observe.exposition import family, render
from windlass.worker.health import Health


def expose(workers: Sequence[Health]) -> str:
    """The metrics of one worker, or of all that a supervisor has."""
    known = [each for each in workers if each.worker]
    slots = [
        ((each.worker, state), count)
        for each in known
        for state, count in (("all", each.slots), ("busy", each.busy), ("held", each.held))
    ]
    ours = version("windlass")
    resident = [((each.worker,), each.resident_bytes) for each in known if each.resident_bytes is not None]
    trouble = [((each.worker, part), count) for each in known for part, count in each.ticks_failed.items()]
    return render(
        [
            family(metrics.OWN_SLOTS, slots),
            family(metrics.OWN_HEALTH, [((each.worker,), int(each.ok)) for each in known]),
            family(metrics.OWN_UNSETTLED, [((each.worker,), each.unsettled) for each in known]),
            family(metrics.OWN_BEAT, [((each.worker,), each.beat_age) for each in known]),
            family(metrics.OWN_DONE, [((each.worker,), each.done) for each in known]),
            family(metrics.OWN_FAILED, [((each.worker,), each.failed) for each in known]),
            family(metrics.OWN_LATE, [((each.worker,), each.late) for each in known]),
            family(metrics.OWN_RESIDENT, resident),
            family(metrics.OWN_TROUBLE, trouble),
            family(metrics.OWN_INFO, [((each.worker, each.app or ours), 1) for each in known]),
        ]
    )
