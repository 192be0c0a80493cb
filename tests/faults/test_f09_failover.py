"""F-09: the primary dies and its synchronous standby takes its place. Is anything lost, or run twice?"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from tests.faults.scene import ENQUEUE, SETTLE, Yard, a_draft, impatient, until
from tests.servers import postgres
from tests.servers.proxy import Proxy, Where
from windlass.errors import StoreUnavailable
from windlass.store.protocol import Filter

pytestmark = pytest.mark.timeout(120)

# As long as a watchful operator or a failover manager takes.
GAP_SECONDS = 8.0


@pytest.fixture
def cluster() -> Iterator[postgres.Cluster]:
    with postgres.cluster(15) as cluster:
        yield cluster


def test_f09_a_fleet_goes_on_after_a_failover_and_runs_nothing_twice(
    cluster: postgres.Cluster, make_yard: Callable[[str], Yard]
) -> None:
    url = cluster.url(_database(cluster))
    yards = [make_yard(url), make_yard(url)]
    accepted: set[str] = set(yards[0].put(100))
    yards[0].go_on.clear()
    with yards[0].queue.worker(threads=4), yards[1].queue.worker(threads=4):
        names = {worker.id for worker in yards[0].store.workers()}
        until(lambda: len(yards[0].started) >= 4, "jobs run")
        cluster.primary.kill()
        killed = time.monotonic()
        promoting = threading.Timer(GAP_SECONDS, cluster.standby.promote)
        promoting.start()
        # Within the caller's patience: it waits, and is answered by the new primary.
        accepted.add(yards[1].work.enqueue(100).id)
        assert time.monotonic() - killed >= GAP_SECONDS
        promoting.join()
        yards[0].go_on.set()
        yards[0].finish()
        assert {worker.id for worker in yards[0].store.workers()} == names
    assert yards[0].started + yards[1].started == dict.fromkeys(range(101), 1)
    assert accepted <= {job.id for job in yards[0].store.find(Filter(), limit=1000).jobs}
    assert yards[0].store.check() == []


@pytest.mark.parametrize("statement", [SETTLE, ENQUEUE])
def test_f09_a_primary_killed_between_commit_and_answer_is_asked_again_elsewhere(
    cluster: postgres.Cluster, closing: ExitStack, make_yard: Callable[[str], Yard], statement: str
) -> None:
    database = _database(cluster)
    proxy = closing.enter_context(Proxy(cluster.primary.socket))
    yard = make_yard(proxy.url(database, str(cluster.standby.folder)))
    yard.put(1)
    with yard.queue.worker():
        yard.finish()
        with proxy.failing(statement, Where.COMMITTED, wait=True) as point:
            caller = threading.Thread(target=yard.work.enqueue, args=(1,))
            caller.start()
            point.wait()
            cluster.primary.kill()
            cluster.standby.promote()
            point.go_on.set()
            caller.join()
        until(lambda: yard.ran[1], "the job runs")
        yard.finish()
    assert yard.started == {0: 1, 1: 1}
    assert yard.store.count(Filter(), limit=10) == 2


def test_f09_a_commit_whose_replica_is_lost_is_a_failure_and_so_is_its_repeat_until_it_is_confirmed(
    cluster: postgres.Cluster,
) -> None:
    """Answering "it is there already" would promise what a failover to the replica loses."""
    with closing(impatient(cluster.url(_database(cluster)), 1.0)) as opened:
        opened.store.enqueue([a_draft()])
        cluster.standby.stop()
        draft = a_draft()
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="replica did not confirm") as failure:
                opened.store.enqueue([draft])
            assert failure.value.retryable
        cluster.standby.start()
        cluster.wait_until_in_step()
        [answer] = opened.store.enqueue([draft])
        assert not answer.created
        cluster.primary.kill()
        cluster.standby.promote()
        assert opened.store.get(draft.id) is not None


def _database(cluster: postgres.Cluster) -> str:
    return cluster.primary.new_database().partition("@/")[2].partition("?")[0]
