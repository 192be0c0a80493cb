"""Named pools, the memory budget, and whether a worker is well."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.waiting import PATIENCE
from tests.worker import childjobs
from tests.worker.scene import Still
from windlass.config import PoolConfig, parse_pool
from windlass.errors import InvalidValue
from windlass.job import JobState
from windlass.observe import names
from windlass.queue import Queue
from windlass.store.fleet import PoolInfo
from windlass.store.jobs import Filter
from windlass.worker.health import SILENT_SECONDS, HealthAddress, examine, parse_address
from windlass.worker.memory import MemoryBudget, machine_memory


def test_a_pool_is_read_from_words() -> None:
    assert parse_pool("email=send_*,mail.*:5") == PoolConfig("email", ("send_*", "mail.*"), 5)


@pytest.mark.parametrize(
    "text",
    [
        *("", "email", "email=:5", "email=a", "=a:5", "email=a:x", "email=a:0"),
        *("e\nmail=a:5", "\udcff=a:5", f"{'e' * 65}=a:5"),
    ],
)
def test_what_is_no_pool_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        parse_pool(text)


def test_the_first_pool_that_matches_has_the_type_and_the_rest_goes_on_as_usual(still: Still) -> None:
    for name in ("send_email", "send_sms", "report"):
        still.handler(still.gate.pass_through, name)
    pools = (parse_pool("email=send_email:2"), parse_pool("send=send_*:1"))
    parts = still.build(pools=pools, threads=3)
    assert {pool.name: (sorted(pool.types), pool.slots) for pool in parts.pools} == {
        "pool email": (["send_email"], 2),
        "pool send": (["send_sms"], 1),
        "threads": (["report", "wait"], 3),
    }


def test_a_worker_tells_of_its_pools_by_the_names_that_people_gave_them(still: Still) -> None:
    still.handler(still.gate.pass_through, "heavy")
    still.handler(still.gate.pass_through, "report")
    still.build(pools=(parse_pool("reports=heavy:1"), parse_pool("threads=report:2")), threads=3)
    [joined] = still.store.workers()
    # One that is called as one of ours is counted with it.
    assert joined.pools == {"reports": PoolInfo(1), "threads": PoolInfo(5)}
    still.put(2)
    still.put(2, "heavy")
    still.run_claimed(3)
    still.pass_time(2)
    [row] = still.store.workers()
    assert row.pools == {"reports": PoolInfo(1, busy=1), "threads": PoolInfo(5, busy=2)}
    still.finish()


def test_a_claim_that_brings_jobs_is_measured_once_and_one_that_brings_none_is_not(still: Still) -> None:
    still.build()
    still.put(2)
    still.run_claimed(2)
    for _ in range(3):
        still.parts.triggers.hint()
        still.parts.claimer.tick()
    still.parts.ledger.tick()
    counted = {name: value for (_, name), value in still.store.totals().items() if value}
    claims = {names.CLAIM: 0, names.RECEIVE: 0}
    for measure in claims:
        buckets = range(len(names.BOUNDS[measure]) + 1)
        claims[measure] = sum(counted.get(names.bucket(measure, each), 0) for each in buckets)
    assert claims == {names.CLAIM: 1, names.RECEIVE: 1}
    still.finish()


def test_a_full_pool_leaves_its_jobs_to_others(still: Still) -> None:
    still.handler(still.gate.pass_through, "heavy")
    still.build(pools=(parse_pool("heavy=heavy:1"),), threads=2)
    heavy, light = still.put(3, "heavy"), still.put(2)
    still.run_claimed(3)
    assert [still.job(job).state for job in heavy] == [
        JobState.PROCESSING,
        JobState.PENDING,
        JobState.PENDING,
    ]
    assert {still.job(job).state for job in light} == {JobState.PROCESSING}
    still.finish()


def test_a_budget_is_what_its_jobs_have_promised() -> None:
    budget = MemoryBudget(1000)
    budget.take(300)
    budget.take(None)
    assert budget.left == 700
    budget.take(800)
    assert budget.left == 0
    budget.give_back(300)
    assert budget.left == 200


def test_the_machine_has_memory() -> None:
    size = machine_memory()
    assert size is None or size > 2**26


def test_no_more_jobs_are_claimed_than_fit_the_memory(queue: Queue) -> None:
    """Two of 1 GB do not fit 1.8 GB: they run one after the other, and the others beside them."""
    add = queue.job(executor="process", memory="1GB", name="big")(childjobs.add)
    pid = queue.job(executor="process")(childjobs.pid)
    most = 0
    with queue.worker(processes=4, memory="1.8GB") as worker:
        [pool] = [each for each in worker.parts.pools if each.name == "processes"]
        handles = [add.enqueue(each, 1) for each in range(6)]
        others = [pid.enqueue() for _ in range(3)]
        pause = threading.Event()
        while not all(queue.get(handle.id).ended for handle in handles):
            running = [run.handler.name for run in worker.parts.runs.values() if run.open]
            most = max(most, running.count("big"))
            pause.wait(0.002)
        assert all(handle.wait(PATIENCE).state is JobState.COMPLETED for handle in others)
        assert pool.shares_memory
    assert [handle.result(PATIENCE) for handle in handles] == [each + 1 for each in range(6)]
    assert most <= 1


def test_a_type_that_declares_memory_waits_for_its_turn_and_no_longer(queue: Queue) -> None:
    big = queue.job(executor="process", memory="100MB", name="big")(childjobs.pid)
    small = queue.job(name="small")(lambda: threading.Event().wait(0.005))
    queue.enqueue_many(small.draft() for _ in range(200))
    urgent = big.options(priority=9).enqueue()
    with queue.worker(concurrency=1):
        begun = urgent.wait(PATIENCE).started_at
    assert begun is not None
    smalls = queue.store.find(Filter(types=("small",)), limit=200).jobs
    assert len(smalls) == 200
    assert sum(job.started_at is not None and job.started_at < begun for job in smalls) < 100, "it was last"


def test_memory_that_one_pool_leaves_is_offered_to_another_at_once(still: Still) -> None:
    still.handler(childjobs.add, "big", executor="process", memory="1GB")
    still.handler(childjobs.add, "light", executor="process", memory="100MB")
    parts = still.build(pools=(parse_pool("light=light:2"),), memory=2**30)
    pools = {pool.name: pool for pool in parts.pools}
    # Stands for a light job that runs.
    budget = pools["processes"].budget
    assert budget is not None
    budget.take(100 * 2**20)
    [big] = still.put(1, "big")
    parts.claimer.tick()
    assert still.job(big).claims == 0, "there is no room for it"

    parts.triggers.woken.clear()
    budget.give_back(100 * 2**20)
    parts.triggers.freed(pools["pool light"])
    assert parts.triggers.woken.is_set()


def test_whom_memory_is_kept_for_is_asked_for_before_all_others(still: Still) -> None:
    still.handler(childjobs.add, "big", executor="process", memory="1GB")
    still.handler(childjobs.add, "light", executor="process", memory="100MB")
    parts = still.build(memory=2**30)
    [pool] = [each for each in parts.pools if each.shares_memory]
    assert pool.budget is not None
    # The first look at who waits is over.
    parts.claimer.tick()
    [light], [big] = (still.put(1, name, payload={"a": 1, "b": 2}) for name in ("light", "big"))
    pool.budget.reserve("big", 2**30)
    parts.triggers.hint()
    parts.claimer.tick()
    assert (still.job(big).claims, still.job(light).claims) == (1, 0)
    assert pool.budget.reserved_for == ""
    still.until(parts.idle)
    still.settle()
    assert still.job(big).state is JobState.COMPLETED


def test_memory_that_is_kept_no_more_is_offered_to_all_pools_at_once(still: Still) -> None:
    still.handler(childjobs.add, "a_light", executor="process", memory="100MB")
    still.handler(childjobs.add, "big", executor="process", memory="1GB")
    parts = still.build(pools=(parse_pool("light=a_light:2"),), memory=2**30)
    first, last = (pool for pool in parts.pools if pool.shares_memory)
    assert (first.name, last.name) == ("pool light", "processes")
    assert first.budget is not None
    parts.claimer.tick()
    [light] = still.put(1, "a_light")
    first.budget.reserve("big", 2**30)
    parts.triggers.hint()
    wait = parts.claimer.tick()
    assert (still.job(light).claims, first.budget.reserved_for) == (0, ""), "it was asked for before, in vain"
    assert wait == 0, "nothing runs whose end would wake anybody"


def test_a_type_that_could_never_fit_is_refused_when_the_worker_starts(queue: Queue) -> None:
    queue.job(executor="process", memory="1GB")(childjobs.add)
    with pytest.raises(InvalidValue, match=r"memory of type add.*--types"), queue.worker(memory="512MB"):
        pass


# --- is it well? ---


def test_a_worker_is_well_while_it_beats_and_claims(still: Still) -> None:
    parts = still.build()
    assert examine(parts, begun=True).ok
    assert examine(parts, begun=False).why == "starting"


def test_thirty_seconds_without_the_store_are_too_long(still: Still) -> None:
    parts = still.build()
    still.clock.advance(SILENT_SECONDS + 1)
    assert "the store has not answered for 31 s" in examine(parts, begun=True).why
    parts.heartbeat.tick()
    parts.claimer.tick()
    assert examine(parts, begun=True).ok


def test_a_worker_that_beats_and_does_not_claim_is_not_well(still: Still) -> None:
    parts = still.build()
    for _ in range(40):
        still.pass_time(1)
    assert "not claiming" in examine(parts, begun=True).why


def test_a_draining_worker_is_not_ready(still: Still) -> None:
    parts = still.build()
    parts.draining = True
    assert "draining" in examine(parts, begun=True).why


@pytest.mark.parametrize(
    ("text", "address"),
    [("8081", ("127.0.0.1", 8081)), ("0.0.0.0:80", ("0.0.0.0", 80)), ("[::1]:80", ("::1", 80))],  # noqa: S104 - words
)
def test_an_address_is_read(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "1:99999"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="--probe"):
        parse_address(text)


def has_ipv6() -> bool:
    """Many containers have none."""
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", pytest.param("::1", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here"))],
)
def test_the_health_address_minds_nobody_who_does_not_wait(
    host: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    entered, left = threading.Event(), threading.Event()

    def answer() -> tuple[bool, Any]:
        entered.set()
        left.wait(PATIENCE)
        return True, {"ok": "x" * 1_000_000}

    address = HealthAddress((host, 0), answer, lambda: "")
    address.start()
    try:
        with socket.create_connection((host, address.port)) as caller:
            caller.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            entered.wait(PATIENCE)
            # Gone, with a reset instead of a farewell.
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        left.set()
        place = f"[{host}]" if ":" in host else host
        with urllib.request.urlopen(f"http://{place}:{address.port}/health", timeout=PATIENCE) as told:
            assert told.status == 200
    finally:
        address.close()
    assert [each for each in caplog.records if each.name == "windlass.probe"] == []
    assert "Exception" not in capfd.readouterr().err


def test_the_health_address_says_what_it_is_told() -> None:
    told: list[tuple[bool, Any]] = [(True, {"ok": True}), (False, {"ok": False, "why": "tired"})]
    address = HealthAddress(("127.0.0.1", 0), lambda: told[0], lambda: "")
    address.start()
    try:
        assert ask(address.port, "/health") == (200, {"ok": True})
        assert ask(address.port, "/other")[0] == 404
        told.pop(0)
        assert ask(address.port, "/health/ready") == (503, {"ok": False, "why": "tired"})
        with pytest.raises(InvalidValue, match="free"):
            HealthAddress(("127.0.0.1", address.port), lambda: told[0], lambda: "")
    finally:
        address.close()


def ask(port: int, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
