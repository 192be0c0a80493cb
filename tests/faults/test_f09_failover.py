"""F-09: the primary dies and its synchronous standby takes its place. Is anything lost, or run twice?"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from tests.faults.scene import ENQUEUE, SETTLE, Yard, a_draft, impatient
from tests.servers import postgres, standby
from tests.servers.proxy import Proxy, Where
from tests.waiting import until
from windlass import connect
from windlass.clock import SystemClock
from windlass.errors import StoreUnavailable
from windlass.ops import Ops
from windlass.ops.doctor import Diagnosis, Level, checkup, diagnoses
from windlass.store.jobs import Filter

# As long as a watchful operator or a failover manager takes.
GAP_SECONDS = 8.0


@pytest.fixture
def pair() -> Iterator[standby.Pair]:
    with standby.pair(15) as pair:
        yield pair


def test_f09_a_fleet_goes_on_after_a_failover_and_runs_nothing_twice(
    pair: standby.Pair, make_yard: Callable[[str], Yard]
) -> None:
    url = pair.url(pair.new_database())
    yards = [make_yard(url), make_yard(url)]
    accepted: set[str] = set(yards[0].put(100))
    yards[0].go_on.clear()
    with yards[0].queue.worker(threads=4), yards[1].queue.worker(threads=4):
        names = {worker.id for worker in yards[0].store.workers()}
        until(lambda: len(yards[0].started) >= 4, "jobs run")
        standby.kill(pair.primary)
        killed = time.monotonic()
        promoting = threading.Timer(GAP_SECONDS, pair.standby.promote)
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
    pair: standby.Pair, closing: ExitStack, make_yard: Callable[[str], Yard], statement: str
) -> None:
    database = pair.new_database()
    proxy = closing.enter_context(Proxy(standby.socket_in(pair.primary.folder)))
    yard = make_yard(proxy.url(database, str(pair.standby.folder)))
    yard.put(1)
    with yard.queue.worker():
        yard.finish()
        with proxy.failing(statement, Where.COMMITTED, wait=True) as point:
            caller = threading.Thread(target=yard.work.enqueue, args=(1,))
            caller.start()
            point.wait()
            standby.kill(pair.primary)
            pair.standby.promote()
            point.go_on.set()
            caller.join()
        until(lambda: yard.ran[1], "the job runs")
        yard.finish()
    assert yard.started == {0: 1, 1: 1}
    assert yard.store.count(Filter(), limit=10) == 2


def test_f09_a_commit_whose_replica_is_lost_is_a_failure_and_so_is_its_repeat_until_it_is_confirmed(
    pair: standby.Pair,
) -> None:
    """Answering "it is there already" would promise what a failover to the replica loses."""
    url = pair.url(pair.new_database())
    with closing(connect.open(url)) as patient, closing(impatient(url, 1.0)) as opened:
        patient.store.enqueue([a_draft()])
        pair.standby.stop()
        draft = a_draft()

        def unconfirmed() -> bool:
            """Whether it came as far as to wait for the replica: a busy machine may lack the time."""
            with pytest.raises(StoreUnavailable) as failure:
                opened.store.enqueue([draft])
            assert failure.value.retryable
            return "replica did not confirm" in str(failure.value)

        for _ in range(2):
            until(unconfirmed, "it waits for the replica in vain")
        pair.standby.start()
        pair.wait_until_in_step()
        [answer] = patient.store.enqueue([draft])
        assert not answer.created
        standby.kill(pair.primary)
        pair.standby.promote()
        assert patient.store.get(draft.id) is not None


def test_f09_a_standby_to_which_a_failover_would_lose_jobs_is_warned_of() -> None:
    def found() -> list[Diagnosis]:
        return [each for each in diagnoses(checkup(ops, SystemClock())) if each.name == "standby"]

    programs = standby.required(15)
    with (
        postgres.running(15) as primary,
        closing(connect.open(primary.new_database())) as opened,
        closing(standby.Standby(primary, programs, durable=False)) as follower,
    ):
        ops = Ops(opened.store)
        assert found() == []
        follower.start()
        until(found, "it follows, and no one waits for it")
        [warning] = found()
        assert warning.level is Level.WARNING
        assert warning.sentence.startswith("no standby is synchronous")
        # What the warning advises ends it.
        primary.run(str(warning.fix))
        primary.run("select pg_reload_conf()")
        until(lambda: not found(), "the primary waits for it")
