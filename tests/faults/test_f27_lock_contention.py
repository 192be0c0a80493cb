"""F-27: ten processes write to one store, and an outsider holds its lock. Does any of them get an error?"""

from __future__ import annotations

import contextlib
import multiprocessing
import sqlite3
import threading
from collections.abc import Iterator
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from typing import NamedTuple

import psycopg

from tests.conformance.contenders import in_processes, open_and_enqueue
from tests.invariants import broken
from tests.waiting import PATIENCE
from tests.worker.stores import on_both
from windlass import connect
from windlass.outcome import Done
from windlass.store.engine import Settlement, Want
from windlass.store.store import Store

url = on_both
WRITERS, ROUNDS = 10, 10
HELD_SECONDS = 3.0


class Writer(NamedTuple):
    """One process: its name, where all wait for the outsider to have the lock, and where they go on."""

    name: str
    halfway: Barrier
    locked: Barrier


def write(store: Store, writer: Writer) -> tuple[list[str], list[str]]:
    """Enqueue and claim in turn; what was accepted, and what was completed here."""
    accepted: list[str] = []
    completed: list[str] = []
    want = Want(worker=writer.name, types={"mail.send": 1}, limit=1, lease=timedelta(hours=1))
    for number in range(ROUNDS):
        if number == ROUNDS // 2:
            writer.halfway.wait(PATIENCE)
            writer.locked.wait(PATIENCE)
        accepted += open_and_enqueue(store, 1)
        leases = store.claim(want).leases
        completed += [lease.id for lease in leases]
        assert store.settle([Settlement(lease, Done(), timedelta(0)) for lease in leases]) == []
    return accepted, completed


@contextlib.contextmanager
def locked_by_an_outsider(url: str) -> Iterator[None]:
    """Another program keeps all writers out for as long as a block lasts, as it may by mistake."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)) as outsider:
            outsider.execute("begin immediate")
            yield
            outsider.execute("rollback")
    else:
        with psycopg.connect(url) as session:
            session.execute("lock table windlass.jobs in exclusive mode")
            yield


def test_f27_ten_processes_enqueue_and_claim_while_an_outsider_holds_the_lock(url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    halfway, locked = spawn.Barrier(WRITERS + 1), spawn.Barrier(WRITERS + 1)

    def hold_the_lock() -> None:
        halfway.wait(PATIENCE)
        with locked_by_an_outsider(url):
            locked.wait(PATIENCE)
            threading.Event().wait(HELD_SECONDS)

    holder = threading.Thread(target=hold_the_lock)
    holder.start()
    names = [f"writer-{number}" for number in range(WRITERS)]
    answers = in_processes(url, write, [Writer(name, halfway, locked) for name in names])
    holder.join(PATIENCE)
    # An error of any of them would be here in the place of its answer.
    assert all(isinstance(answer, tuple) for answer in answers), answers
    accepted = [job_id for some, _ in answers for job_id in some]
    completed = [job_id for _, some in answers for job_id in some]
    assert len(accepted) == WRITERS * ROUNDS
    assert sorted(completed) == sorted(accepted), "each found a job in each round, and none was found twice"
    with contextlib.closing(connect.open(url)) as opened:
        assert broken(opened.store, accepted) == []
