"""Whether a worker's process is surely gone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from windlass.clock import ManualClock
from windlass.store.fleet import WorkerInfo
from windlass.upkeep import membership as place

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system tells this on Linux only")


def a_worker(pid: int, **changes: object) -> WorkerInfo:
    here = place.here()
    info = WorkerInfo(
        id="w",
        host=here.host,
        boot=here.boot,
        pid_space=here.pid_space,
        pid=pid,
        pid_started=here.pid_started,
        version="0",
    )
    return msgspec.structs.replace(info, **changes)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def started(pid: int) -> int:
    return place._started(pid)  # noqa: SLF001 - what the child would say of itself


def test_this_process_is_here() -> None:
    assert not place.is_gone(a_worker(os.getpid()), place.here())


@linux
def test_a_living_process_is_not_gone(child: subprocess.Popen[bytes]) -> None:
    worker = a_worker(child.pid, pid_started=started(child.pid))
    assert not place.is_gone(worker, place.here())


@linux
def test_a_killed_process_is_gone_even_before_its_parent_asks_for_it(child: subprocess.Popen[bytes]) -> None:
    worker = a_worker(child.pid, pid_started=started(child.pid))
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert place.is_gone(worker, place.here()), "a zombie runs nothing"
    child.wait()
    assert place.is_gone(worker, place.here())


@linux
def test_a_number_that_another_process_has_now_is_not_the_worker(child: subprocess.Popen[bytes]) -> None:
    worker = a_worker(child.pid, pid_started=started(child.pid) - 1)
    assert place.is_gone(worker, place.here())


@linux
@pytest.mark.parametrize(
    "elsewhere", [{"boot": "another-boot"}, {"pid_space": "pid:[1]"}, {"boot": "", "pid_space": ""}]
)
def test_of_processes_elsewhere_nothing_is_known(
    elsewhere: dict[str, object], child: subprocess.Popen[bytes]
) -> None:
    worker = a_worker(child.pid, **elsewhere)
    child.kill()
    child.wait()
    assert not place.is_gone(worker, place.here())


def test_a_system_that_tells_nothing_makes_nobody_gone() -> None:
    blank = place.Place(host="h", boot="", pid_space="", pid=1, pid_started=0)
    assert not place.is_gone(a_worker(2**22 + 1, boot="", pid_space=""), blank)


@linux
def test_here_names_boot_namespace_and_start() -> None:
    here = place.here()
    assert len(here.boot) == 36
    assert here.pid_space.startswith("pid:[")
    assert here.pid == os.getpid()
    assert here.pid_started > 0


def test_no_two_workers_share_an_id_though_host_and_number_of_the_process_are_the_same() -> None:
    here = place.here()
    made = [place.Membership(here, ManualClock()).id for _ in range(100)]
    assert len(set(made)) == 100
    assert all(each.startswith(f"{here.host}-{here.pid}-") for each in made)
    long = msgspec.structs.replace(here, host="h" * 200)
    assert len(place.Membership(long, ManualClock()).id) == 128
