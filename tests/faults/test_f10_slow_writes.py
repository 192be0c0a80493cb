"""F-10: every answer of the database takes half a second."""

from __future__ import annotations

import time

from tests.faults.scene import Yard
from tests.servers.proxy import Proxy
from tests.waiting import until
from windlass.store.jobs import Filter


def test_f10_slow_answers_slow_things_down_and_break_nothing(yard: Yard, proxy: Proxy) -> None:
    yard.put(20)
    with yard.queue.worker() as worker:
        yard.finish()
        proxy.delay = 0.5
        begun = time.monotonic()
        first = yard.work.options(key="order-1").enqueue(20)
        assert time.monotonic() - begun >= 0.5
        # A producer that ran out of patience sends its request again.
        again = yard.work.options(key="order-1").enqueue(20)
        assert (again.id, again.created) == (first.id, False)
        until(lambda: yard.ran[20], "the job runs")
        sent = worker.parts.membership.sent
        until(lambda: worker.parts.membership.sent > sent, "the heart beats")
        assert worker.parts.membership.sure()
        proxy.delay = 0.0
        yard.finish()
    assert yard.ran == dict.fromkeys(range(21), 1)
    assert yard.store.count(Filter(), limit=100) == 21
