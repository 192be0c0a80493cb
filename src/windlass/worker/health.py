"""Is this worker well? Alive is not enough: it must be claiming, and the store must answer."""

from __future__ import annotations

import msgspec

from windlass.clock import Clock
from windlass.worker.children.tree import resident
from windlass.worker.parts import Parts

# So long may the store stay away, or a claim take, before somebody should know.
SILENT_SECONDS = 30.0


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How one worker is; `why` says what is wrong, and is empty if nothing is."""

    ok: bool
    why: str = ""
    # It claims nothing more.
    draining: bool = False
    # Why this process should be replaced, to its supervisor; empty if it need not be.
    restart: str = ""
    worker: str = ""
    # The release of the application, as far as it says.
    app: str = ""
    busy: int = 0
    slots: int = 0
    held: int = 0
    # Since it started.
    done: int = 0
    failed: int = 0
    late: int = 0
    # Outcomes that wait to be written, and seconds since the last beat that the store confirmed.
    unsettled: int = 0
    beat_age: float = 0.0
    # Of its process and those below it, as far as the system tells.
    resident_bytes: int | None = None
    # Ticks that failed since it started, by part: claims, beats and so on.
    ticks_failed: dict[str, int] = {}


def examine(parts: Parts, clock: Clock, *, begun: bool) -> Health:
    """How the worker is now; asks nobody, so that nothing can hold it up."""
    why = "starting" if not begun else _trouble(parts, clock)
    return Health(
        ok=not why,
        why=why,
        draining=parts.draining,
        restart=parts.leaks.reason,
        worker=parts.membership.id,
        app=parts.app,
        busy=sum(pool.busy for pool in parts.pools),
        slots=sum(pool.slots for pool in parts.pools),
        held=sum(pool.held for pool in parts.pools),
        done=parts.settler.done,
        failed=parts.settler.failed,
        late=parts.settler.late,
        unsettled=parts.settler.backlog,
        beat_age=round(max(0.0, clock.uptime() - parts.membership.sent), 3),
        resident_bytes=resident(parts.membership.place.pid),
        ticks_failed={loop.name: loop.failed for loop in (parts.claimer.loop, *parts.loops)},
    )


def _trouble(parts: Parts, clock: Clock) -> str:
    if parts.draining:
        return "draining: it claims nothing more"
    silent = clock.uptime() - parts.membership.sent
    if silent > SILENT_SECONDS:
        return f"the store has not answered for {silent:.0f} s"
    stalled = clock.monotonic() - parts.claimer.ticked
    if stalled > SILENT_SECONDS + parts.claimer.patience:
        return f"not claiming: the claimer has stood still for {stalled:.0f} s"
    if parts.presence.trouble:
        return parts.presence.trouble
    if blocked := parts.leaks.blocked():
        return blocked
    if parts.settler.overloaded:
        return f"not claiming: {parts.settler.backlog} outcomes wait to be written"
    if any(pool.held >= pool.slots for pool in parts.pools):
        return "not claiming: every slot of a pool is held by work that does not end"
    return ""
