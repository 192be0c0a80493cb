"""F-23: a thousand jobs die within a minute. Are they noticed, and does all else go on?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx2

from tests.observe.test_real_faults import hold
from tests.server.conftest import serving
from tests.waiting import PATIENCE, until
from tests.worker.stores import on_both
from windlass import FatalError, Queue
from windlass.job import JobState
from windlass.store.jobs import Filter

url = on_both
BROKEN, OBSOLETE = 700, 300
ALERTS = {"WindlassDeadLetters", "WindlassDeadLettersGrow"}


def test_f23_a_thousand_deaths_are_alerted_replayed_and_discarded_and_enqueue_goes_on(url: str) -> None:
    with Queue(url) as queue:
        fixed: list[bool] = []

        @queue.job
        def broken() -> None:
            if not fixed:
                raise FatalError("a bug")

        @queue.job
        def obsolete() -> None:
            raise FatalError("no such order")

        @queue.job
        def other(number: int) -> int:
            return number

        # What fails in every case would be held back by its breaker before the last one has died.
        queue.store.set_setting("breaker.share", "none")
        queue.store.take_sample(timedelta(0))
        assert not hold(queue.store) & ALERTS
        with serving(queue) as house, queue.worker() as worker:
            api = house.caller()
            queue.enqueue_many(broken.draft() for _ in range(BROKEN))
            queue.enqueue_many(obsolete.draft() for _ in range(OBSOLETE))
            assert [other.enqueue(number).result(PATIENCE) for number in range(5)] == list(range(5))
            until(lambda: dead(queue) == BROKEN + OBSOLETE, "all of them die")
            worker.parts.ledger.tick()
            queue.store.take_sample(timedelta(0))
            assert hold(queue.store) >= ALERTS

            page = api.get("/jobs", params={"state": "dead", "limit": 50}).json()
            assert len(page["jobs"]) == 50
            assert {job["error"]["reason"] for job in page["jobs"]} == {"exception"}
            assert api.post("/jobs", json={"type": "other", "payload": {"number": 1}}).status_code == 201

            fixed.append(True)
            assert act(api, "replay", "broken") == BROKEN
            until(lambda: ended(queue, "broken", JobState.COMPLETED) == BROKEN, "they are done")
            assert act(api, "discard", "obsolete") == OBSOLETE
            assert ended(queue, "obsolete", JobState.DISCARDED) == OBSOLETE
            assert dead(queue) == 0
            queue.store.take_sample(timedelta(0))
            assert "WindlassDeadLetters" not in hold(queue.store)


def dead(queue: Queue) -> int:
    return queue.store.count(Filter(states=(JobState.DEAD,)), limit=10_000)


def ended(queue: Queue, job_type: str, state: JobState) -> int:
    return queue.store.count(Filter(types=(job_type,), states=(state,)), limit=10_000)


def act(api: httpx2.Client, action: str, job_type: str) -> int:
    """One action on all dead jobs of a type; how many it was done to."""
    done: dict[str, Any] = api.post(
        "/jobs/actions", json={"action": action, "filter": {"state": ["dead"], "type": [job_type]}}
    ).json()
    assert (done["state"], done["refused"]) == ("done", 0), done
    return int(done["done"])
