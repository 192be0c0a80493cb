"""F-50: the database ends a session between the claim's execution and its commit."""

from __future__ import annotations

from tests.faults.scene import CLAIM, Yard
from tests.servers import postgres
from tests.servers.proxy import Proxy, Where
from tests.waiting import until
from windlass.job import JobState


def test_f50_a_claim_whose_session_is_killed_is_rolled_back_and_costs_no_attempt(
    yard: Yard, proxy: Proxy, database: str
) -> None:
    server = postgres.shared(15)
    [job_id] = yard.put(1)
    yard.go_on.clear()
    with proxy.failing(CLAIM, Where.EXECUTED, wait=True) as point, yard.queue.worker():
        point.wait()
        # Executed: the row is changed, and only this session sees it.
        executed = f"datname = '{database}' and backend_xid is not null and wait_event = 'ClientRead'"
        # Another one, such as a beat, may be between its execution and its commit as well.
        executed += f" and query ~ '{CLAIM}'"
        [(pid,)] = until(
            lambda: server.run(f"select pid from pg_stat_activity where {executed}"), "the claim is executed"
        )
        assert yard.job(job_id).state is JobState.PENDING
        server.run(f"select pg_terminate_backend({pid})")
        until(
            lambda: not server.run(f"select from pg_stat_activity where pid = {pid}"), "the session is gone"
        )
        job = yard.job(job_id)
        assert (job.state, job.attempts) == (JobState.PENDING, 0)
        point.go_on.set()
        yard.go_on.set()
        yard.finish()
    assert yard.ran == {0: 1}
    assert yard.job(job_id).attempts == 1
