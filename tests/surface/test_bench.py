"""The proving ground end to end: our driver and the database's, on a file; real processes, small sizes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.client import Client, Failed
from bench.drive.contract import Cannot
from bench.drive.processes import Heard
from bench.drive.verbs import _verdict
from tests.waiting import PATIENCE


def client(driver: str, folder: Path) -> Client:
    return Client(Path(sys.executable), driver, f"sqlite:///{folder / 'jobs.db'}")


def ask(one: Client, verb: str, **arguments: Any) -> dict[str, Any]:
    return one.ask(verb, within=PATIENCE, **arguments)


def test_a_driver_answers_every_kind_of_case(tmp_path: Path) -> None:
    with client("windlass", tmp_path) as ours:
        assert ask(ours, "setup")["settings"].startswith("defaults")
        enqueued = ask(ours, "enqueue_producers", seconds=0.05, producers=3)
        assert enqueued["count"] >= 3
        assert 0 < enqueued["p50"] <= enqueued["p99"]
        assert ask(ours, "drain", count=80, processes=1)["count"] == 80
        ask(ours, "crowd", kind="archived", count=500)
        ask(ours, "crowd", kind="other", count=500)
        assert ask(ours, "drain", count=80)["rate"] > 0
        assert ask(ours, "dispatch", count=3)["p50"] > 0


def test_the_runner_hears_when_an_idle_worker_is_measured(tmp_path: Path) -> None:
    news: list[str] = []
    with client("windlass", tmp_path) as ours:
        ask(ours, "setup")
        figures = ours.ask("idle", within=PATIENCE, news=news.append, seconds=0.5, settle=0.5)
    assert news == ["begin", "end"]
    assert figures["memory"] > 5


def test_what_a_peer_cannot_do_is_no_failure_and_the_driver_goes_on(tmp_path: Path) -> None:
    with client("raw", tmp_path) as raw:
        ask(raw, "setup")
        with pytest.raises(Cannot, match="one connection is the measure"):
            ask(raw, "drain", count=100, processes=2)
        assert ask(raw, "drain", count=100)["rate"] > 0


def test_a_driver_that_breaks_is_reported_with_what_it_said(tmp_path: Path) -> None:
    with (
        client("nobody", tmp_path) as broken,
        pytest.raises(Failed, match=r"No module named 'bench.peers.nobody'"),
    ):
        ask(broken, "setup")
    with client("raw", tmp_path) as raw, pytest.raises(Failed, match="TypeError"):
        ask(raw, "bulk", count="many")


def test_a_driver_that_takes_too_long_is_ended_with_its_workers(tmp_path: Path) -> None:
    with client("windlass", tmp_path) as ours:
        ask(ours, "setup")
        with pytest.raises(Failed, match="did not end within 2 s"):
            ours.ask("idle", within=2, seconds=60)
        group = ours._process.pid  # noqa: SLF001 - driver and workers are one group
    _, left = psutil.wait_procs(members(group), timeout=PATIENCE)
    assert left == []


def members(group: int) -> list[psutil.Process]:
    """The living processes of a group."""
    found = []
    for each in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(each.pid) == group and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
    return found


def heard(*told: tuple[str, str, float]) -> list[Heard]:
    return [Heard(what, body, at, 1) for what, body, at in told]


def test_a_job_that_is_cut_off_and_runs_again_is_back() -> None:
    story = heard(("start", "0", 1.0), ("start", "0", 14.0), ("end", "0", 20.0))
    told = _verdict(story, {"0"}, 1, killed=5.0)
    assert told == {"cut_off": 1, "back": 9.0, "first_back": 9.0, "missing": 0, "doubled": 0}


def test_a_job_that_never_runs_again_is_missing_and_one_that_ends_twice_doubled() -> None:
    story = heard(("start", "0", 1.0), ("start", "1", 1.0), ("end", "1", 4.0), ("end", "1", 30.0))
    told = _verdict(story, {"0"}, 2, killed=5.0)
    assert told == {"cut_off": 1, "back": None, "first_back": None, "missing": 1, "doubled": 1}
