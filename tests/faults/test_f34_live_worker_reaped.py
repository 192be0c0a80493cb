"""F-34: a worker lives and works, but its beats do not reach the store."""

from __future__ import annotations

from collections.abc import Callable

from tests.faults.scene import BEAT, Yard
from tests.servers import postgres
from tests.servers.proxy import Proxy, Where
from tests.waiting import PATIENCE, until
from windlass.job import JobState, Reason

_ALWAYS = 1_000_000


def test_f34_a_live_worker_whose_beats_are_lost_is_reaped_and_its_late_result_changes_nothing(
    yard: Yard, proxy: Proxy, database: str, make_yard: Callable[[str], Yard]
) -> None:
    elsewhere = make_yard(postgres.shared(15).url(database))
    yard.go_on.clear()
    with yard.queue.worker() as worker:
        [job_id] = yard.put(1)
        until(lambda: yard.started[0], "the job begins")
        name = worker.id
        with elsewhere.queue.worker() as other, proxy.failing(BEAT, Where.BEFORE, times=_ALWAYS):
            until(lambda: elsewhere.ran[0], "another worker runs it")
            until(lambda: yard.job(job_id).state is JobState.COMPLETED, "and completes it")
            assert not worker.parts.membership.sure(), "it claims nothing meanwhile"
            before = yard.job(job_id)
            yard.go_on.set()
            until(lambda: worker.parts.settler.late, "its own result is late, and counted")
            assert yard.job(job_id) == before
            assert other.parts.settler.late == 0
        until(lambda: worker.id != name, "it lives on under a new name")
        yard.work.enqueue(1).wait(PATIENCE)
    assert [(entry.number, entry.error and entry.error.reason) for entry in before.history] == [
        (1, Reason.WORKER_LOST),
        (2, None),
    ]
    assert yard.ran == {0: 1, 1: 1}, "it ran on: when unsure, work goes on"


def test_f34_as_long_as_beats_arrive_nothing_is_reclaimed(
    yard: Yard, database: str, make_yard: Callable[[str], Yard]
) -> None:
    elsewhere = make_yard(postgres.shared(15).url(database))
    yard.go_on.clear()
    with yard.queue.worker() as worker, elsewhere.queue.worker() as other:
        other.drain()
        yard.put(1)
        until(lambda: yard.started[0], "the job begins")
        first = worker.parts.membership.sent
        # Longer than it takes to declare a silent worker dead.
        until(lambda: worker.parts.membership.sent - first > 12, "it has beaten for a while")
        yard.go_on.set()
        yard.finish()
    assert yard.started + elsewhere.started == {0: 1}
