"""F-35: there is always something more urgent. With a share of its own the lowest priority progresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.worker.conftest import clock, still
from tests.worker.scene import Still
from tests.worker.stores import on_both
from windlass import connect
from windlass.clock import ManualClock
from windlass.connect import Opened

__all__ = ["clock", "still"]
url = on_both


@pytest.fixture
def opened(url: str, clock: ManualClock) -> Iterator[Opened]:
    """The store under the test's clock."""
    opened = connect.open(url, clock=clock)
    yield opened
    opened.close()


@pytest.mark.parametrize("limit", [None, 1], ids=["unlimited", "limited"])
def test_the_lowest_priority_has_its_share(still: Still, limit: int | None) -> None:
    ran: list[str] = []
    still.handler(_noting(still, ran, "urgent"), "urgent")
    still.handler(_noting(still, ran, "low"), "low", concurrency=limit)
    parts = still.build(threads=1)
    still.store.set_setting("low_share", "0.1")
    parts.live.refresh()
    still.put(200, "urgent", priority=9)
    still.put(20, "low", priority=0)
    while len(ran) < 60:
        parts.heartbeat.tick()
        parts.triggers.hint()
        parts.claimer.tick()
        still.until(parts.idle)
        still.settle()
    assert 4 <= ran[:60].count("low") <= 8


def _noting(still: Still, ran: list[str], name: str) -> Callable[[], None]:
    def note() -> None:
        # Long enough that nothing is claimed ahead.
        still.clock.advance(0.05)
        ran.append(name)

    return note
