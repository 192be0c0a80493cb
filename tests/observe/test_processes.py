"""Is what is exposed right for a fleet of real processes, from every server, and after a restart?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from tests.conformance.scene import DEAD, a_job
from tests.crash.processes import Site
from tests.observe.scene import Scrape, parsed
from tests.observe.tables import Tables
from tests.server.conftest import visitor
from tests.server.process import ServerProcess
from tests.servers import postgres
from tests.waiting import until
from windlass.clock import to_micros
from windlass.store.engine import Settlement, Want

pytestmark = pytest.mark.crash

APP = "tests.observe.app:queue"
NOW = timedelta(0)
LINGERING = b'{"seconds": 1000}'

StartServer = Callable[[], ServerProcess]


@pytest.fixture(params=["sqlite", "postgres-15"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        url = None if request.param == "sqlite" else stack.enter_context(postgres.prepared(15))
        made = stack.enter_context(Site(tmp_path, url))
        # What is enqueued and settled here is not recorded.
        made.rules = None
        yield made


@pytest.fixture
def server(site: Site, tmp_path: Path) -> Iterator[StartServer]:
    """Starts server processes on the site's store, which end with the test."""
    with ExitStack() as stack:

        def start() -> ServerProcess:
            process = ServerProcess(site.url, tmp_path)
            stack.callback(process.stop)
            return process

        yield start


def scrape(site: Site, server: ServerProcess) -> Scrape:
    """What a server shows, as of now."""
    server.await_start()
    site.store.take_sample(NOW)
    with visitor(server.url) as caller:
        return parsed(caller.get("/metrics").raise_for_status().text)


def in_state(found: Scrape, name: str) -> dict[str, float]:
    """A gauge by its label `state`."""
    return {labels["state"]: value for labels, value in found[name]}


def test_of_three_workers_one_is_killed_and_two_are_alive(site: Site, server: StartServer) -> None:
    one = server()
    workers = [site.start(APP, "--concurrency", "1") for _ in range(3)]

    def alive() -> float:
        return in_state(scrape(site, one), "windlass_workers")["alive"]

    until(lambda: alive() == 3, "all of them beat")
    workers[0].kill()
    workers[0].wait()
    until(lambda: alive() == 2, "one is missed, and no other")


def test_with_five_of_ten_slots_busy_a_worker_is_half_used(site: Site, server: StartServer) -> None:
    one = server()
    site.start(APP, "--concurrency", "10")
    site.store.enqueue([a_job(type="linger", payload=LINGERING) for _ in range(5)])

    def used() -> tuple[float, float]:
        slots = in_state(scrape(site, one), "windlass_slots")
        return slots["busy"], slots["all"]

    until(lambda: used() == (5, 10), "half of the slots are busy")
    with visitor(one.url) as caller:
        [worker] = caller.get("/api/v1/workers").json()["workers"]
    assert worker["busy"] / worker["slots"] == 0.5


def gauges(found: Scrape) -> dict[str, Counter[tuple[str, ...]]]:
    """What is counted from the store."""
    return {
        name: Counter({tuple(labels.values()): value for labels, value in found.get(name, []) if value})
        for name in ("windlass_queue_depth", "windlass_dlq_depth")
    }


def counted(site: Site) -> dict[str, Counter[tuple[str, ...]]]:
    """The same by plain SQL."""
    tables = Tables(site.url, to_micros(site.store.now()))
    dead: Counter[tuple[str, ...]] = Counter((job["type"],) for job in tables.jobs if job["state"] == "dead")
    return {"windlass_queue_depth": tables.depths(), "windlass_dlq_depth": dead}


def oldest(found: Scrape) -> dict[tuple[str, ...], float]:
    return {tuple(labels.values()): value for labels, value in found["windlass_oldest_due_age_seconds"]}


def test_two_servers_and_a_restarted_one_show_what_the_tables_hold(site: Site, server: StartServer) -> None:
    servers = [server(), server()]
    site.store.enqueue([a_job(priority=8) for _ in range(3)])
    site.store.enqueue([a_job(delay=timedelta(hours=1)) for _ in range(2)])
    site.store.enqueue([a_job(type="report.build")])
    want = Want(worker="w", types={"report.build": 1}, limit=1, lease=timedelta(hours=1))
    [lease] = site.store.claim(want).leases
    assert site.store.settle([Settlement(lease, DEAD, NOW)]) == []
    held = counted(site)
    assert sum(map(len, held.values())) == 3
    for restarted in (False, True):
        if restarted:
            servers[0].kill()
            site.store.enqueue([a_job(type="report.build", priority=1)])
            held = counted(site)
        before = site.store.now()
        first, second = (scrape(site, each) for each in servers)
        assert gauges(first) == gauges(second) == held
        passed = (site.store.now() - before).total_seconds()
        for lane, age in oldest(first).items():
            assert 0 <= oldest(second)[lane] - age <= passed
