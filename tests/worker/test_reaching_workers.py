"""What an operator changes while workers run: does it hold for all of them after one look at the store?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta

import pytest

from tests.conformance.conftest import ENGINES
from tests.worker.scene import Still
from windlass import connect
from windlass.clock import ManualClock
from windlass.ops import Ops
from windlass.store.flow import BreakerState

Change = tuple[Callable[[Ops], object], Callable[[Still], bool]]
WORKERS = 3


def closed(still: Still) -> bool:
    """Whether it asks for jobs of the type no more."""
    return not still.parts.admission.open({"wait": 1})


CHANGES: dict[str, Change] = {
    "a pause": (lambda ops: ops.pause("wait"), closed),
    "a breaker that is opened by hand": (
        lambda ops: ops.store.set_breaker("wait", BreakerState.OPEN),
        closed,
    ),
    "a limit": (
        lambda ops: ops.set_limit("wait", {"concurrency": "2"}),
        lambda still: (
            "wait" in still.parts.admission.restricted
            and still.parts.admission.restricted["wait"].limits["wait"].concurrency == 2
        ),
    ),
    "a timeout": (
        lambda ops: ops.set_settings({"wait.timeout": "7s"}),
        lambda still: still.parts.live.in_force["wait"].timeout == timedelta(seconds=7),
    ),
}


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with ENGINES[request.param]() as url:
        yield url


@pytest.fixture
def fleet(url: str, clock: ManualClock) -> Iterator[list[Still]]:
    """Three workers with stores of their own, none of whose loops runs."""
    with ExitStack() as stack:
        workers = []
        for _ in range(WORKERS):
            opened = stack.enter_context(closing(connect.open(url, clock=clock)))
            still = stack.enter_context(closing(Still(opened, clock)))
            still.build()
            still.store.register([still.parts.handlers["wait"].info()])
            still.parts.heartbeat.tick()
            still.parts.live.tick()
            workers.append(still)
        yield workers


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_holds_for_every_worker_after_its_next_look(
    fleet: list[Still], url: str, clock: ManualClock, change: str
) -> None:
    make, holds = CHANGES[change]
    with closing(connect.open(url, clock=clock)) as opened:
        make(Ops(opened.store, by="ann", clock=clock))
    assert not any(holds(still) for still in fleet)
    for still in fleet:
        woken: list[bool] = []
        still.parts.live.loop.wake = lambda woken=woken: woken.append(True)  # type: ignore[method-assign, misc] # bound early
        clock.advance(1)
        still.parts.heartbeat.tick()
        # The look at the store wakes the loop that reads the settings, and its next tick does so.
        assert woken == [True]
        still.parts.live.tick()
        assert holds(still)
