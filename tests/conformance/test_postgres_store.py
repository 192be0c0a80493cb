"""PostgreSQL's own: who may connect, what breaks and mends itself, and the archive's days."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from tests.conformance.contenders import at_once, won
from tests.conformance.scene import (
    DONE,
    MAIL,
    TYPES,
    a_job,
    a_worker,
    ids,
    look_up,
    put,
    put_one,
    settle,
    state_of,
    take,
    take_one,
)
from tests.servers import pgbouncer, postgres
from windlass import connect
from windlass.clock import ManualClock
from windlass.errors import InvalidValue, StoreMismatch, StoreUnavailable
from windlass.job import JobState
from windlass.store import migration
from windlass.store.postgres import address, retention
from windlass.store.postgres.guard import Guard
from windlass.store.postgres.listener import Listener
from windlass.store.postgres.session import PostgresTx
from windlass.store.postgres.store import PostgresStore
from windlass.store.protocol import Filter, Retention, Store, Vitals
from windlass.wakeup.listen import Listen

MAJOR = 15
WEEK = timedelta(days=7)


@pytest.fixture
def url() -> Iterator[str]:
    with postgres.fresh(MAJOR) as url:
        yield url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = connect.open(url)
    yield opened.store
    opened.close()


def run(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


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
    with pytest.raises((StoreUnavailable, InvalidValue, ValueError)) as refused:
        connect.open(url)
    assert "hush" not in str(refused.value)


def test_without_the_driver_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("psycopg", "windlass.store.postgres"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreUnavailable, match=r"pip install 'windlass\[postgres\]'"):
        connect.open("postgresql://localhost/nothing")


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


def test_another_drivers_connection_is_refused(store: Store) -> None:
    with pytest.raises(InvalidValue, match="psycopg"):
        store.enqueue_on(object(), [a_job()])


# --- what breaks and mends itself ---------------------------------------------------------------


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
    cut = f"select pg_terminate_backend(pid) from pg_stat_activity where {others}"
    for number in range(1, 3):
        assert run(url, cut)
        # The pool asks only connections that have rested: the others are found out by use.
        threading.Event().wait(1.1)
        # A claim whose answer was lost is not asked again: its leases are the claimer's to find.
        with pytest.raises(StoreUnavailable):
            take(store)
        all_verbs(store, number)


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


def test_large_claims_take_turns_and_each_job_is_claimed_once(url: str) -> None:
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


# --- a listener that hears nothing ----------------------------------------------------------------


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.wakeup.listen._ASK_SECONDS", 0.2)
    monkeypatch.setattr("windlass.wakeup.listen._ANSWER_SECONDS", 1.0)


def come_to(holds: Callable[[], bool]) -> bool:
    """Whether it becomes what it should be, within a time that no machine needs."""
    pause = threading.Event()
    return any(holds() or pause.wait(0.05) for _ in range(600))


@pytest.mark.usefixtures("_impatient")
def test_a_pooler_that_swallows_notifications_is_noticed(url: str) -> None:
    with pgbouncer.before(postgres.shared(MAJOR), url, lenient=True) as through:
        guard = Guard()
        listen = Listen(Listener(address.read(through), guard))
        listen.subscribe(lambda: None)
        assert come_to(lambda: listen.deaf)
        listen.close()
        guard.close()


@pytest.mark.usefixtures("_impatient")
def test_a_connection_whose_other_end_stands_still_is_noticed_and_replaced(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = connect.open(url), connect.open(url)
    with closing(here), closing(there):
        assert isinstance(there.wakeup, Listen)
        told = threading.Event()
        there.wakeup.subscribe(told.set)
        assert told.wait(10)
        listening = "query = 'listen windlass' and datname = current_database()"
        [(pid,)] = run(url, f"select pid from pg_stat_activity where {listening}")
        os.kill(pid, signal.SIGSTOP)
        try:
            # It is replaced in less time than a look at it takes: the log has both.
            assert come_to(lambda: "wakeup.hears_again" in caplog.messages)
            assert "wakeup.deaf" in caplog.messages
            told.clear()
            here.wakeup.notify()
            assert told.wait(10)
        finally:
            os.kill(pid, signal.SIGCONT)


def test_a_listener_with_nothing_between_hears_itself(url: str) -> None:
    opened = connect.open(url)
    with closing(opened):
        assert isinstance(opened.store, PostgresStore)
        listener = opened.store.listener
        assert listener is not None
        listener.hear(0)
        listener.ask()
        assert listener.hear(10) == (False, True)
        listener.tell()
        assert listener.hear(0.2) == (False, False)


def test_a_hint_is_sent_without_waiting_and_told_again_if_its_connection_broke(url: str) -> None:
    here, there = connect.open(url), connect.open(url)
    with closing(here), closing(there):
        assert isinstance(here.store, PostgresStore)
        assert isinstance(there.store, PostgresStore)
        teller, hearer = here.store.listener, there.store.listener
        assert teller is not None
        assert hearer is not None
        hearer.hear(0)
        assert not teller.begin_to_tell(), "there is no connection yet"
        teller.tell()
        assert hearer.hear(10) == (True, False)
        assert teller.begin_to_tell()
        assert hearer.hear(10) == (True, False)
        assert not teller.begin_to_tell(), "one at a time"
        teller.end_telling()
        telling = (
            "from pg_stat_activity where query like 'select pg_notify%' and datname = current_database()"
        )
        [(ended,)] = run(url, f"select pg_terminate_backend(pid, 5000) {telling}")
        assert ended
        teller.begin_to_tell()
        teller.end_telling()
        teller.tell()
        assert hearer.hear(10) == (True, False)


# --- forks --------------------------------------------------------------------------------------

FORK = """
import os, sys
from windlass import Queue, connect
from windlass.errors import StoreUnavailable
from windlass.store.protocol import Filter

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
        [sys.executable, "-c", FORK, url], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "3"), done.stderr


# --- wake-ups -----------------------------------------------------------------------------------


def test_another_process_is_told_of_new_jobs(url: str) -> None:
    here, there = connect.open(url), connect.open(url)
    with closing(here), closing(there):
        told = threading.Event()
        there.wakeup.subscribe(told.set)
        # Beginning to listen is itself a hint.
        assert told.wait(10)
        told.clear()
        here.wakeup.notify()
        assert told.wait(10)


def test_the_first_job_after_a_pause_is_told_of_by_its_commit_and_durable_before_it_is_answered(
    url: str,
) -> None:
    store, there = PostgresStore(url), connect.open(url)
    with closing(store), closing(there):
        told = threading.Event()
        there.wakeup.subscribe(told.set)
        assert told.wait(10)
        told.clear()
        claimed: list[str] = []
        written: list[str] = []

        def claim_at_once() -> None:
            [(place,)] = run(url, "select pg_current_wal_insert_lsn()::text")
            written.append(place)
            claimed.append(take_one(there.store).id)

        store.wake_with(lambda: None, first=lambda: True, here=claim_at_once)
        [answer] = store.enqueue([a_job()])
        [(durable,)] = run(url, f"select pg_current_wal_flush_lsn() >= '{written[0]}'")
        assert (claimed, answer.due, durable) == ([answer.id], False, True)
        assert told.wait(10), "its commit told"


def test_a_first_job_whose_connection_breaks_before_it_is_durable_is_stored_once(url: str) -> None:
    with closing(PostgresStore(url)) as store:
        cut = "select pg_terminate_backend(pid) from pg_stat_activity where query like '-- Accept jobs that%'"
        cuts: list[int] = []
        store.wake_with(lambda: None, first=lambda: not cuts, here=lambda: cuts.append(len(run(url, cut))))
        [answer] = store.enqueue([a_job()])
        assert cuts == [1]
        assert not answer.created, "the repeat found it"
        assert store.count(Filter(), limit=10) == 1


def test_a_job_is_stored_also_when_the_server_takes_no_more_notifications(url: str) -> None:
    with closing(PostgresStore(url)) as store:
        run(
            url,
            """
            create function full_of_notifications() returns trigger language plpgsql as $$ begin
                if current_setting('synchronous_commit') = 'off' then
                    raise exception 'too many notifications in the NOTIFY queue' using errcode = '54000';
                end if;
                return new;
            end $$;
            create trigger full_of_notifications before insert on windlass.jobs
                for each row execute function full_of_notifications();
            """,
        )
        store.wake_with(lambda: None, first=lambda: True)
        [answer] = store.enqueue([a_job()])
        assert (answer.created, answer.due, store.count(Filter(), limit=10)) == (True, True, 1)


def test_a_listener_that_lost_its_connection_listens_again(url: str) -> None:
    here, there = connect.open(url), connect.open(url)
    with closing(here), closing(there):
        told = threading.Event()
        there.wakeup.subscribe(told.set)
        assert told.wait(10)
        told.clear()
        run(url, "select pg_terminate_backend(pid) from pg_stat_activity where query = 'listen windlass'")
        # It tells of what it may have missed.
        assert told.wait(10)
        told.clear()
        here.wakeup.notify()
        assert told.wait(10)


def test_a_job_within_the_callers_transaction_is_told_of_at_its_commit(url: str, store: Store) -> None:
    there = connect.open(url)
    with closing(there), psycopg.connect(url) as caller:
        told = threading.Event()
        there.wakeup.subscribe(told.set)
        assert told.wait(10)
        told.clear()
        store.enqueue_on(caller, [a_job()])
        assert not told.wait(0.3)
        caller.commit()
        assert told.wait(10)


# --- the archive's days -------------------------------------------------------------------------


def days(url: str) -> list[str]:
    found = run(
        url, "select inhrelid::regclass::text from pg_inherits where inhparent = 'windlass.archive'::regclass"
    )
    return sorted(name for (name,) in found)


def test_days_are_made_a_week_ahead_and_when_one_is_missing(url: str) -> None:
    clock = ManualClock()
    opened = connect.open(url, clock=clock)
    with closing(opened):
        assert days(url)[0] == "windlass.archive_20260101"
        assert len(days(url)) == 8
        clock.advance(timedelta(days=20))
        job = put_one(opened.store)
        assert settle(opened.store, take_one(opened.store), DONE)
        assert state_of(opened.store, job.id) is JobState.COMPLETED
        assert "windlass.archive_20260121" in days(url)
        clock.advance(timedelta(days=20))
        opened.store.cancel(put_one(opened.store).id)
        assert "windlass.archive_20260210" in days(url)


def test_a_large_day_goes_whole_with_its_keys_first(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_LARGE_DAY", 0)
    clock = ManualClock()
    opened = connect.open(url, clock=clock)
    with closing(opened):
        store = opened.store
        put(store, *(a_job(key=f"k{number}") for number in range(20)), *(a_job() for _ in range(5)))
        for lease in take(store, limit=25):
            assert settle(store, lease, DONE)
        clock.advance(WEEK + timedelta(hours=23))
        assert store.prune(Retention(), limit=8) == 0
        clock.advance(timedelta(hours=2))
        batches = []
        while pruned := store.prune(Retention(), limit=8):
            batches.append(pruned)
        assert max(batches) <= 8
        assert sum(batches[:3]) == 20
        assert "windlass.archive_20260101" not in days(url)
        assert store.count(Filter(), limit=100) == 0
        assert store.check() == []
        assert put_one(store, key="k1").key == "k1"


def test_a_detach_that_was_left_half_way_is_finished(url: str) -> None:
    clock = ManualClock()
    opened = connect.open(url, clock=clock)
    with closing(opened):
        day = "windlass.archive_20260101"
        with psycopg.connect(url) as reader:
            reader.execute("select count(*) from windlass.archive")
            with psycopg.connect(url, autocommit=True) as other:
                other.execute("set lock_timeout = '200ms'")
                with pytest.raises(psycopg.Error):
                    other.execute(
                        f"alter table windlass.archive detach partition {day} concurrently".encode()
                    )
        clock.advance(timedelta(days=30))
        opened.store.prune(Retention())
        assert day not in days(url)
        assert run(url, f"select to_regclass('{day}')") == [(None,)]
