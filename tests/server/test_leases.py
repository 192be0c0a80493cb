"""How does a worker in another language work, under the same leases, fences and recovery as ours?"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.server.conftest import House, serving, shop
from tests.waiting import PATIENCE, until
from windlass import JobHandle, Queue, ResultMissing
from windlass.errors import StoreUnavailable
from windlass.job import JobState, Reason
from windlass.ops import Ops
from windlass.outcome import Left
from windlass.server import remote
from windlass.server.identity import LOCAL
from windlass.store.engine import Settlement, Want


def claim(
    api: httpx2.Client, worker: str = "w1", types: tuple[str, ...] = ("add",), **more: Any
) -> list[dict[str, Any]]:
    answer = api.post("/leases", json={"worker": worker, "types": types} | more)
    assert answer.status_code == 200, answer.text
    leases: list[dict[str, Any]] = answer.json()["leases"]
    return leases


def state(house: House, job_id: str) -> str:
    return house.queue.get(job_id).state.value


def test_a_job_is_claimed_and_completed(house: House, api: httpx2.Client) -> None:
    job = house.queue.enqueue("add", {"a": 1, "b": 2})
    [lease] = claim(api, limit=5)
    assert (lease["job"]["id"], lease["job"]["payload"], lease["job"]["attempts"]) == (
        job.id,
        {"a": 1, "b": 2},
        1,
    )
    assert lease["timeout"] == 300
    assert state(house, job.id) == "processing"
    done = api.post(f"/leases/{lease['lease']}/complete", json={"result": {"sum": 3}})
    assert done.json() == {"id": job.id, "outcome": "done", "delay": None, "result_missing": None}
    assert job.result(PATIENCE) == {"sum": 3}
    again = api.post(f"/leases/{lease['lease']}/complete", json={"result": {"sum": 3}})
    assert again.json()["outcome"] == "repeated"
    assert claim(api) == []


@pytest.mark.parametrize("size", [70_000, 1_000_000])
def test_a_result_that_is_too_large_does_not_keep_a_job_from_being_completed(
    house: House, api: httpx2.Client, size: int
) -> None:
    job = house.queue.enqueue("add", {"a": 1})
    [lease] = claim(api)
    done = api.post(f"/leases/{lease['lease']}/complete", json={"result": "x" * size}).json()
    assert done["outcome"] == "done"
    assert done["result_missing"].startswith("result must be at most 65536 bytes as JSON")
    assert api.get(f"/jobs/{job.id}").json()["result_missing"] == done["result_missing"]
    with pytest.raises(ResultMissing, match="result must be at most 65536 bytes"):
        job.result(PATIENCE)


def test_a_type_that_requires_its_result_refuses_one_that_is_too_large(
    house: House, api: httpx2.Client
) -> None:
    house.queue.job(name="needed", result="required")(lambda: None)
    house.queue.publish()
    job = house.queue.enqueue("needed", {})
    [lease] = claim(api, types=("needed",))
    refused = api.post(f"/leases/{lease['lease']}/complete", json={"result": "x" * 70_000})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "result")
    assert state(house, job.id) == "processing", "the worker may send a smaller one, or fail the job"


def test_a_failed_attempt_is_retried_by_the_types_policy_and_then_dead(
    house: House, api: httpx2.Client
) -> None:
    job = house.queue.enqueue("add", {"a": 1})
    [lease] = claim(api)
    failed = api.post(
        f"/leases/{lease['lease']}/fail", json={"class": "IOError", "message": "no disk", "delay": 0}
    )
    assert failed.json()["outcome"] == "again"
    [second] = claim(api)
    assert second["job"]["attempts"] == 2
    assert (
        api.post(f"/leases/{second['lease']}/fail", json={"message": "still none"}).json()["outcome"]
        == "dead"
    )
    found = job.get()
    assert (found.state.value, found.error.message if found.error else None) == ("dead", "still none")
    assert [attempt.error.kind for attempt in found.history if attempt.error] == ["IOError", None]


def test_a_failure_that_no_retry_helps_is_dead_at_once(house: House, api: httpx2.Client) -> None:
    job = house.queue.enqueue("add", {"a": 1})
    [lease] = claim(api)
    answer = api.post(f"/leases/{lease['lease']}/fail", json={"message": "bad\0input", "retryable": False})
    assert (answer.json()["outcome"], state(house, job.id)) == ("dead", "dead")


def test_what_is_given_back_costs_no_attempt(house: House, api: httpx2.Client) -> None:
    job = house.queue.enqueue("add", {"a": 1})
    [lease] = claim(api)
    assert api.post(f"/leases/{lease['lease']}/release").json()["outcome"] == "released"
    assert (state(house, job.id), job.get().attempts) == ("pending", 0)


def test_who_has_lost_a_lease_writes_nothing(house: House, api: httpx2.Client) -> None:
    job = house.queue.enqueue("add", {"a": 1})
    [old] = claim(api)
    [row] = [worker for worker in house.queue.store.workers() if worker.id.startswith("~w1~")]
    assert house.queue.store.declare_dead(row.id, row.beat)
    [new] = claim(api, worker="w2", wait="60s")
    for verb in ("complete", "fail", "release", "extend"):
        late = api.post(f"/leases/{old['lease']}/{verb}")
        assert (late.status_code, late.json()["type"]) == (409, "urn:windlass:problem:lease-lost"), verb
    assert state(house, job.id) == "processing"
    assert api.post(f"/leases/{new['lease']}/complete").status_code == 200
    for wrong in ("x", f"{job.id}.short", "é", "a.b.c"):
        assert api.post(f"/leases/{wrong}/complete").status_code == 400


def test_a_claim_waits_for_a_job(house: House) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(claim, house.caller(), wait="60s")
        # The worker's row says that it is there and waits.
        until(lambda: any(worker.id.startswith("~w1~") for worker in house.queue.store.workers()))
        job = house.queue.enqueue("add", {"a": 1})
        [lease] = waiting.result(PATIENCE)
    assert lease["job"]["id"] == job.id


def test_a_repeated_request_is_given_the_same_jobs(house: House, api: httpx2.Client) -> None:
    for n in range(4):
        house.queue.enqueue("add", {"a": n})
    first = claim(api, limit=2, request="r1")
    again = claim(api, limit=2, request="r1")
    assert [each["lease"] for each in first] == [each["lease"] for each in again]
    other = claim(api, limit=1, request="r2")
    # The answer to that was lost, and the worker says what it knows.
    found = claim(api, limit=5, holding=[each["lease"] for each in first])
    assert [each["lease"] for each in found] == [each["lease"] for each in other]


def test_a_request_that_is_repeated_before_it_is_answered_is_given_the_same_jobs(house: House) -> None:
    for n in range(8):
        house.queue.enqueue("add", {"a": n})
    start = threading.Barrier(3)

    def ask(api: httpx2.Client) -> list[str]:
        start.wait()
        return [each["lease"] for each in claim(api, limit=2, request="r1")]

    with ThreadPoolExecutor(3) as threads:
        told = list(threads.map(ask, [house.caller() for _ in range(3)]))
    assert len(told[0]) == 2
    assert told == [told[0]] * 3


def test_who_hung_up_while_the_same_request_was_under_way_is_told_nothing(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking: list[Mapping[tuple[str, str], Any]] = []
    make = remote.Remote.__init__

    def made(self: remote.Remote) -> None:
        make(self)
        asking.append(self._asking)

    monkeypatch.setattr(remote.Remote, "__init__", made)
    body = b'{"worker":"w1","types":["add"],"request":"r1","wait":"60s"}'
    head = b"POST /api/v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with shop(store_url) as queue, serving(queue) as house, ThreadPoolExecutor(2) as threads:

        def waiting(lock: Any) -> int:
            return len(lock._waiters or ())  # noqa: SLF001 - there is no public count

        def under_way(count: int) -> None:
            until(lambda: [1 + waiting(lock) for lock in asking[0].values()] == [count], f"{count} ask")

        first = threads.submit(claim, house.caller(), request="r1", wait="60s")
        under_way(1)
        place = urlsplit(house.url)
        for number in range(5):
            with socket.create_connection((place.hostname or "", place.port or 0), PATIENCE) as line:
                line.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                under_way(2 + number)
        last = threads.submit(claim, house.caller(), request="r1", wait="60s")
        under_way(7)
        job = house.queue.enqueue("add", {"a": 1})
        [[lease], [again]] = first.result(PATIENCE), last.result(PATIENCE)
        assert again["lease"] == lease["lease"]
        assert (queue.get(job.id).losses, queue.get(job.id).state) == (0, JobState.PROCESSING)


def test_a_repeated_request_does_not_wait_longer_than_it_says(house: House) -> None:
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(claim, house.caller(), request="r1", wait="60s")
        seen = threading.Event()
        while not any(worker.id.startswith("~w1~") for worker in house.queue.store.workers()):
            seen.wait(0.01)
        assert claim(house.caller(), request="r1", wait="0s") == []
        house.queue.enqueue("add", {"a": 1})
        assert len(first.result(PATIENCE)) == 1


def test_of_many_workers_the_last_are_remembered_and_the_others_found_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "_MOST_REMEMBERED", 2)
    with Queue("sqlite:///:memory:") as queue:
        known = remote.Remote()

        def attend(name: str) -> str:
            return known.attend(queue.store, LOCAL, name, ("add",), slots=1, host="here")

        names = ["a", "b", "c", "d"]
        rows = [attend(name) for name in names]
        assert len(known._rows) == 2  # noqa: SLF001 - its size is what this is about
        assert [attend(name) for name in names] == rows


def test_beats_keep_a_worker_and_its_leases_and_tell_what_is_asked(house: House, api: httpx2.Client) -> None:
    job = house.queue.enqueue("add", {"a": 1})
    [lease] = claim(api)
    house.ops.cancel(job.id)
    lost = f"{job.id}.{'0' * 32}"
    told = api.post("/workers/w1/beat", json={"leases": [lease["lease"], lost], "lease": "10m"}).json()
    assert [each["request"] for each in told["kept"]] == ["cancel"]
    assert told["lost"] == [lost]
    assert told["kept"][0]["until"] > lease["until"]
    assert api.post(f"/leases/{lease['lease']}/extend").json()["request"] == "cancel"
    assert (
        api.post(f"/leases/{lease['lease']}/release", json={"started": True}).json()["outcome"] == "cancelled"
    )
    assert state(house, job.id) == "cancelled"
    house.ops.drain(told["worker"])
    assert api.post("/workers/w1/beat").json()["drain"] is True
    assert api.post("/leases", json={"worker": "w1", "types": ["add"], "wait": "20s"}).json()["drain"] is True
    assert api.post("/workers/w1/beat", json={"stopping": True}).status_code == 200
    gone = api.post("/workers/w1/beat")
    assert (gone.status_code, gone.json()["type"]) == (409, "urn:windlass:problem:worker-lost")


@pytest.mark.slow
def test_a_silent_worker_is_taken_for_dead_and_its_job_runs_elsewhere(
    house: House, api: httpx2.Client
) -> None:
    job = house.queue.enqueue("add", {"a": 1})
    [lease] = claim(api, worker="frozen")
    # The second one's open request keeps it alive; the server takes the first one's job back.
    [second] = until(lambda: claim(api, worker="other", wait="60s"), "the job is taken back")
    assert second["job"]["id"] == job.id
    assert api.post(f"/leases/{lease['lease']}/complete").status_code == 409
    assert api.post(f"/leases/{second['lease']}/complete").status_code == 200
    assert job.get().history[0].outcome != "done"


def test_what_a_worker_may_not_have_is_refused(house: House, api: httpx2.Client) -> None:
    wrongs: tuple[dict[str, Any], ...] = (
        {"types": ["nope"]},
        {"types": []},
        {"types": ["shell"]},
        {"worker": "a b"},
        {"worker": "~"},
        {"limit": 0},
        {"limit": 101},
        {"lease": "5s"},
        {"wait": "2m"},
        {"holding": ["x"]},
    )
    for wrong in wrongs:
        answer = api.post("/leases", json={"worker": "w", "types": ["add"]} | wrong)
        assert answer.status_code == 400, (wrong, answer.text)
    narrow = house.caller(house.key("gpu", "worker", types=("mail.*",)))
    assert narrow.post("/leases", json={"worker": "w", "types": ["add"]}).status_code == 403
    assert claim(narrow, types=("mail.send",)) == []


def test_two_keys_with_workers_of_one_name_are_two_workers(house: House) -> None:
    one, two = (house.caller(house.key(name, "worker")) for name in ("one", "two"))
    for n in range(2):
        house.queue.enqueue("add", {"a": n})
    claim(one)
    claim(two)
    rows = {worker.id.rpartition("~")[0] for worker in house.queue.store.workers()}
    assert {"one~w1", "two~w1"} <= rows


def test_pauses_and_limits_hold_for_remote_workers(store_url: str) -> None:
    with shop(store_url) as queue:
        queue.publish()
        ops = Ops(queue.store, wakeup=queue.wakeup, by="test")
        ops.pause("add")
        ops.set_limit("add", {"concurrency": "1"})
        with serving(queue) as house:
            api = house.caller()
            jobs = [queue.enqueue("add", {"a": n}) for n in range(3)]
            assert claim(api, wait="100ms") == []
            assert {state(house, job.id) for job in jobs} == {"pending"}
            ops.resume("add")
            [lease] = claim(api, limit=3, wait="60s")
            assert claim(api, worker="w2", limit=3) == []
            # The end of one lets the next one start.
            with ThreadPoolExecutor(1) as threads:
                waiting = threads.submit(claim, house.caller(), worker="w3", limit=3, wait="60s")
                assert api.post(f"/leases/{lease['lease']}/complete").status_code == 200
                assert len(waiting.result(PATIENCE)) == 1


def test_failures_of_remote_workers_open_the_breaker(house: House, api: httpx2.Client) -> None:
    house.ops.set_settings({"add.breaker.share": "0.5"})
    house.ops.set_settings({"add.breaker.jobs": "5"})
    for n in range(10):
        house.queue.enqueue("add", {"a": n})
    for lease in claim(api, limit=10):
        api.post(f"/leases/{lease['lease']}/fail", json={"message": "down"})
    store = house.ops.store
    [breaker] = until(
        lambda: [each for each in store.switches().breakers.values() if each.open], "the breaker opens"
    )
    assert (breaker.name, breaker.by_hand) == ("add", False)
    house.queue.enqueue("add", {"a": 10})
    house.queue.enqueue("add", {"a": 11})
    assert len(claim(api, limit=10)) <= 1, "a probe at most"


def test_tenants_are_served_in_turn(house: House, api: httpx2.Client) -> None:
    for tenant in ("a", "a", "b", "b"):
        house.queue.enqueue("add", {"a": 1}, tenant=tenant)
    served = [claim(api, worker=f"w{n}")[0]["job"]["tenant"] for n in range(4)]
    assert served == ["a", "b", "a", "b"]


def test_a_new_worker_that_asks_many_times_at_once_has_one_row(house: House) -> None:
    start = threading.Barrier(8)

    def ask(api: httpx2.Client) -> str:
        start.wait()
        return str(api.post("/leases", json={"worker": "w1", "types": ["add"]}).json()["worker"])

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(ask, [house.caller() for _ in range(8)]))) == 1


@pytest.mark.parametrize("more", [{"request": "r1"}, {"holding": []}])
def test_a_job_that_kills_whoever_asks_for_it_again_costs_attempts(
    house: House, api: httpx2.Client, more: dict[str, Any]
) -> None:
    job = house.queue.enqueue("add", {"a": 1})
    first = claim(api, **more)
    for _ in range(3):
        assert [each["lease"] for each in claim(api, **more)] == [each["lease"] for each in first]
    [second] = claim(api, **more)
    assert second["lease"] != first[0]["lease"]
    assert (job.get().attempts, job.get().losses) == (2, 1)
    assert api.post(f"/leases/{first[0]['lease']}/complete").status_code == 409


def test_a_job_that_is_too_old_is_given_to_nobody(store_url: str) -> None:
    with shop(store_url) as queue:

        @queue.job(max_age=0.001)
        def young(n: int) -> None:
            """Too late by the time that anybody asks."""

        job = queue.enqueue("young", {"n": 1})
        with serving(queue) as house:
            assert claim(house.caller(), types=("young",)) == []
        error = job.get().error
        assert (job.get().state, error.reason if error else None) == (JobState.DEAD, Reason.EXPIRED)


def test_the_lowest_priority_has_its_share(store_url: str) -> None:
    with shop(store_url) as queue:
        queue.publish()
        Ops(queue.store, by="test").set_settings({"low_share": "0.5"})
        for priority in (9, 9, 9, 9, 0, 0, 0, 0):
            queue.enqueue("add", {"a": 1}, priority=priority)
        with serving(queue) as house:
            api = house.caller()
            served = [claim(api, worker=f"w{n}")[0]["job"]["priority"] for n in range(4)]
        assert 0 in served


def test_workers_that_wait_leave_the_server_to_others(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    many = 30
    store, looked, go = house.queue.store, threading.Semaphore(0), threading.Event()
    real, waits = store.claim, set[str]()

    def quick(want: Any) -> Any:
        found = real(want)
        waits.add(want.worker)
        return found

    def slow(want: Any) -> Any:
        looked.release()
        go.wait(PATIENCE)
        return real(want)

    monkeypatch.setattr(store, "claim", quick)
    with ThreadPoolExecutor(many) as threads:
        waiting = [threads.submit(claim, house.caller(), f"w{n}", wait="60s") for n in range(many)]
        # Each of them looks once for itself, and then waits in line.
        until(lambda: len(waits) == many, "all wait")
        monkeypatch.setattr(store, "claim", slow)
        house.queue.enqueue("add", {"a": 1})
        assert looked.acquire(timeout=PATIENCE)
        assert house.caller().get("/stats").status_code == 200
        # One looks for all of them.
        assert not looked.acquire(blocking=False)
        go.set()
        house.queue.enqueue_many(house.queue.draft("add", {"a": n}) for n in range(many - 1))
        assert sorted(len(each.result(PATIENCE)) for each in waiting) == [1] * many


def test_a_job_that_another_worker_could_not_read_is_offered_over_http(
    house: House, api: httpx2.Client
) -> None:
    """A worker over HTTP does not say what it can read: it is given whatever others have left."""
    house.queue.publish()
    with Queue(house.queue.store.status().url) as older:

        @older.job(name="add")
        def add(a: int) -> None:
            """It does not know b."""

        job = house.queue.enqueue("add", {"a": 1, "b": 2})
        with older.worker():
            until(lambda: job.get().unread, "the worker leaves it")
            shown = api.get(f"/jobs/{job.id}").json()
            assert (shown["state"], shown["view"]) == ("pending", "unreadable")
            assert [each["id"] for each in api.get("/jobs?state=unreadable").json()["jobs"]] == [job.id]
            [lease] = claim(api, wait="5s")
            assert (lease["job"]["payload"], lease["job"]["attempts"]) == ({"a": 1, "b": 2}, 1)
            # It may give it back: then it is offered to everybody once more, and nobody's attempt is lost.
            assert api.post(f"/leases/{lease['lease']}/release").json()["outcome"] == "released"
            [again] = offered(api, job)
            done = api.post(f"/leases/{again['lease']}/complete", json={"result": 3})
            assert done.json()["outcome"] == "done"
    assert job.get().attempts == 1
    assert api.get("/jobs?state=unreadable").json()["jobs"] == []


def offered(api: httpx2.Client, job: JobHandle) -> list[dict[str, Any]]:
    """The job once it is this worker's turn again: the other one may take it first, and leaves it."""
    found: list[dict[str, Any]] = []

    def taken() -> bool:
        found.extend(claim(api, wait="1s"))
        return bool(found)

    until(taken, "it is offered again")
    assert [each["job"]["id"] for each in found] == [job.id]
    return found


def test_what_a_worker_over_http_fails_is_its_own_doing(house: House, api: httpx2.Client) -> None:
    job = house.queue.enqueue("add", {"a": 1})
    store = house.queue.store
    want = Want(worker="old", types={"add": 1}, limit=1, lease=timedelta(minutes=1))
    problem = Left(None, reader="old", field="payload.b", problem="payload.b is unknown")
    assert store.settle([Settlement(store.claim(want).leases[0], problem)]) == []
    [lease] = claim(api)
    failed = api.post(f"/leases/{lease['lease']}/fail", json={"message": "what is b?", "delay": 0})
    assert failed.json()["outcome"] == "again"
    assert (job.get().attempts, job.get().unread) == (1, False)


def test_a_claim_that_waits_takes_nothing_from_a_file_that_its_worker_has_not_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "jobs.db", tmp_path / "other.db"
    with shop(f"sqlite:///{other}") as filled:
        job_id = filled.enqueue("add", {"a": 1}).id
    attend = remote.Remote.attend

    def replaced_after(*args: Any, **more: Any) -> str:
        row = attend(*args, **more)
        if other.exists():
            other.rename(path)
            with pytest.raises(StoreUnavailable, match="was replaced"):
                args[1].types()
        return row

    with shop(f"sqlite:///{path}") as queue, serving(queue) as house:
        queue.publish()
        monkeypatch.setattr(remote.Remote, "attend", replaced_after)
        api = house.caller()
        refused = api.post("/leases", json={"worker": "w1", "types": ["add"]})
        assert refused.status_code == 503, refused.text
        assert (state(house, job_id), queue.get(job_id).attempts) == ("pending", 0)
        [lease] = claim(api)
        assert lease["job"]["id"] == job_id
        assert queue.store.orphans(limit=10) == []
