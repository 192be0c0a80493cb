"""F-35: there is always something more urgent. With a share of its own the lowest priority progresses."""

from __future__ import annotations

from collections.abc import Callable

from tests.worker.conftest import clock, opened, path, still
from tests.worker.scene import Still

__all__ = ["clock", "opened", "path", "still"]


def test_the_lowest_priority_has_its_share(still: Still) -> None:
    ran: list[str] = []
    still.handler(_noting(still, ran, "urgent"), "urgent")
    still.handler(_noting(still, ran, "low"), "low")
    parts = still.build(threads=1)
    still.store.set_setting("low_share", "0.1")
    parts.terms.refresh()
    still.put(200, "urgent", priority=9)
    still.put(20, "low", priority=0)
    while len(ran) < 100:
        parts.heartbeat.tick()
        parts.claimer.hint()
        parts.claimer.tick()
        still.until(parts.idle)
        still.settle()
    assert 7 <= ran[:100].count("low") <= 12


def _noting(still: Still, ran: list[str], name: str) -> Callable[[], None]:
    def note() -> None:
        # Long enough that nothing is claimed ahead.
        still.clock.advance(0.05)
        ran.append(name)

    return note
