"""PostgreSQL's own: who may connect, what breaks and fixes itself, and the archive's days."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.conformance.contenders import at_once, won
from tests.conformance.scene import (
    DONE,
    LEASE,
    MAIL,
    TYPES,
    a_job,
    a_worker,
    ids,
    look_up,
    put,
    put_one,
    settle,
    take,
    take_one,
)
from tests.conformance.server import MAJOR, run, store, url
from tests.servers import pgbouncer, postgres
from tests.waiting import PATIENCE, WHOLE_RUN, until
from windlass import connect
from windlass.errors import InvalidValue, StoreBusy, StoreMismatch, StoreUnavailable
from windlass.job import JobState
from windlass.policy import Limit
from windlass.store import migration
from windlass.store.engine import Want
from windlass.store.fleet import Vitals
from windlass.store.flow import Restriction
from windlass.store.jobs import Filter
from windlass.store.postgres import address, claim, hot
from windlass.store.postgres.session import PostgresTx
from windlass.store.postgres.store import PostgresStore
from windlass.store.store import Store
from windlass.store.upkeep import Retention

__all__ = ["store", "url"]


@pytest.mark.parametrize(
    "change", ["state = 'bogus'", "priority = 11", "priority = -1", "max_attempts = 21", "max_attempts = 0"]
)
def test_the_database_itself_refuses_what_no_job_can_be(url: str, store: Store, change: str) -> None:
    job = put_one(store)
    with pytest.raises(psycopg.errors.CheckViolation):
        run(url, f"update windlass.jobs set {change}")
    assert look_up(store, job.id) == job


# --- who may connect ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hush-hush@127.0.0.1:1/nothing",
        "postgresql://me@127.0.0.1:1/nothing?password=hush-hush",
        "postgresql://me:hush-hush@127.0.0.1:1/nothing?no_such_option=1",
        "postgresql://me:hush-hush@127.0.0.1:1/nothing?windlass_notify=maybe",
        "postgresql://me:hush-hush@[nonsense/nothing",
    ],
)
def test_no_message_carries_a_password(url: str) -> None:
    with pytest.raises((StoreUnavailable, InvalidValue)) as refused:
        connect.open(url)
    assert "hush" not in str(refused.value)


def test_what_a_url_says_to_the_driver_is_taken_as_it_was_written() -> None:
    found = address.read(
        "postgresql://me@there/jobs?windlass_pooler=on&password=a+b&options=-c%20lock_timeout%3D1s&&"
    )
    assert found.pooler
    taken = conninfo_to_dict(found.url)
    assert (taken["password"], taken["options"]) == ("a+b", "-c lock_timeout=1s")
    assert "a+b" not in found.shown
    assert "a%2Bb" not in found.shown


# In a process of its own: whoever imports a module twice has two of each of its classes.
WITHOUT = """
import sys
sys.modules["psycopg"] = None
from windlass import connect
from windlass.errors import StoreUnavailable
try:
    connect.open("postgresql://localhost/nothing")
except StoreUnavailable as error:
    print(error)
"""


def test_without_the_driver_one_line_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=WHOLE_RUN, check=True
    )
    assert "pip install 'windlass[postgres]'" in done.stdout
    assert done.stdout.count("\n") == 1


def test_an_empty_database_is_only_prepared_for_who_may_create(url: str) -> None:
    with pytest.raises(StoreMismatch, match="db migrate"):
        connect.open(url, create=False)
    assert connect.migrate(url) == [each.label for each in migration.load("postgres")]
    assert connect.migrate(url) == []
    connect.open(url, create=False).close()


def test_migrators_at_one_instant_apply_each_migration_once(url: str) -> None:
    applied = won(at_once(*(partial(connect.migrate, url) for _ in range(4))))
    assert sorted(map(len, applied)) == [0, 0, 0, len(migration.load("postgres"))]


@pytest.mark.parametrize(("number", "told"), [(999, "newer Windlass"), (0, "db migrate")])
def test_another_schema_is_refused(url: str, number: int, told: str) -> None:
    connect.migrate(url)
    run(url, "delete from windlass.schema where number > 1")
    run(url, f"update windlass.schema set number = {number}")
    with pytest.raises(StoreMismatch, match=told):
        connect.open(url)


# --- the caller's transaction -------------------------------------------------------------------


def test_a_job_commits_or_rolls_back_with_the_callers_row(url: str, store: Store) -> None:
    run(url, "create table users (name text)")
    with psycopg.connect(url) as caller:
        caller.execute("insert into users values ('a')")
        [made] = store.enqueue_on(caller, [a_job(key="k")])
        assert store.get(made.id) is None
        caller.commit()
        assert look_up(store, "k").id == made.id
        store.enqueue_on(caller, [a_job(), a_job()])
        caller.rollback()
    assert store.count(Filter(), limit=10) == 1


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_unique_name_taken_after_the_callers_snapshot_asks_for_another_try(
    url: str, store: Store, level: str
) -> None:
    with psycopg.connect(url, autocommit=True) as caller:
        caller.execute(f"begin isolation level {level}".encode())
        caller.execute("select count(*) from windlass.jobs")
        [holder] = store.enqueue([a_job(unique="only")])
        with pytest.raises(StoreBusy, match="try again"):
            store.enqueue_on(caller, [a_job(unique="only")])
        caller.execute("rollback")
        caller.execute(f"begin isolation level {level}".encode())
        [found] = store.enqueue_on(caller, [a_job(unique="only")])
        caller.execute("commit")
    assert (found.id, found.created) == (holder.id, False)


def test_another_drivers_connection_is_refused(store: Store) -> None:
    with pytest.raises(InvalidValue, match="psycopg"):
        store.enqueue_on(object(), [a_job()])


# --- between two statements ---------------------------------------------------------------------


def test_a_pause_that_another_ends_between_its_statements_is_made_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.pause(MAIL, by="one")
    rows, resumed = PostgresTx.rows, list[bool]()

    def resume_first(tx: PostgresTx, statement: str, /, **values: object) -> Any:
        if statement == "switches" and not resumed:
            resumed.append(store.resume(MAIL, by="another"))
        return rows(tx, statement, **values)

    monkeypatch.setattr(PostgresTx, "rows", resume_first)
    assert store.pause(MAIL, by="two").by == "two"
    assert resumed == [True]
    assert store.switches().pauses[MAIL].by == "two"


def test_the_holder_of_a_key_is_found_by_the_last_try_as_well(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot, "_TRIES", 1)
    holder = put_one(store, key="k")
    [found] = store.enqueue([a_job(key="k", take_existing=True)])
    assert (found.id, found.created) == (holder.id, False)


# --- what breaks and fixes itself ---------------------------------------------------------------


def all_verbs(store: Store, number: int) -> None:
    job = put_one(store, key=f"k{number}")
    assert look_up(store, job.id).state is JobState.PENDING
    lease = take_one(store)
    kept, lost = store.extend([lease], timedelta(seconds=90))
    assert (len(kept), lost) == (1, [])
    assert settle(store, lease, DONE)
    assert store.beat("w", Vitals())
    assert store.look("w", {MAIL: 1}).workers
    store.cancel(put_one(store).id)
    store.prune(Retention())


def test_every_verb_goes_on_after_its_connection_was_cut(url: str, store: Store) -> None:
    store.join(a_worker("w"))
    all_verbs(store, 0)
    others = "datname = current_database() and pid <> pg_backend_pid()"
    # Gone by the time that this is answered.
    cut = f"select pg_terminate_backend(pid, {PATIENCE * 1000:.0f}) from pg_stat_activity where {others}"
    for number in range(1, 3):
        assert run(url, cut)
        # The pool asks only connections that have rested: the others are found out by use.
        threading.Event().wait(1.1)
        # A claim whose answer was lost is not asked again: its leases are the claimer's to find.
        with pytest.raises(StoreUnavailable):
            take(store)
        all_verbs(store, number)


def test_every_verb_goes_on_after_a_migration_that_adds_columns(url: str, store: Store) -> None:
    def every_verb(number: int) -> None:
        all_verbs(store, number)
        restricted = {MAIL: Restriction(limits={MAIL: Limit(concurrency=4)})}
        put_one(store)
        want = Want(worker="w", types=TYPES, limit=1, slots=1, lease=LEASE, restricted=restricted)
        [lease] = store.claim(want).leases
        assert [held.token for held in store.held_by("w")] == [lease.token]
        assert settle(store, lease, DONE)
        assert [worker.id for worker in store.workers()] == ["w"]

    store.join(a_worker("w"))
    # A statement is prepared by the second time at the latest.
    for number in range(2):
        every_verb(number)
    for table in ("jobs", "archive", "workers"):
        run(url, f"alter table windlass.{table} add column more integer")
    every_verb(2)


def test_a_restart_of_the_server_is_waited_for() -> None:
    with postgres.running(MAJOR, durable=True) as server:
        opened = connect.open(server.new_database())
        with closing(opened):
            before = put_one(opened.store)
            server.kill()
            with pytest.raises(StoreUnavailable):
                take(opened.store)
            back = threading.Thread(target=server.start)
            back.start()
            after = put_one(opened.store)
            back.join()
            assert ids(take(opened.store, limit=5)) == [before.id, after.id]


def test_a_read_only_server_accepts_nothing_and_says_so(url: str, store: Store) -> None:
    put_one(store)
    name = run(url, "select current_database()")[0][0]
    run(url, f"alter database {name} set default_transaction_read_only = on")
    opened = connect.open(url)
    with closing(opened):
        for attempt in (lambda: opened.store.enqueue([a_job()]), lambda: take(opened.store)):
            with pytest.raises(StoreUnavailable, match="read-only"):
                attempt()


# --- a transaction pooler ------------------------------------------------------------------------


@pytest.fixture
def pooled(url: str) -> Iterator[str]:
    """The same database by way of PgBouncer."""
    with pgbouncer.before(postgres.shared(MAJOR), url) as through:
        yield through


def test_everything_works_behind_a_transaction_pooler_and_without_notify(pooled: str) -> None:
    opened = [connect.open(pooled + "?windlass_pooler=on") for _ in range(4)]
    with ExitStack() as closing_all:
        for each in opened:
            closing_all.callback(each.close)
        opened[0].store.join(a_worker("w"))
        # More callers than the pooler has sessions: each transaction may have another one.
        for turn in range(3):
            for number, each in enumerate(opened):
                all_verbs(each.store, 10 * turn + number)
        answers = at_once(*(partial(each.store.enqueue, [a_job() for _ in range(50)]) for each in opened))
        made = [answer.id for answers_of_one in won(answers) for answer in answers_of_one]
        claimed = won(at_once(*(partial(take, each.store, limit=100) for each in opened)))
        taken = [lease.id for leases in claimed for lease in leases]
        assert sorted(taken) == sorted(made)
        assert any("pooler" in note for note in opened[0].store.status().notes)


@pytest.mark.parametrize("lenient", [True, False])
def test_a_pooler_that_nobody_told_us_of_is_refused_by_name(url: str, *, lenient: bool) -> None:
    connect.migrate(url)
    with (
        pgbouncer.before(postgres.shared(MAJOR), url, lenient=lenient) as through,
        pytest.raises(StoreUnavailable, match="windlass_pooler=on"),
    ):
        connect.open(through)


# --- large claims ---------------------------------------------------------------------------------


def test_large_claims_take_turns_and_each_job_is_claimed_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long a turn takes while the machine is busy.
    monkeypatch.setattr(claim, "_TURN_PATIENCE", f"{PATIENCE:.0f}s")
    with ExitStack() as stack:
        stores = [PostgresStore(url) for _ in range(3)]
        for store in stores:
            stack.callback(store.close)
        stores[0].enqueue([a_job() for _ in range(1_300)])
        for store in stores:
            assert len(take(store, 100)) == 100, "who has found many takes turns"
        with ThreadPoolExecutor(3) as threads:
            claimed = list(threads.map(lambda store: ids(take(store, 400)), stores))
        assert sorted(map(len, claimed)) == [200, 400, 400]
        assert len({job_id for taken in claimed for job_id in taken}) == 1_000
        here = "select oid from pg_database where datname = current_database()"
        assert run(url, f"select from pg_locks where locktype = 'advisory' and database = ({here})") == []


def test_a_turn_that_is_never_passed_on_holds_nobody_up_for_long(url: str) -> None:
    turn = f"hashtextextended('windlass.claim {','.join(sorted(TYPES))}', 0)"
    store = PostgresStore(url)
    with closing(store), psycopg.connect(url, autocommit=True) as frozen:
        store.enqueue([a_job() for _ in range(400)])
        assert len(take(store, 100)) == 100
        frozen.execute(f"select pg_advisory_lock({turn})".encode())
        assert len(take(store, 200)) == 200
        [(free,)] = frozen.execute(f"select pg_advisory_unlock({turn})".encode())
        assert free
        assert len(take(store, 200)) == 100
        [(free,)] = frozen.execute(f"select pg_try_advisory_lock({turn})".encode())
        assert free


def test_who_waits_for_a_turn_claims_when_it_is_passed_on(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.store.postgres.claim._TURN_PATIENCE", f"{PATIENCE:.0f}s")
    turn = f"hashtextextended('windlass.claim {','.join(sorted(TYPES))}', 0)"
    waiting = (
        "select pid from pg_stat_activity where datname = current_database() and wait_event = 'advisory'"
    )
    store = PostgresStore(url)
    with closing(store), psycopg.connect(url, autocommit=True) as other, ThreadPoolExecutor(1) as thread:
        store.enqueue([a_job() for _ in range(400)])
        assert len(take(store, 100)) == 100
        other.execute(f"select pg_advisory_lock({turn})".encode())
        claim = thread.submit(take, store, 200)
        until(lambda: run(url, waiting))
        other.execute(
            b"delete from windlass.jobs where seq in (select seq from windlass.jobs where due = 1 limit 150)"
        )
        other.execute(f"select pg_advisory_unlock({turn})".encode())
        assert len(claim.result(PATIENCE)) == 150


def test_who_finds_a_limit_locked_waits_for_nothing_and_asks_again_soon(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, *(a_job() for _ in range(3)))
    limited = {MAIL: Restriction(limits={MAIL: Limit(concurrency=2)})}
    want = Want(worker="w", types={MAIL: 1}, limit=1, slots=1, lease=LEASE, restricted=limited)
    assert len(store.claim(want).leases) == 1
    changed: list[str] = []
    change = PostgresTx.change

    def noting(tx: PostgresTx, statement: str, /, **values: object) -> int:
        changed.append(statement)
        return change(tx, statement, **values)

    monkeypatch.setattr(PostgresTx, "change", noting)
    with psycopg.connect(url) as counting:
        counting.execute("select 1 from windlass.limits for update")
        claimed = store.claim(want)
    assert (claimed.leases, claimed.contended, claimed.held_back) == ([], True, True)
    assert claimed.permit_due is not None
    assert claimed.permit_due <= timedelta(milliseconds=25)
    assert not changed, "its row is known to be there"
    assert len(store.claim(want).leases) == 1


def test_a_claim_that_finds_few_is_one_statement_however_many_it_wants(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    tuples = PostgresTx.tuples

    def noting(tx: PostgresTx, statement: str, /, **values: object) -> list[tuple[Any, ...]]:
        asked.append(statement)
        return tuples(tx, statement, **values)

    with closing(PostgresStore(url)) as store:
        store.enqueue([a_job()])
        monkeypatch.setattr(PostgresTx, "tuples", noting)
        assert len(take(store, 600)) == 1
        assert take(store, 600) == []
    assert asked == ["claim_few", "claim_few"]


def test_a_claim_never_locks_more_than_it_wants(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    beside: list[str] = []
    tuples = PostgresTx.tuples

    def with_another(tx: PostgresTx, statement: str, /, **values: object) -> list[tuple[Any, ...]]:
        if statement != "claim_few" or beside:
            return tuples(tx, statement, **values)
        beside.append(statement)
        with tx.part():
            found = tuples(tx, statement, **values)
            # What the first one has looked at is still locked when the other asks.
            beside.extend(ids(take(other, 100)))
        return found

    with closing(PostgresStore(url)) as store, closing(PostgresStore(url)) as other:
        store.enqueue([a_job() for _ in range(17)])
        monkeypatch.setattr(PostgresTx, "tuples", with_another)
        assert len(take(store, 16)) + len(beside[1:]) == 17


# --- forks --------------------------------------------------------------------------------------

FORK = """
import os, sys
from windlass import Queue, connect
from windlass.errors import StoreUnavailable
from windlass.store.jobs import Filter

queue = Queue(sys.argv[1])

@queue.job
def send(to: str) -> None: ...

opened = connect.open(sys.argv[1])

def refused():
    verbs = [
        lambda: opened.store.find(Filter()),
        lambda: opened.store.settings(),
        lambda: opened.store.look("w", {}),
        lambda: opened.store.set_setting("a", "b"),
        opened.store.listener.tell,
    ]
    for verb in verbs:
        try:
            verb()
        except StoreUnavailable as error:
            assert "open it again" in str(error), error
        else:
            raise AssertionError("used in a child")
    opened.close()

def sessions():
    links = [link._connection for link in opened.store._links.values()]
    return [connection.info.backend_pid for connection in links if connection]

def in_child(work):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0

send.enqueue("before")
opened.store.look("w", {})
opened.wakeup.notify()
before = sessions()
in_child(refused)
in_child(lambda: (send.enqueue("child"), queue.close()))
send.enqueue("parent")
opened.store.look("w", {})
assert sessions() == before
print(opened.store.count(Filter(), limit=10))
opened.close()
queue.close()
"""


def test_what_a_forked_process_inherited_is_neither_used_nor_closed_by_it(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, url], capture_output=True, text=True, timeout=WHOLE_RUN, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "3"), done.stderr
