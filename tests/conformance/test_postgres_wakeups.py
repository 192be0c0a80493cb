"""How one process tells another of new jobs over PostgreSQL, and how it is noticed that it does not."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack, closing
from typing import NoReturn

import psycopg
import pytest

from tests.conformance.scene import a_job, take_one
from tests.conformance.server import MAJOR, run, store, url
from tests.servers import pgbouncer, postgres
from tests.waiting import PATIENCE, until
from windlass import Queue, connect
from windlass.errors import StoreBusy, StoreUnavailable
from windlass.store.jobs import Filter
from windlass.store.postgres import address, hot
from windlass.store.postgres.connections import Guard, Listener
from windlass.store.postgres.session import PostgresTx, Statement, load
from windlass.store.postgres.store import PostgresStore
from windlass.store.store import Store
from windlass.testing import override
from windlass.wakeup import Listen

__all__ = ["store", "url"]
ACCEPTED = "query like '-- Accept jobs that%'"
LISTENING = "query = 'listen windlass'"


def sessions(which: str) -> str:
    """Those of the test's own database: the server has sessions of other tests, too."""
    return f"from pg_stat_activity where datname = current_database() and {which}"


def test_another_process_is_told_of_new_jobs(url: str) -> None:
    here, there = connect.open(url), connect.open(url)
    with closing(here), closing(there):
        told = threading.Event()
        there.wakeup.subscribe(told.set)
        # Beginning to listen is itself a hint.
        assert told.wait(PATIENCE)
        told.clear()
        here.wakeup.notify()
        assert told.wait(PATIENCE)


def test_the_first_job_after_a_pause_is_told_of_by_its_commit_and_durable_before_it_is_answered(
    url: str,
) -> None:
    store, there = PostgresStore(url), connect.open(url)
    with closing(store), closing(there):
        told = threading.Event()
        there.wakeup.subscribe(told.set)
        assert told.wait(PATIENCE)
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
        assert told.wait(PATIENCE), "its commit told"


def test_a_first_job_is_durable_when_it_is_answered_also_if_nobody_has_claimed_it(url: str) -> None:
    with closing(PostgresStore(url)) as store:
        written: list[str] = []

        def note() -> None:
            [(place,)] = run(url, "select pg_current_wal_insert_lsn()::text")
            written.append(place)

        store.wake_with(lambda: None, first=lambda: True, here=note)
        store.enqueue([a_job()])
        [(durable,)] = run(url, f"select pg_current_wal_flush_lsn() >= '{written[0]}'")
        assert durable


def test_who_flushes_at_one_moment_waits_for_nobody_and_shares_a_row_only_if_none_is_free(url: str) -> None:
    with closing(PostgresStore(url)), ExitStack() as open_until_the_end:

        def locks(statement: str) -> list[int]:
            session = open_until_the_end.enter_context(psycopg.connect(url))
            session.execute("set local lock_timeout = 1")
            return [number for (number,) in session.execute(statement.encode())]

        assert locks("select number from windlass.schema where number > 2 for no key update")
        flush = load()["flush"].text
        assert sorted(locks(flush) + locks(flush)) == [1, 2]
        assert locks(flush) + locks(flush) == [1, 1]


def test_jobs_are_accepted_where_the_public_may_not_write_messages_to_the_log(url: str) -> None:
    with closing(PostgresStore(url)):
        pass
    who = f"producer_{os.getpid()}"
    run(
        url,
        f"""
        create role {who} login;
        grant usage on schema windlass to {who};
        grant select, insert, update, delete on all tables in schema windlass to {who};
        do $$ declare each regprocedure; begin
            for each in select oid from pg_proc where proname = 'pg_logical_emit_message' loop
                execute format('revoke execute on function %s from public', each);
            end loop;
        end $$;
        """,
    )
    try:
        with closing(PostgresStore(url.replace("postgres@", f"{who}@"))) as store:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                run(store.shared_address(), "select pg_logical_emit_message(true, 'windlass', '')")
            store.wake_with(lambda: None, first=lambda: True)
            [first] = store.enqueue([a_job()])
            known = a_job(key="known")
            [keyed], [again] = store.enqueue([known]), store.enqueue([known])
            assert (first.created, keyed.created, again.created) == (True, True, False)
            repeated = a_job()
            store._unanswered.note([repeated])  # noqa: SLF001 - as after a lost answer
            [made], [found] = store.enqueue([repeated]), store.enqueue([repeated])
            assert (made.created, found.created) == (True, False)
            assert store.count(Filter(), limit=10) == 3
    finally:
        run(url, f"drop owned by {who}; drop role {who}")


def test_in_a_test_of_an_application_the_first_job_runs_inline_as_any_other(url: str) -> None:
    queue = Queue("sqlite:///nowhere.db")
    ran: list[int] = []

    @queue.job
    def note(number: int) -> None:
        ran.append(number)

    with override(queue, url=url) as kit, kit.inline():
        note.enqueue(1)
        assert ran == [1]


def test_a_first_job_whose_connection_breaks_before_it_is_durable_is_stored_once(url: str) -> None:
    with closing(PostgresStore(url)) as store:
        cut = f"select pg_terminate_backend(pid) {sessions(ACCEPTED)}"
        cuts: list[int] = []
        store.wake_with(lambda: None, first=lambda: not cuts, here=lambda: cuts.append(len(run(url, cut))))
        [answer] = store.enqueue([a_job()])
        assert cuts == [1]
        assert not answer.created, "the repeat found it"
        assert store.count(Filter(), limit=10) == 1


def test_a_first_job_whose_wait_for_the_disk_is_cancelled_is_stored_once_and_answered(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = hot.flush
    cancelled: list[PostgresTx] = []

    def cancel(tx: PostgresTx) -> None:
        if not cancelled:
            cancelled.append(tx)
            tx.search(["cancel"], "", {"limit": 1})
        flush(tx)

    monkeypatch.setattr(hot, "flush", cancel)
    with closing(PostgresStore(url)) as store:
        text = "select pg_cancel_backend(pg_backend_pid()), pg_sleep(60), 1 as seq"
        monkeypatch.setitem(store._tx.keywords["known"], "cancel", Statement.of(text))  # noqa: SLF001
        store.wake_with(lambda: None, first=lambda: not cancelled)
        [answer] = store.enqueue([a_job()])
        assert len(cancelled) == 1
        assert not answer.created, "the repeat found it"
        assert store.count(Filter(), limit=10) == 1


def test_a_repeat_that_found_the_store_busy_does_not_say_that_nothing_was_written(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object, **__: object) -> NoReturn:
        raise StoreBusy("somebody else holds a lock")

    with closing(PostgresStore(url)) as store:
        cut = f"select pg_terminate_backend(pid) {sessions(ACCEPTED)}"
        cuts: list[object] = []
        store.wake_with(lambda: None, first=lambda: True, here=lambda: cuts.extend(run(url, cut)))
        draft = a_job()
        with monkeypatch.context() as held:
            held.setattr(store, "_enqueue_closely", busy)
            with pytest.raises(StoreUnavailable):
                store.enqueue([draft])
        take_one(store)
        [answer] = store.enqueue([draft])
        assert not answer.created, "it is known that it was tried before"
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
        assert told.wait(PATIENCE)
        told.clear()
        run(url, f"select pg_terminate_backend(pid) {sessions(LISTENING)}")
        # It tells of what it may have missed.
        assert told.wait(PATIENCE)
        told.clear()
        here.wakeup.notify()
        assert told.wait(PATIENCE)


def test_a_job_within_the_callers_transaction_is_told_of_at_its_commit(url: str, store: Store) -> None:
    there = connect.open(url)
    with closing(there), psycopg.connect(url) as caller:
        told = threading.Event()
        there.wakeup.subscribe(told.set)
        assert told.wait(PATIENCE)
        told.clear()
        store.enqueue_on(caller, [a_job()])
        assert not told.wait(0.3)
        caller.commit()
        assert told.wait(PATIENCE)


# --- a listener that hears nothing ----------------------------------------------------------------


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.wakeup._ASK_SECONDS", 0.2)
    monkeypatch.setattr("windlass.wakeup._ANSWER_SECONDS", 1.0)


@pytest.mark.usefixtures("_impatient")
def test_a_pooler_that_swallows_notifications_is_noticed(url: str) -> None:
    with pgbouncer.before(postgres.shared(MAJOR), url, lenient=True) as through:
        guard = Guard()
        listen = Listen(Listener(address.read(through), guard))
        listen.subscribe(lambda: None)
        until(lambda: listen.deaf)
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
        assert told.wait(PATIENCE)
        [(pid,)] = run(url, f"select pid {sessions(LISTENING)}")
        os.kill(pid, signal.SIGSTOP)
        try:
            # It is replaced in less time than a look at it takes: the log has both.
            until(lambda: "wakeup.hears_again" in caplog.messages)
            assert "wakeup.deaf" in caplog.messages
            told.clear()
            here.wakeup.notify()
            assert told.wait(PATIENCE)
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
        assert listener.hear(PATIENCE) == (False, True)
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
        assert hearer.hear(PATIENCE) == (True, False)
        assert teller.begin_to_tell()
        assert hearer.hear(PATIENCE) == (True, False)
        assert not teller.begin_to_tell(), "one at a time"
        teller.end_telling()
        telling = sessions("query like 'select pg_notify%'")
        [(ended,)] = run(url, f"select pg_terminate_backend(pid, {PATIENCE * 1000:.0f}) {telling}")
        assert ended
        teller.begin_to_tell()
        teller.end_telling()
        teller.tell()
        assert hearer.hear(PATIENCE) == (True, False)
