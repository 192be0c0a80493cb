"""Is an action on many jobs done once to each of them, though the process that carries it is killed?"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest

from tests.crash.app import work
from tests.crash.processes import ROOT, Site
from tests.server.process import ServerProcess
from tests.waiting import PATIENCE, until
from windlass.job import JobState
from windlass.store.jobs import Filter
from windlass.store.operations import Operation, State

JOBS = 2_000
CANCEL = ("cancel", "--type", "work", "--yes", "--rate", "400/s")


def command(site: Site, *words: str, stderr: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "windlass", *words]
    return subprocess.Popen(
        line, cwd=ROOT, env=site.environment(), stdout=subprocess.DEVNULL, stderr=stderr, text=True
    )


def enqueue(site: Site) -> list[str]:
    # They are due later than any test lasts: no worker runs them meanwhile.
    jobs = site.enqueue(*(work.options(delay="1h").draft(0.01) for _ in range(JOBS)))
    # What the test asks for next; processes that are killed carry it out, so no answer is recorded.
    site.recorder.begin("cancel", jobs)
    return jobs


def under_way(site: Site) -> Operation:
    until(lambda: any(each.reached.done for each in site.store.operations()), "it has begun")
    [found] = site.store.operations()
    return found


def reaches(site: Site, begun: Operation, count: int) -> bool:
    return site.store.operation(begun.id).reached.done >= count


def assert_done_once(site: Site, jobs: list[str], begun: Operation) -> None:
    until(lambda: site.store.operation(begun.id).state is State.DONE, "another process has carried it on")
    ended = site.store.operation(begun.id)
    assert (ended.reached.matched, ended.reached.done, ended.reached.refused) == (JOBS, JOBS, 0)
    assert site.store.count(Filter(states=(JobState.CANCELLED,)), limit=2 * JOBS) == JOBS
    noted: Counter[str] = Counter()
    cursor = None
    while True:
        page = site.store.audit(verb="cancel", limit=1000, cursor=cursor)
        noted.update(entry.target for entry in page.entries)
        cursor = page.next
        if cursor is None:
            break
    assert noted == Counter(jobs)


def test_a_worker_carries_on_what_a_killed_command_began(site: Site) -> None:
    jobs = enqueue(site)
    began = command(site, *CANCEL)
    begun = under_way(site)
    began.kill()
    began.wait(PATIENCE)
    assert site.store.operation(begun.id).reached.done < JOBS
    site.worker()
    assert_done_once(site, jobs, begun)
    assert site.store.operation(begun.id).owner != begun.owner


@pytest.mark.slow
def test_servers_that_are_killed_again_and_again_bring_it_to_its_end(site: Site) -> None:
    jobs = enqueue(site)
    began = command(site, *CANCEL)
    begun = under_way(site)
    began.kill()
    began.wait(PATIENCE)
    server = ServerProcess(site.url, ROOT)
    for _ in range(2):
        goal = site.store.operation(begun.id).reached.done + 1
        until(partial(reaches, site, begun, goal), "a server carries it")
        server.kill()
    assert_done_once(site, jobs, begun)
    server.stop()


def test_an_interrupt_leaves_it_running_and_says_how_to_find_it(site: Site) -> None:
    jobs = enqueue(site)
    began = command(site, *CANCEL, stderr=subprocess.PIPE)
    begun = under_way(site)
    began.send_signal(signal.SIGINT)
    _, said = began.communicate(timeout=PATIENCE)
    assert began.returncode == 130
    assert f"windlass operation show {begun.id}" in said
    assert f"windlass operation stop {begun.id}" in said
    left = site.store.operation(begun.id)
    assert (left.state, left.reached.done < JOBS) == (State.RUNNING, True)
    # It was let go: the next one need not wait for the lease.
    again = command(site, "operation", "show", begun.id, "--follow")
    assert again.wait(PATIENCE) == 0
    assert_done_once(site, jobs, begun)
