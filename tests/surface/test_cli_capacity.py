"""Do the smoke test, the plan and the signals say what is, at a terminal?"""

from __future__ import annotations

import textwrap
from datetime import timedelta

import pytest

from tests.surface.conftest import Terminal
from tests.waiting import PATIENCE
from windlass import connect
from windlass.queue import Queue

APP = """
    from pathlib import Path

    from windlass import Queue

    queue = Queue("sqlite:///jobs.db", version="shop 2.4")


    def written(name: str) -> bool:
        return Path(name).exists()


    @queue.job(verify=written, smoke={"name": "good.txt"})
    def good(name: str) -> None:
        Path(name).write_text("done")


    @queue.job(verify=written, smoke={"name": "liar.txt"})
    def liar(name: str) -> None: ...


    @queue.job(smoke={"n": 0})
    def broken(n: int) -> None:
        raise ValueError("it is broken")


    @queue.job(smoke={})
    def plain() -> None: ...


    @queue.job
    def unknown() -> None: ...
"""


@pytest.fixture
def shop(windlass: Terminal) -> Queue:
    """An application's queue, with its handlers in a module of the folder."""
    windlass.write("smokeshop.py", textwrap.dedent(APP))
    from windlass.cli.session import load_queue  # noqa: PLC0415 - from the folder that the terminal sits in

    return load_queue("smokeshop:queue")


def test_a_smoke_test_runs_a_sample_of_each_type_and_says_which_lie(
    windlass: Terminal, shop: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each check is made once: there is no time for another one.
    monkeypatch.setattr("windlass.smoke._BETWEEN_CHECKS", PATIENCE)
    with shop.worker():
        answer = windlass("smoke", "--app", "smokeshop:queue", "--within", f"{PATIENCE:g}s", "--json")
    assert answer.code == 1
    told = {each["type"]: each for each in answer.json["types"]}
    assert {name: each["outcome"] for name, each in told.items()} == {
        "broken": "failed",
        "good": "verified",
        "liar": "mismatched",
        "plain": "completed",
    }
    assert not answer.json["ok"]
    assert told["broken"]["detail"] == "dead: it is broken"
    assert {each["app"] for each in told.values()} == {"shop 2.4"}
    # Nothing is left among the dead letters.
    assert windlass.jobs("--db", "sqlite:///jobs.db", "--state", "dead") == []


def test_a_smoke_test_in_which_all_is_well_ends_with_0(windlass: Terminal, shop: Queue) -> None:
    with shop.worker():
        answer = windlass("smoke", "--app", "smokeshop:queue", "--type", "good", "--type", "plain")
    assert answer.code == 0
    assert [line.split()[:2] for line in answer.out.splitlines()] == [
        ["TYPE", "OUTCOME"],
        ["good", "verified"],
        ["plain", "completed"],
    ]


def test_a_smoke_test_without_workers_is_late_and_leaves_nothing_to_run_later(
    windlass: Terminal, shop: Queue
) -> None:
    shop.publish()
    answer = windlass("smoke", "--db", "sqlite:///jobs.db", "--within", "50ms", "--type", "plain")
    assert answer.code == 1
    assert "late" in answer.out
    assert [job["state"] for job in windlass.jobs("--db", "sqlite:///jobs.db")] == ["cancelled"]


def test_a_smoke_test_with_nothing_to_run_says_so(windlass: Terminal) -> None:
    connect.open("sqlite:///windlass.db").close()
    assert windlass("smoke") == (
        1,
        "",
        "windlass: no type has a sample job: @queue.job(smoke={...}) gives one\n",
    )
    assert windlass("smoke", "--type", "nobody").code == 1


# --- the plan -----------------------------------------------------------------------------------


def test_a_plan_is_told_and_given_as_json(windlass: Terminal) -> None:
    words = ("plan", "--rate", "500/s", "--run", "2s", "--spike", "10", "--spike-for", "30m")
    told = windlass.ok(*words).out
    for line in (
        "running at once   1,000 jobs",
        "workers           131 of 10 slots",
        "jobs a day        43,200,000",
        "storage           21.6 GB a day, 151.2 GB kept, 196.6 GB with indexes",
        "a spike of 10 times for 30m brings 9,000,000 jobs",
    ):
        assert f"  {line}\n" in told
    assert windlass.ok(*words, "--json").json["workers"] == 131


def test_one_of_a_thing_is_told_as_one(windlass: Terminal) -> None:
    told = windlass.ok("plan", "--rate", "1/s", "--run", "1s", "--slots", "1").out
    assert told.startswith("1 job/s that take ")
    assert "  running at once   1 job\n" in told
    assert " of 1 slot\n" in told


def test_a_plan_from_what_the_store_has_seen(windlass: Terminal, shop: Queue) -> None:
    with shop.worker() as worker:
        for number in range(36):
            shop.enqueue("good", {"name": f"{number}.txt"})
        for job in windlass.jobs("--db", "sqlite:///jobs.db"):
            shop.wait(job["id"], PATIENCE)
        worker.parts.ledger.tick()
    shop.store.take_sample(timedelta(0))
    found = windlass.ok("plan", "--db", "sqlite:///jobs.db", "--json").json
    assert found["load"]["rate"] == pytest.approx(0.01)
    assert 0 < found["load"]["run"] < 10
    assert windlass("plan", "--db", "sqlite:///jobs.db", "--rate", "5").code == 2


def test_a_store_that_has_seen_nothing_has_no_plan(windlass: Terminal) -> None:
    connect.open("sqlite:///windlass.db").close()
    answer = windlass("plan")
    assert (answer.code, answer.err) == (
        1,
        "windlass: this store has seen no job run yet: give --rate and --run\n",
    )


# --- the signals --------------------------------------------------------------------------------


def test_signals_are_told_and_given_as_json(windlass: Terminal, shop: Queue) -> None:
    shop.enqueue("plain", {})
    with shop.worker() as worker:
        shop.enqueue("plain", {}).wait(PATIENCE)
        worker.parts.ticks.tell()
        told = windlass.ok("signals", "--db", "sqlite:///jobs.db").out
        found = windlass.ok("signals", "--db", "sqlite:///jobs.db", "--json").json
    assert "Last succeeded" in told
    ticks = {each["name"]: each for each in found["ticks"]}
    assert list(ticks) == ["beat", "reap", "promote", "schedule", "prune"]
    assert not any(each["late"] for each in ticks.values())
    assert found["findings"] == []
