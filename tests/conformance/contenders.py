"""Who races whom? Threads at a barrier, and processes that open the store for themselves."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.queues import Queue as ProcessQueue
from multiprocessing.synchronize import Barrier
from typing import Any, TypeVar

from tests.waiting import PATIENCE
from windlass import connect
from windlass.clock import uuid7
from windlass.job import NewJob
from windlass.outcome import Done
from windlass.store.engine import Settlement, Want
from windlass.store.store import Store
from windlass.store.upkeep import Retention

T = TypeVar("T")


def at_once(*calls: Callable[[], T]) -> list[T | Exception]:
    """Make all calls at the same instant; what each gave or raised, in order."""
    answers: list[T | Exception] = [TimeoutError("no answer")] * len(calls)
    start = threading.Barrier(len(calls))

    def run(number: int) -> None:
        start.wait(PATIENCE)
        try:
            answers[number] = calls[number]()
        except Exception as error:  # noqa: BLE001 - the test judges it
            answers[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return answers


def won(answers: Sequence[T | Exception]) -> list[T]:
    """What the calls gave; none may have raised."""
    given = [answer for answer in answers if not isinstance(answer, Exception)]
    assert len(given) == len(answers), answers
    return given


# --- processes ----------------------------------------------------------------------------------

Part = Callable[[Store, Any], Any]


def in_processes(url: str, part: Part, arguments: Sequence[Any]) -> list[Any]:
    """Run a part in one process for each argument, all opening the store at the same instant."""
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(len(arguments))
    answers: ProcessQueue[tuple[int, Any]] = spawn.Queue()
    processes = [
        spawn.Process(target=_play, args=(url, part, argument, number, start, answers))
        for number, argument in enumerate(arguments)
    ]
    for process in processes:
        process.start()
    try:
        told = dict(answers.get(timeout=PATIENCE) for _ in processes)
    finally:
        for process in processes:
            process.join(PATIENCE)
            if process.is_alive():
                process.kill()
    return [told[number] for number in range(len(processes))]


def _play(
    url: str, part: Part, argument: Any, number: int, start: Barrier, answers: ProcessQueue[tuple[int, Any]]
) -> None:
    start.wait(PATIENCE)
    try:
        opened = connect.open(url)
        try:
            answers.put((number, part(opened.store, argument)))
        finally:
            opened.close()
    except Exception as error:  # noqa: BLE001 - the test judges it
        answers.put((number, repr(error)))


def open_and_enqueue(store: Store, count: int) -> list[str]:
    """Enqueue jobs one by one; their ids."""
    jobs = [NewJob(id=uuid7(), type="mail.send", payload=b"{}") for _ in range(count)]
    return [store.enqueue([job])[0].id for job in jobs]


def enqueue_one_key(store: Store, key: str) -> tuple[str, bool]:
    """Enqueue the same request as everybody else."""
    [answer] = store.enqueue([NewJob(id=uuid7(), type="mail.send", payload=b'{"to":"a"}', key=key)])
    return answer.id, answer.created


def work_until_empty(store: Store, worker: str) -> list[str]:
    """Claim and complete in small batches until nothing is left; the ids that ran here."""
    ran: list[str] = []
    want = Want(worker=worker, types={"mail.send": 1}, limit=3, lease=timedelta(seconds=60))
    while leases := store.claim(want).leases:
        ran += [lease.id for lease in leases]
        lost = store.settle([Settlement(lease, Done(), timedelta(0)) for lease in leases])
        assert lost == []
    return ran


def prune_everything(store: Store, _: object) -> int:
    """Prune whatever has ended, at once."""
    total = 0
    while pruned := store.prune(Retention(ended=timedelta(0), dead=timedelta(0)), limit=50):
        total += pruned
    return total


def open_again_and_again(_: Store, url_and_rounds: tuple[str, int]) -> int:
    """Open, enqueue, look and close, as many short commands do; how often it went well."""
    url, rounds = url_and_rounds
    for _round in range(rounds):
        opened = connect.open(url)
        try:
            open_and_enqueue(opened.store, 1)
            opened.store.counts()
        finally:
            opened.close()
    return rounds
