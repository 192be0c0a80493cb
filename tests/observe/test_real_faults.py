"""Do alerts tell of real faults? Processes are killed, memory is used up, the store is away, and really so.

The time until an alert clears is not waited for: whoever looks has a clock that is ahead.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.conformance.scene import a_job
from tests.crash.processes import Site
from tests.observe.faults import COUNTED, FAULTS
from tests.observe.scene import Scrapes
from tests.server.conftest import House, serving, shop
from tests.servers import postgres, standby
from tests.servers.proxy import Proxy
from tests.waiting import until
from windlass import connect
from windlass.clock import SystemClock
from windlass.errors import StoreError
from windlass.job import JobState
from windlass.observe import gather
from windlass.observe.alerts import BY_NAME
from windlass.observe.firing import StoreMeasures, holding
from windlass.store.jobs import Filter
from windlass.store.store import Store

pytestmark = pytest.mark.crash

APP = "tests.observe.app:queue"
NOW = timedelta(0)
DEAD = Filter(states=(JobState.DEAD,))

# Which alerts are made to fire here, and by what; all others by the store's verbs alone, in faults.py.
REAL = {
    "WindlassWorkersDie": "kill -9 of four workers",
    "WindlassWorkerRestarts": "kill -9 of four workers under a supervisor, which starts them anew",
    "WindlassPoisonJobs": "kill -9 of the workers that run four jobs",
    "WindlassWorkerSilent": "kill -9 of the only worker: nobody is left to take its jobs back",
    "WindlassNoWorkers": "the same, with jobs that are due",
    "WindlassNobodyLooks": "the same: whoever looks is dead",
    "WindlassOutOfMemory": "a job that takes eight times what it may",
    "WindlassDeadLetters": "handlers that raise",
    "WindlassDeadLettersGrow": "handlers that raise",
    "WindlassErrorRate": "handlers that raise",
    "WindlassErrorsBurnsFast": "handlers that raise",
    "WindlassErrorsBurnsSlowly": "handlers that raise",
    "WindlassBreakerOpen": "a dependency that is down",
    "WindlassEnqueueErrors": "a full queue that refuses requests",
    "WindlassStoreAway": "a network that carries nothing to PostgreSQL",
}


def test_each_is_said_to_be_made_by_something() -> None:
    assert REAL.keys() <= FAULTS.keys()
    assert not REAL.keys() & COUNTED


class Ahead(SystemClock):
    """A clock that is ahead of all others."""

    def __init__(self, by: timedelta) -> None:
        self._by = by // timedelta(microseconds=1)

    def micros(self) -> int:
        return super().micros() + self._by


def hold(store: Store) -> set[str]:
    """The alerts whose condition holds by the store's history."""
    return {name for name, _ in holding(StoreMeasures(store, gather.read_facts(store)))}


def hold_later(url: str, **after: float) -> set[str]:
    """The same, some time from now, if nothing else happens."""
    with contextlib.closing(connect.open(url, clock=Ahead(timedelta(**after)))) as opened:
        return hold(opened.store)


class Watcher:
    """Scrapes a server, and judges by what it scraped."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._caller = house.caller()
        self._scrapes = Scrapes(apart=0)
        self.look()

    def look(self) -> None:
        """Take a sample, if the store is there, and scrape."""
        with contextlib.suppress(StoreError):
            self._house.queue.store.take_sample(NOW)
        text = self._caller.get(f"{self._house.url}/metrics").text
        self._scrapes.add(time.monotonic(), text)

    def hold(self) -> set[str]:
        """The alerts whose condition holds by what was scraped so far."""
        self.look()
        return {name for name, alert in BY_NAME.items() if alert.condition.read(self._scrapes)}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as made:
        # Its jobs are stored past the recorder.
        made.rules = None
        yield made


@contextlib.contextmanager
def watched(site: Site) -> Iterator[Watcher]:
    """A server on the site's store, and somebody who scrapes it."""
    with shop(site.url) as queue, serving(queue) as house:
        yield Watcher(house)


def put(site: Site, job_type: str, count: int = 1, payload: str = "{}") -> None:
    site.store.enqueue(
        [a_job(type=job_type, payload=payload.encode(), max_attempts=20) for _ in range(count)]
    )


def running(site: Site) -> int:
    return site.store.count(Filter(states=(JobState.PROCESSING,)), limit=100)


def test_workers_that_are_killed_under_their_supervisor(site: Site) -> None:
    supervisor = site.start(APP, "--count", "4", "--concurrency", "1", joining=4)
    put(site, "linger", 4, '{"seconds": 1000}')
    until(lambda: running(site) == 4, "all of them run")
    wanted = {"WindlassWorkersDie", "WindlassWorkerRestarts", "WindlassPoisonJobs"}
    with watched(site) as watcher:
        assert not watcher.hold() & wanted
        for worker in _workers(site):
            psutil.Process(worker).kill()
        until(lambda: watcher.hold() >= wanted, "all three fire")
        assert hold(site.store) >= wanted
    supervisor.kill()
    assert not hold_later(site.url, minutes=31) & wanted


def _workers(site: Site) -> list[int]:
    return [worker.pid for worker in site.store.workers() if worker.state == "running"]


def test_the_only_worker_is_killed_and_nobody_is_left_to_notice(site: Site) -> None:
    worker = site.start(APP, "--concurrency", "1")
    put(site, "linger", 2, '{"seconds": 1000}')
    until(lambda: running(site) == 1, "one of them runs")
    site.store.take_sample(NOW)
    wanted = {"WindlassWorkerSilent", "WindlassNoWorkers", "WindlassNobodyLooks"}
    assert not hold(site.store) & wanted
    worker.kill()
    worker.wait()
    # Ten seconds of silence, two minutes without a look.
    assert hold_later(site.url, minutes=3) >= wanted
    site.start(APP, "--concurrency", "1")
    until(lambda: running(site) == 1, "the next worker has taken it back")
    site.store.take_sample(NOW)
    assert not hold(site.store) & wanted


def test_jobs_that_fail_in_every_way(site: Site, tmp_path: Path) -> None:
    dependency = tmp_path / "dependency"
    for name, value in (("jobs", "5"), ("probe", "1s")):
        site.store.set_setting(f"call.breaker.{name}", value)
    site.start(APP, "--concurrency", "4")
    wanted = {name for name, how in REAL.items() if how == "handlers that raise"}
    wanted |= {"WindlassOutOfMemory", "WindlassPoisonJobs", "WindlassBreakerOpen"}
    with watched(site) as watcher:
        assert not watcher.hold() & wanted
        put(site, "hoard")
        put(site, "crash", 4)
        put(site, "doomed", 12)
        calling = f'{{"dependency": "{dependency}"}}'
        put(site, "call", 6, calling)
        until(lambda: watcher.hold() >= wanted, "all of them fire")
        assert hold(site.store) >= wanted
        # The dependency is back: the next job finds that out, as a probe. Dead letters are closed.
        dependency.touch()
        put(site, "call", 1, calling)
        for job in site.store.find(DEAD, limit=100).jobs:
            site.store.discard(job.id)
        until(lambda: not watcher.hold() & {"WindlassBreakerOpen", "WindlassDeadLetters"}, "they are over")
    # The slow burn looks back over half an hour.
    assert not hold_later(site.url, minutes=32) & wanted


def test_a_full_queue_refuses_requests(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with shop(url) as queue, serving(queue) as house:
        watcher, api = Watcher(house), house.caller()
        queue.store.set_setting("add.soft_depth", "1")
        send = {"type": "add", "payload": {"a": 1}}

        def refused() -> bool:
            status = api.post("/jobs", json=send).status_code
            watcher.look()
            return status == httpx2.codes.TOO_MANY_REQUESTS

        until(refused, "the queue is full")
        until(lambda: "WindlassEnqueueErrors" in watcher.hold(), "it fires")
        assert "WindlassEnqueueErrors" in hold(queue.store)
        assert "WindlassEnqueueErrors" not in hold_later(url, minutes=6)


def test_a_store_that_is_away(tmp_path: Path) -> None:
    with (
        postgres.prepared(15) as url,
        Proxy(standby.socket_in(postgres.shared(15).folder)) as proxy,
        shop(proxy.url(standby.name_of(url)), patience=3) as queue,
        serving(queue) as house,
    ):
        watcher = Watcher(house)
        # It waits for the store for a few seconds only, and a busy machine may take longer.
        until(lambda: "WindlassStoreAway" not in watcher.hold(), "the store is there")
        proxy.silence()
        assert watcher.hold() == {"WindlassStoreAway"}
        proxy.speak()
        until(lambda: "WindlassStoreAway" not in watcher.hold(), "the store is back")
