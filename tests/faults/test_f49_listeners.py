"""F-49: the server is restarted under open LISTEN connections. Are jobs found, and hints heard again?"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.faults.scene import Yard
from tests.servers import postgres, standby
from tests.servers.proxy import Proxy
from tests.waiting import until


def test_f49_a_restart_costs_listeners_nothing_but_a_moment(
    server: postgres.Server, make_yard: Callable[[str], Yard]
) -> None:
    url = server.new_database()
    producer, consumer = make_yard(url), make_yard(url)
    told = threading.Event()
    with consumer.queue.worker():
        consumer.queue.wakeup.subscribe(told.set)
        producer.put(1)
        until(lambda: consumer.ran[0], "the job runs")
        standby.stop_at_once(server)
        server.start()
        # Found by looking, if not by hearing.
        producer.work.enqueue(1)
        until(lambda: consumer.ran[1], "the job after the restart runs")
        told.clear()
        until(lambda: _tell(producer, told), "a hint is heard")
        consumer.queue.wakeup.unsubscribe(told.set)
        until(lambda: producer.left() == 0, "both jobs are over")
    assert consumer.ran == {0: 1, 1: 1}
    assert producer.ran == {}


def test_f49_a_listener_that_hears_nothing_is_noticed_and_costs_latency_only(
    yard: Yard,
    proxy: Proxy,
    database: str,
    make_yard: Callable[[str], Yard],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A half-open LISTEN connection: no error, no notification, for ever."""
    monkeypatch.setattr("windlass.wakeup._ASK_SECONDS", 1.0)
    monkeypatch.setattr("windlass.wakeup._ANSWER_SECONDS", 1.0)
    producer = make_yard(postgres.shared(15).url(database))
    producer.put(1)
    with yard.queue.worker():
        until(lambda: yard.ran[0], "the job runs")
        proxy.silence("listen windlass")
        producer.work.enqueue(1)
        until(lambda: yard.ran[1], "it is found by looking")
        until(lambda: "wakeup.deaf" in caplog.messages, "it is noticed")
    assert yard.ran == {0: 1, 1: 1}


def _tell(producer: Yard, told: threading.Event) -> bool:
    producer.queue.wakeup.notify()
    return told.wait(0.5)
