"""F-25: ten processes want the same twenty jobs at the same moment, fifty times. Has each job one owner?"""

from __future__ import annotations

import multiprocessing
from contextlib import closing
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from typing import NamedTuple

from tests.conformance.contenders import in_processes
from tests.waiting import PATIENCE
from tests.worker.stores import on_both
from windlass import connect
from windlass.clock import uuid7
from windlass.job import NewJob
from windlass.outcome import Done
from windlass.store.engine import Settlement, Want
from windlass.store.jobs import Filter
from windlass.store.store import Store

url = on_both
RACERS, JOBS, ROUNDS = 10, 20, 50


class Racer(NamedTuple):
    """One process: its name, and where all of them start each round together."""

    name: str
    start: Barrier


def race(store: Store, racer: Racer) -> list[str]:
    """Claim what there is of each round's type, and complete it; the ids that were claimed here."""
    claimed: list[str] = []
    for number in range(ROUNDS):
        want = Want(worker=racer.name, types={f"round-{number}": 1}, limit=3, lease=timedelta(hours=1))
        racer.start.wait(PATIENCE)
        while leases := store.claim(want).leases:
            claimed += [lease.id for lease in leases]
            # A job with a second owner would be lost to one of them.
            assert store.settle([Settlement(lease, Done(), timedelta(0)) for lease in leases]) == []
    return claimed


def test_f25_of_ten_processes_that_claim_at_the_same_moment_one_gets_each_job(url: str) -> None:
    types = [f"round-{number}" for number in range(ROUNDS) for _ in range(JOBS)]
    with closing(connect.open(url)) as opened:
        made = opened.store.enqueue([NewJob(id=uuid7(), type=each, payload=b"{}") for each in types])
        start = multiprocessing.get_context("spawn").Barrier(RACERS)
        claimed = in_processes(url, race, [Racer(f"racer-{number}", start) for number in range(RACERS)])
        assert all(isinstance(each, list) for each in claimed), claimed
        assert sorted(job_id for each in claimed for job_id in each) == sorted(each.id for each in made)
        assert sum(bool(each) for each in claimed) > 1, "they raced"
        assert {job.claims for job in opened.store.find(Filter(), limit=len(made)).jobs} == {1}
