"""F-08: the database is stopped, frozen, loses its sessions, has none left to give, or is locked."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.crash.app import work
from tests.crash.processes import Site
from tests.faults.scene import BEAT, Shift, Yard, a_draft, completed, impatient
from tests.servers import postgres, standby
from tests.servers.proxy import Proxy
from tests.waiting import PATIENCE, until
from windlass import connect
from windlass.errors import StoreBusy, StoreUnavailable
from windlass.job import JobState
from windlass.store.jobs import Filter

# Longer than a worker may be silent before others take it for dead.
FROZEN_SECONDS = 12.0


def test_f08_running_jobs_go_on_through_an_immediate_restart_and_their_results_are_kept(
    server: postgres.Server, make_yard: Callable[[str], Yard]
) -> None:
    yard = make_yard(server.new_database())
    yard.go_on.clear()
    yard.put(5)
    with yard.queue.worker():
        until(lambda: len(yard.started) == 5, "all jobs begin")
        standby.stop_at_once(server)
        yard.go_on.set()
        until(lambda: len(yard.ran) == 5, "all jobs run to their end")
        server.start()
        # Who enqueues now need not know of it.
        yard.work.enqueue(5)
        yard.finish()
    assert yard.ran == dict.fromkeys(range(6), 1)


def test_f08_a_frozen_server_costs_time_and_nothing_else(
    server: postgres.Server, make_yard: Callable[[str], Yard]
) -> None:
    """Connections stay open and nobody answers: no error comes by itself, and nothing may wait for ever."""
    url = server.new_database()
    yard, watcher = make_yard(url), make_yard(url)
    yard.go_on.clear()
    [job_id] = yard.put(1)
    with yard.queue.worker() as worker, closing(impatient(url, 8.0)) as opened:
        until(lambda: yard.started[0], "the job begins")
        name = worker.id
        # Another worker that might take the first one for dead.
        with watcher.queue.worker(types=["nothing.*", "work"]) as other:
            other.drain()
            opened.store.enqueue([a_draft()])
            standby.freeze(server)
            frozen = time.monotonic()
            try:
                with pytest.raises(StoreUnavailable) as failure:
                    opened.store.enqueue([a_draft()])
                assert failure.value.retryable
                yard.go_on.set()
                threading.Event().wait(max(0.0, frozen + FROZEN_SECONDS - time.monotonic()))
                assert not worker.parts.membership.sure()
            finally:
                standby.thaw(server)
            until(lambda: yard.job(job_id).state is JobState.COMPLETED, "the result is written")
            until(worker.parts.membership.sure, "the worker is sure of itself again")
            yard.work.enqueue(1)
            until(lambda: yard.ran[1], "the worker works again")
        assert worker.id == name
    assert yard.started == {0: 1, 1: 1}
    assert watcher.started == {}


def test_f08_a_worker_stops_in_its_time_while_the_server_is_frozen(
    server: postgres.Server, make_yard: Callable[[str], Yard]
) -> None:
    yard = make_yard(server.new_database())
    yard.put(1)
    with yard.queue.worker() as worker:
        yard.finish()
        standby.freeze(server)
        try:
            begun = time.monotonic()
            worker.stop()
            yard.close()
            assert time.monotonic() - begun < PATIENCE
        finally:
            standby.thaw(server)


def test_f08_sessions_that_are_terminated_again_and_again_lose_nothing(yard: Yard, database: str) -> None:
    server = postgres.shared(15)
    ids = yard.put(200)
    others = f"datname = '{database}' and pid <> pg_backend_pid()"
    with yard.queue.worker(threads=4):
        for number in range(200, 206):
            server.run(f"select pg_terminate_backend(pid) from pg_stat_activity where {others}")
            ids.append(yard.work.enqueue(number).id)
            threading.Event().wait(0.3)
        yard.finish()
    assert yard.ran == dict.fromkeys(range(206), 1)


def test_f08_a_half_open_heartbeat_connection_is_replaced_before_the_worker_is_taken_for_dead(
    yard: Yard, proxy: Proxy, database: str, make_yard: Callable[[str], Yard]
) -> None:
    watcher = make_yard(postgres.shared(15).url(database))
    yard.go_on.clear()
    with yard.queue.worker() as worker, watcher.queue.worker() as other:
        other.drain()
        yard.put(1)
        name = worker.id
        until(lambda: yard.started[0], "the job begins")
        sent = worker.parts.membership.sent
        until(lambda: worker.parts.membership.sent > sent, "it beats")
        proxy.silence(BEAT)
        silenced = worker.parts.membership.sent
        until(lambda: worker.parts.membership.sent > silenced, "it beats again")
        yard.go_on.set()
        yard.finish()
        assert worker.id == name
    assert yard.started + watcher.started == {0: 1}


def test_f08_producers_wait_for_a_connection_and_then_get_one_clear_error_while_the_heart_beats(
    database: str, closing: ExitStack
) -> None:
    """All connections of the pool are in use: held up by somebody's lock."""
    url = postgres.shared(15).url(database)
    # Less than a statement has at least, so that the others give up before any connection comes free.
    opened = connect.open(url, patience=3.0)
    closing.callback(opened.close)
    yard = Yard(url)
    closing.callback(yard.close)
    yard.queue._opening.opened = opened  # noqa: SLF001 - the same store, with less patience
    patient = Yard(url)
    closing.callback(patient.close)
    with yard.queue.worker() as worker, psycopg.connect(url) as locker:
        patient.put(1)
        patient.finish()
        locker.execute("lock table windlass.types in access exclusive mode")
        failures: list[Exception] = []

        def look() -> None:
            try:
                opened.store.types()
            except Exception as error:  # noqa: BLE001 - looked at below
                failures.append(error)

        lookers = [threading.Thread(target=look) for _ in range(14)]
        for looker in lookers:
            looker.start()
        seen = worker.parts.membership.sent
        for looker in lookers:
            looker.join()
        until(lambda: worker.parts.membership.sent > seen, "the heart beats")
        assert worker.parts.membership.sure()
        locker.rollback()
    assert len(failures) == 14
    assert any("all of 10 connections" in str(error) for error in failures)


def test_f08_a_server_without_a_free_session_is_waited_for(
    closing: ExitStack, make_yard: Callable[[str], Yard]
) -> None:
    standby.required(15)
    server = closing.enter_context(
        postgres.running(15, max_connections="12", superuser_reserved_connections="1")
    )
    url = server.new_database()
    opened = connect.open(url, patience=5.0)
    closing.callback(opened.close)
    with ExitStack() as held:
        with pytest.raises(psycopg.OperationalError, match=r"too many|reserved"):  # noqa: PT012 - until full
            while True:
                held.enter_context(psycopg.connect(url))
        with pytest.raises(StoreUnavailable, match=r"too many|reserved") as failure:
            opened.store.enqueue([a_draft()])
        assert failure.value.retryable
    until(lambda: opened.store.enqueue([a_draft()]), "there is room again")
    assert opened.store.count(Filter(), limit=10) == 1


def test_f08_a_standby_accepts_nothing_says_so_and_is_waited_for(
    server: postgres.Server, make_yard: Callable[[str], Yard]
) -> None:
    """What was a primary turns read-only with its sessions open, as after a managed failover."""
    yard = make_yard(server.new_database())
    yard.put(1)
    with yard.queue.worker():
        yard.finish()
        server.run("alter system set default_transaction_read_only = on")
        server.run("select pg_reload_conf()")

        def refused() -> bool:
            try:
                yard.store.enqueue([a_draft()])
            except StoreUnavailable as error:
                return "read-only" in str(error)
            return False

        until(refused, "the server refuses")
        with psycopg.connect(server.url(), autocommit=True) as mender:
            mender.execute("set default_transaction_read_only = off")
            mender.execute("alter system reset default_transaction_read_only")
            mender.execute("select pg_reload_conf()")

        def accepted() -> bool:
            try:
                yard.work.options(key="after").enqueue(1)
            except StoreUnavailable:
                return False
            return True

        until(accepted, "the server accepts")
        until(lambda: yard.ran[1], "the worker goes on by itself")
    assert yard.ran == {0: 1, 1: 1}
    assert yard.store.check() == []


# --- real workers -------------------------------------------------------------------------------


def enqueue_impatiently(url: str) -> None:
    with closing(impatient(url, 1.0)) as opened:
        opened.store.enqueue([a_draft()])


def begin(site: Site, file: Path) -> Shift:
    """Jobs that run while the store goes away."""
    shift = Shift(site, file, 4)
    until(shift.begun, "the jobs begin")
    return shift


def end(shift: Shift) -> None:
    """They run to their end before it is back."""
    shift.end()
    until(shift.ended, "the jobs run to their end")


def assert_written(site: Site, shift: Shift) -> None:
    """Their results are stored, each of the only run."""
    until(shift.completed, "the results are written")
    assert {len(site.starts(job_id)) for job_id in shift.jobs} == {1}


def test_f08_worker_processes_outlive_a_server_that_stops_freezes_and_ends_their_sessions(
    server: postgres.Server, tmp_path: Path, closing: ExitStack
) -> None:
    url = server.new_database()
    site = closing.enter_context(Site(tmp_path, url))
    supervisor = site.fleet(2, "--concurrency", "4")
    pids = {worker.pid for worker in site.store.workers()}

    def refused() -> None:
        with pytest.raises(StoreUnavailable) as failure:
            enqueue_impatiently(url)
        assert failure.value.retryable

    shift = begin(site, tmp_path / "stopped")
    standby.stop_at_once(server)
    refused()
    end(shift)
    until(lambda: "loop.tick_failed" in site.said(), "the workers notice")
    server.start()
    assert_written(site, shift)

    shift = begin(site, tmp_path / "frozen")
    standby.freeze(server)
    try:
        refused()
        end(shift)
    finally:
        standby.thaw(server)
    assert_written(site, shift)

    shift = begin(site, tmp_path / "terminated")
    others = f"datname = '{standby.name_of(url)}' and pid <> pg_backend_pid()"
    for _ in range(3):
        server.run(f"select pg_terminate_backend(pid) from pg_stat_activity where {others}")
    end(shift)
    assert_written(site, shift)

    # Neither restarted nor renamed: the same processes go on.
    [job_id] = site.enqueue(work.draft(0))
    until(lambda: completed(site, job_id), "they work as before")
    assert {worker.pid for worker in site.store.workers()} == pids
    assert "worker.restarting" not in site.said()
    supervisor.terminate()
    assert supervisor.wait(PATIENCE) == 0


OUTSIDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=120)
connection.execute("begin exclusive")
print("locked", flush=True)
sys.stdin.read()
connection.execute("rollback")
"""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program has the file for itself, for as long as a block lasts."""
    words = [sys.executable, "-c", OUTSIDER, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as outsider:
        assert outsider.stdout is not None
        assert outsider.stdout.readline() == "locked\n"
        yield
        outsider.communicate()


def test_f08_a_worker_process_outlives_an_outsider_that_locks_its_file_for_longer_than_anyone_waits(
    tmp_path: Path,
) -> None:
    with Site(tmp_path) as site:
        worker = site.worker()
        shift = begin(site, tmp_path / "locked")
        with locked(tmp_path / "jobs.db"):
            with pytest.raises(StoreBusy) as failure:
                enqueue_impatiently(site.url)
            assert failure.value.retryable
            end(shift)
            # Its own patience is at an end, too, which is thirty seconds.
            until(lambda: "loop.tick_failed" in site.said(), "the worker notices")
            assert not any(completed(site, job_id) for job_id in shift.jobs), "which can be read meanwhile"
        assert_written(site, shift)
        [job_id] = site.enqueue(work.draft(0))
        until(lambda: completed(site, job_id), "it works as before")
        assert [each.pid for each in site.store.workers() if each.state == "running"] == [worker.pid]
        worker.terminate()
        assert worker.wait(PATIENCE) == 0
