"""Which dead workers are missed? Those that nobody replaced, unless they were asked to leave."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from windlass.observe.fleet import missing
from windlass.store.fleet import WorkerInfo

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def worker(
    name: str,
    started: int,
    seen: int,
    state: str = "running",
    types: tuple[str, ...] = ("mail", "shell"),
    *,
    drain: bool = False,
) -> WorkerInfo:
    return WorkerInfo(
        id=name,
        state=state,
        started_at=NOW + timedelta(seconds=started),
        beat_at=NOW + timedelta(seconds=seen),
        host="here",
        boot="b",
        pid_space="p",
        pid=1,
        pid_started=1,
        version="1",
        types=types,
        drain=drain,
    )


def missed(*workers: WorkerInfo) -> list[str]:
    return [each.id for each in missing(workers)]


def test_a_worker_that_died_is_missed_until_another_starts_in_its_place() -> None:
    dead, old = worker("dead", 0, 60, "dead"), worker("old", 0, 100)
    assert missed(dead) == ["dead"]
    assert missed(dead, old) == ["dead"]
    assert missed(dead, old, worker("new", 70, 100)) == []


def test_a_worker_replaces_one_and_not_two() -> None:
    dead = [worker(name, 0, 60, "dead") for name in ("a", "b")]
    assert len(missed(*dead, worker("new", 70, 100))) == 1
    assert missed(*dead, worker("new", 70, 100), worker("newer", 71, 100)) == []


def test_a_worker_that_is_restarted_again_and_again_is_missed_once_at_most() -> None:
    row = [worker(str(number), number * 10, number * 10 + 5, "dead") for number in range(9)]
    assert missed(*row) == ["8"]
    assert missed(*row, worker("alive", 90, 100)) == []


def test_a_worker_of_other_types_takes_nobodys_place() -> None:
    dead = worker("dead", 0, 60, "dead")
    assert missed(dead, worker("new", 70, 100, types=("report", "shell"))) == ["dead"]
    assert missed(dead, worker("new", 70, 100, types=("report", "mail"))) == []
    commands = worker("dead", 0, 60, "dead", ("shell",))
    assert missed(commands, worker("new", 70, 100, types=("shell",))) == []


def test_whoever_stopped_or_was_asked_to_leave_is_not_missed() -> None:
    assert missed(worker("stopped", 0, 60, "stopped")) == []
    assert missed(worker("drained", 0, 60, "dead", drain=True)) == []
