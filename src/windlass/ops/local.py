"""Which workers run on this machine, and how are they stopped from here?"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from windlass.clock import Clock
from windlass.errors import Refused
from windlass.ops.overview import WorkerHealth
from windlass.store.fleet import WorkerInfo
from windlass.upkeep.membership import Place, here, is_gone


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """What came of stopping workers: those that are gone, and those that were still there in the end."""

    stopped: list[str]
    left: list[str]


def local_workers(workers: Sequence[WorkerHealth], place: Place | None = None) -> list[WorkerInfo]:
    """The workers whose processes surely run here: same boot, same process numbers, same start."""
    seen_from = place or here()
    return [each.info for each in workers if _is_here(each, seen_from)]


def with_the_gone_dead(workers: Sequence[WorkerInfo], place: Place | None = None) -> list[WorkerInfo]:
    """The same workers; those whose processes are gone from this machine as dead, whatever their rows say."""
    seen_from = place or here()
    return [_as_it_is(worker, seen_from) for worker in workers]


def stop(workers: Sequence[WorkerInfo], *, within: timedelta, clock: Clock) -> Stop:
    """Ask processes of this machine to stop, and wait until they are gone."""
    for worker in workers:
        _terminate(worker)
    deadline = clock.monotonic() + within.total_seconds()
    place, pause = here(), threading.Event()
    left = list(workers)
    while left and clock.monotonic() < deadline:
        left = [worker for worker in left if not is_gone(worker, place)]
        pause.wait(_BETWEEN_LOOKS if left else 0)
    names = [worker.id for worker in left]
    return Stop(stopped=[worker.id for worker in workers if worker.id not in names], left=names)


def _as_it_is(worker: WorkerInfo, place: Place) -> WorkerInfo:
    if worker.state in _LIVING and is_gone(worker, place):
        return msgspec.structs.replace(worker, state="dead")
    return worker


def _is_here(worker: WorkerHealth, place: Place) -> bool:
    info = worker.info
    if info.state not in _LIVING or info.pid == place.pid:
        return False
    same = (info.host, info.boot, info.pid_space) == (place.host, place.boot, place.pid_space)
    # Where the system tells no boot, only a fresh beat says that the number still means that process.
    return same and not is_gone(info, place) and (bool(place.boot) or worker.alive)


def _terminate(worker: WorkerInfo) -> None:
    try:
        os.kill(worker.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise Refused(f"worker {worker.id} is the process {worker.pid} of another user") from None


_LIVING = ("running", "draining")
_BETWEEN_LOOKS = 0.05
