"""How much runs at once in real workers: on every core, and in no more memory than there are slots."""

from __future__ import annotations

import os
import sys

import pytest

from tests.surface.conftest import Terminal
from windlass import JobState, Queue
from windlass.store.jobs import Filter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and waits at a FIFO")

# Large enough that the C library takes each from the system and gives it back at once.
SIZE = 40 * 2**20
SLOTS = 5
JOBS = 100

MEETING = """
import ctypes
import os

from windlass import Queue

queue = Queue()


@queue.job(executor="process")
def meet(mine: str, theirs: str) -> int:
    here, there = (os.open(name, os.O_RDWR) for name in (mine, theirs))
    os.write(there, b"x")
    # Called so, read() keeps this interpreter's lock: in the same process the other job could never come.
    ctypes.PyDLL(None).read(here, ctypes.create_string_buffer(1), 1)
    return os.getpid()
"""

HOARDING = f"""
import re
import threading

from windlass import Queue

queue = Queue()
together = threading.Barrier({SLOTS})


@queue.job(max_attempts=1)
def hoard(size: int) -> int:
    held = b"x" * size
    together.wait()
    with open("/proc/self/status") as status:
        return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read())[1])
"""


def results(job_type: str) -> list[int]:
    with Queue("sqlite:///windlass.db") as queue:
        jobs = queue.store.find(Filter(types=(job_type,)), limit=1000).jobs
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    return [int(bytes(job.result or b"")) for job in reversed(jobs)]


def test_two_jobs_that_compute_have_an_interpreter_each(windlass: Terminal) -> None:
    """Each waits for the other with its interpreter's lock in hand, as a long calculation in C does."""
    windlass.write("app.py", MEETING)
    for name in ("one", "two"):
        os.mkfifo(name)
    for mine, theirs in (("one", "two"), ("two", "one")):
        payload = f'{{"mine": "{mine}", "theirs": "{theirs}"}}'
        windlass.ok("enqueue", "meet", payload, "--app", "app:queue")
    worked = windlass.apart("worker", "start", "app:queue", "--until-empty", "--concurrency", "2")
    assert worked.code == 0, worked.err
    first, second = results("meet")
    assert first != second


def test_a_hundred_jobs_that_need_memory_take_no_more_than_the_slots_allow(windlass: Terminal) -> None:
    windlass.write("app.py", HOARDING)
    lines = [f'{{"type": "hoard", "payload": {{"size": {0 if number < SLOTS else SIZE}}}}}'
             for number in range(SLOTS + JOBS)]  # fmt: skip
    windlass.write("jobs.jsonl", "\n".join(lines))
    windlass.ok("enqueue", "--file", "jobs.jsonl", "--app", "app:queue")
    worked = windlass.apart(
        "worker", "start", "app:queue", "--until-empty", "--concurrency", str(SLOTS), "--types", "hoard"
    )
    assert worked.code == 0, worked.err
    highest = results("hoard")
    taken = max(highest) - max(highest[:SLOTS])
    # As many as there are slots were there together, and never one more.
    assert (SLOTS - 0.5) * SIZE < taken < (SLOTS + 0.5) * SIZE
