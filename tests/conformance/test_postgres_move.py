"""Do all jobs come from a SQLite file to PostgreSQL, each once, whatever happens on the way?"""

from __future__ import annotations

import itertools
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conformance.contenders import at_once
from tests.conformance.scene import (
    DONE,
    LEASE,
    a_job,
    a_worker,
    put,
    put_one,
    settle,
    take,
    take_new,
    take_one,
)
from tests.crash.mixture import fill
from tests.servers import postgres
from windlass import connect
from windlass.clock import ManualClock
from windlass.errors import InvalidValue, Refused, StoreError, StoreMoved, StoreUnavailable
from windlass.job import JobState, NewJob, TypeInfo
from windlass.move import Moved, Running, Step, abort, move
from windlass.ops import Ops
from windlass.ops.document import job_document
from windlass.schedule import NewSchedule, Timing
from windlass.store.batches import NewBatch
from windlass.store.handling import Once
from windlass.store.moving import State
from windlass.store.protocol import Filter, Settlement, Store, Vitals

MAJOR = 16
MANY = 400


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with jobs in every state."""
    path = tmp_path_factory.mktemp("filled") / "jobs.db"
    with closing(connect.open(f"sqlite:///{path}")) as opened:
        fill(opened.store, MANY)
        opened.store.pause("report.build", by="ann", why="too slow")
    return path


@pytest.fixture
def source(filled: Path, tmp_path: Path) -> str:
    return copied(filled, tmp_path)


@pytest.fixture
def target() -> Iterator[str]:
    with fresh() as url:
        yield url


@contextmanager
def fresh() -> Iterator[str]:
    """A new database with our schema in it."""
    with postgres.fresh(MAJOR) as url:
        connect.open(url).close()
        yield url


def copied(path: Path, folder: Path) -> str:
    """A copy of a file that nobody writes to."""
    for suffix in ("", "-wal"):
        if Path(f"{path}{suffix}").exists():
            shutil.copy(f"{path}{suffix}", folder / f"jobs.db{suffix}")
    return f"sqlite:///{folder}/jobs.db"


@pytest.fixture
def here(source: str) -> Iterator[Store]:
    """The source as a process sees it that opened it before the move."""
    with closing(connect.open(source)) as opened:
        yield opened.store


def moving(
    source: str, target: str, *, around: Callable[[Any], Any] = lambda store: store, **options: Any
) -> Moved:
    """Move, as the command line does; both ends may be wrapped."""
    with (
        closing(connect.source(source)) as one,
        closing(connect.target(target)) as other,
        closing(connect.open(source)) as opened,
    ):
        return move(around(one), around(other), Ops(opened.store), **options)


def take_back(source: str, target: str) -> None:
    with closing(connect.source(source)) as one, closing(connect.target(target)) as other:
        abort(one, other)


def story(url: str) -> list[Any]:
    """All that a store tells: its jobs with their histories, its types and its settings."""
    with closing(connect.open(url)) as opened:
        store = opened.store
        jobs, cursor = [], None
        while True:
            page = store.find(Filter(), limit=1000, cursor=cursor)
            jobs += page.jobs
            cursor = page.next
            if cursor is None:
                break
        now = jobs[0].created_at
        told = [(job_document(job, now), job.history, job.changes, job.lease_until) for job in jobs]
        keyed = [store.get(job.key) == job for job in jobs if job.key]
        return [told, store.types(), store.settings(), keyed, store.switches()]


def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


# --- what arrives -------------------------------------------------------------------------------


@pytest.mark.parametrize("major", postgres.MAJORS)
def test_everything_arrives_and_goes_on_from_there(source: str, major: int) -> None:
    before = story(source)
    assert {job[0]["state"] for job in before[0]} == {state.value for state in JobState}
    with postgres.fresh(major) as target:
        moved = moving(source, target, batch=100)
        assert story(target) == before == story(source)
        assert all(before[3])
        assert moved.tables["jobs"].rows + moved.tables["archive"].rows == len(before[0])
        with closing(connect.open(target)) as opened:
            store = opened.store
            assert store.check() == []
            assert put_one(store).seq > before[0][0][0]["seq"]
            orphans = store.orphans(limit=100)
            assert {lease.worker for lease in orphans} == {"gone"}
            [lease, *_] = take(store, 5, types={"mix.pending": 1})
            assert settle(store, lease, DONE)


def test_batches_dependencies_and_what_jobs_said_of_themselves_arrive(tmp_path: Path, target: str) -> None:
    source = f"sqlite:///{tmp_path}/jobs.db"
    batch = NewBatch(id="b1", name="import", then=a_job())
    with closing(connect.open(source)) as opened:
        store = opened.store
        lease = take_new(store, worker="gone")
        child = put_one(store, depends_on=(lease.id,))
        store.note_progress([(lease, 3, 4)])
        store.begin_once(lease, "mail")
        [part] = store.enqueue_batch(batch, [a_job()])
        told = [store.waits_for(child.id), store.progress(lease.id), store.batch("b1")]
    moving(source, target)
    with closing(connect.open(target)) as opened:
        store = opened.store
        assert [store.waits_for(child.id), store.progress(lease.id), store.batch("b1")] == told
        [lease] = store.orphans(limit=2)
        assert store.begin_once(lease, "mail") is Once.IN_DOUBT
        assert settle(store, lease, DONE)
        assert store.waits_for(child.id) == []
        last = {each.id: each for each in take(store, 2)}[part.id]
        assert settle(store, last, DONE)
        assert batch.then is not None
        assert store.get(batch.then.id) is not None


def test_schedules_arrive_with_their_history_and_fire_there(tmp_path: Path, target: str) -> None:
    source = f"sqlite:///{tmp_path}/jobs.db"
    clock = ManualClock()
    every = Timing(every=timedelta(seconds=1), overlap="queue")
    nightly = Timing(cron="0 3 * * *", tz="Europe/Berlin", jitter=timedelta(minutes=5))
    with closing(connect.open(source, clock=clock)) as opened:
        store = opened.store
        store.add_schedule(NewSchedule(name="every", timing=every, type="mail.send"))
        store.declare([NewSchedule(name="nightly", timing=nightly, type="report.build")], ["report.build"])
        store.pause_schedule("nightly", by="ann")
        store.run_schedule("every", by="bob")
        told = [store.schedules(), store.fires("every")]
    moving(source, target)
    with closing(connect.open(target, clock=clock)) as opened:
        store = opened.store
        assert [store.schedules(), store.fires("every")] == told
        clock.advance(1)
        assert len(store.fire().jobs) == 1


def test_numbers_go_on_above_every_one_that_was_ever_given(tmp_path: Path, target: str) -> None:
    source = f"sqlite:///{tmp_path}/jobs.db"
    with closing(connect.open(source)) as opened:
        last = [put_one(opened.store) for _ in range(5)][-1]
        opened.store.cancel(last.id)
        Ops(opened.store).prune(ended=LEASE * 0)
        assert opened.store.get(last.id) is None
    moving(source, target)
    with closing(connect.open(target)) as opened:
        assert put_one(opened.store).seq > last.seq


def test_progress_is_told_in_rows(source: str, target: str) -> None:
    told: list[Step] = []
    moving(source, target, step=told.append, batch=100)
    copying = [step for step in told if step.name == "copying"]
    assert [step.done for step in copying] == sorted(step.done for step in copying)
    assert copying[0].done == 0
    assert copying[-1].done == copying[-1].total > MANY
    assert told[-1] == Step("checking", copying[-1].total, copying[-1].total)


# --- cut off ------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


class Cut:
    """Ends a move before or after the n-th time that it changes either store."""

    CHANGES = ("begin", "change", "fill", "finish", "open")

    def __init__(self, at: int, *, done: bool) -> None:
        self.left = at
        self.done = done

    def around(self, store: Any) -> Any:
        cut = self

        class Around:
            def __getattr__(self, name: str) -> Any:
                found = getattr(store, name)
                return partial(cut.call, found) if name in cut.CHANGES else found

        return Around()

    def call(self, verb: Callable[..., Any], *args: Any) -> Any:
        self.left -= 1
        if self.left < 0 and not self.done:
            raise Killed
        answer = verb(*args)
        if self.left < 0:
            raise Killed
        return answer


@pytest.mark.parametrize("done", [False, True])
def test_a_move_that_was_cut_off_at_any_step_goes_on_to_the_same_end(
    filled: Path, tmp_path: Path, *, done: bool
) -> None:
    for at in itertools.count():
        folder = tmp_path / str(at)
        folder.mkdir()
        source = copied(filled, folder)
        cut = Cut(at, done=done)
        with fresh() as target:
            try:
                moving(source, target, around=cut.around, batch=200)
            except Killed:
                moving(source, target, batch=200)
            assert story(target) == story(source)
            assert (mark(source), ask(target, "select state from windlass.moves")) == ("moved", [("filled",)])
        if cut.left >= 0:
            break
    assert at > 10


@pytest.mark.crash
def test_a_move_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/jobs.db"
    with closing(connect.open(source)) as opened:
        fill(opened.store, 3_000)
    words = [sys.executable, "-m", "windlass", "db", "move", "--db", source, "--json", "--to"]
    chance = random.Random()
    with fresh() as target:
        for _ in range(6):
            with subprocess.Popen(
                [*words, target], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as process:
                threading.Timer(chance.uniform(0.2, 1.0), process.kill).start()
                process.communicate()
        done = subprocess.run([*words, target], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert story(target) == story(source)


def mark(source: str) -> str | None:
    with closing(connect.source(source)) as one:
        found = one.mark()
        return found.state.value if found else None


def test_two_movers_at_once_make_one_move(source: str, target: str) -> None:
    answers = at_once(*(partial(moving, source, target, batch=50) for _ in range(2)))
    assert all(isinstance(answer, Moved | Refused | StoreError) for answer in answers)
    if not any(isinstance(answer, Moved) for answer in answers):
        moving(source, target)
    assert story(target) == story(source)


def test_a_target_that_another_run_has_begun_to_fill_is_filled_anew(source: str, target: str) -> None:
    with pytest.raises(Killed):
        moving(source, target, around=Cut(5, done=True).around)
    with psycopg.connect(target) as connection:
        connection.execute("update windlass.moves set id = 'another run'")
    moving(source, target)
    assert story(target) == story(source)


def test_a_copy_that_differs_is_noticed_and_nothing_changes_hands(source: str, target: str) -> None:
    class Spoiled:
        def __init__(self, store: Any) -> None:
            self.store = store

        def __getattr__(self, name: str) -> Any:
            if name == "finish":
                with psycopg.connect(target) as connection:
                    connection.execute("select set_config('windlass.move', id, true) from windlass.moves")
                    connection.execute("update windlass.jobs set priority = 10 - priority where seq = 7")
                    connection.execute("update windlass.archive set history = history || ' '")
            return getattr(self.store, name)

    with pytest.raises(StoreError, match=r"the copy of table jobs .* differs .* --abort"):
        moving(source, target, around=Spoiled)
    assert mark(source) == "closed"
    take_back(source, target)
    with closing(connect.open(source)) as opened:
        put_one(opened.store)


# --- nobody writes to what was left behind ------------------------------------------------------


def writes(store: Store, source: str) -> dict[str, Callable[[], object]]:
    """Everything that changes a store."""
    jobs = {state: store.find(Filter(states=(state,))).jobs[0].id for state in JobState}
    lease = store.orphans(limit=1)[0]

    def on_a_callers_connection() -> None:
        with closing(sqlite3.connect(source.removeprefix("sqlite:///"))) as caller:
            store.enqueue_on(caller, [a_job()])

    def claim() -> None:
        take(store, 1, types={"mix.pending": 1})

    kind = TypeInfo(name="new", schema_version=1, schema={}, options={})
    return {
        "enqueue": lambda: put_one(store),
        "enqueue with a known key": lambda: store.enqueue([keyed(store)]),
        "enqueue_on": on_a_callers_connection,
        "register": lambda: store.register([kind]),
        "claim": claim,
        "cancel": lambda: store.cancel(jobs[JobState.PENDING]),
        "cancel what runs": lambda: store.cancel(jobs[JobState.PROCESSING]),
        "bury": lambda: store.bury(jobs[JobState.PENDING]),
        "replay": lambda: store.replay(jobs[JobState.DEAD]),
        "discard": lambda: store.discard(jobs[JobState.DEAD]),
        "enqueue a batch": lambda: store.enqueue_batch(NewBatch(id="b", name="", then=None), [a_job()]),
        "progress": lambda: store.note_progress([(lease, 1, None)]),
        "once": lambda: store.begin_once(lease, "mail"),
        "settle": lambda: settle(store, lease, DONE),
        "extend": lambda: store.extend([lease], LEASE),
        "set": lambda: store.set_setting("keep_dead", "1d"),
        "pause": lambda: store.pause("mail.send"),
        "join": lambda: store.join(a_worker("late")),
        "schedule": lambda: store.add_schedule(
            NewSchedule(name="late", timing=Timing(every=LEASE), type="mix.pending")
        ),
        "prune": lambda: Ops(store).prune(ended=LEASE * 0, dead=LEASE * 0),
    }


def keyed(store: Store) -> NewJob:
    job = next(job for job in store.find(Filter(), limit=1000).jobs if job.key)
    return NewJob(id=job.id, type=job.type, payload=bytes(job.payload), key=job.key)


def test_after_the_move_every_write_is_told_where_to_go_and_reading_goes_on(
    source: str, target: str, here: Store
) -> None:
    moving(source, target)
    before = story(source)
    for name, write in writes(here, source).items():
        with pytest.raises(StoreMoved, match="has moved to postgresql://") as refused:
            write()
        assert refused.value.moved_to == connect.shown(target), name
    assert story(source) == before
    assert here.status().moved_to == connect.shown(target)
    assert here.check() == []


def test_meanwhile_every_write_is_put_off(source: str, target: str, here: Store) -> None:
    with pytest.raises(Killed):
        moving(source, target, around=Cut(5, done=True).around)
    for write in writes(here, source).values():
        with pytest.raises(StoreUnavailable, match=r"is being moved to postgresql://.* try again"):
            write()


def test_a_password_is_told_to_nobody(source: str, target: str, here: Store) -> None:
    with_password = target.replace("postgres@", "postgres:hush-hush@")
    moving(source, with_password)
    with pytest.raises(StoreMoved) as refused:
        put_one(here)
    assert "hush" not in str(refused.value) + str(here.status())
    assert "hush" not in Path(source.removeprefix("sqlite:///")).read_bytes().decode(errors="replace")


def test_what_was_accepted_just_before_is_moved(source: str, target: str, here: Store) -> None:
    accepted: list[str] = []

    def produce() -> None:
        while True:
            try:
                accepted.append(put_one(here).id)
            except StoreError:
                return

    producers = [threading.Thread(target=produce) for _ in range(3)]
    for producer in producers:
        producer.start()
    moving(source, target)
    for producer in producers:
        producer.join()
    assert accepted
    with closing(connect.open(target)) as opened:
        assert [job for job in accepted if opened.store.get(job) is None] == []


# --- workers ------------------------------------------------------------------------------------


def test_a_living_worker_stands_in_the_way_and_nobody_is_disturbed(
    source: str, target: str, here: Store
) -> None:
    here.join(a_worker("busy"))
    with pytest.raises(Refused, match=r"workers are alive on this store \(host pid \d+\).*--drain.*--force"):
        moving(source, target)
    put_one(here)
    with closing(connect.open(target)) as opened:
        put_one(opened.store)


def test_a_draining_worker_may_end_what_it_runs_but_take_nothing_new(
    source: str, target: str, here: Store
) -> None:
    here.join(a_worker("busy"))
    lease, other = take_new(here, worker="busy"), take_new(here, worker="busy")
    told: list[str] = []

    def work(step: Step) -> None:
        if not step.name.startswith("waiting") or told:
            return
        told.append(step.name)
        assert [worker.drain for worker in here.workers()] == [True]
        assert here.beat("busy", Vitals(busy=2))
        with pytest.raises(StoreUnavailable, match="being moved"):
            take(here, 1, types={"mix.pending": 1})
        kept, _ = here.extend([lease], LEASE)
        assert settle(here, kept[0], DONE)
        assert settle(here, other, DONE)
        here.leave("busy")

    moving(source, target, running=Running.DRAIN, step=work)
    assert told == ["waiting for workers: 1 alive, 0 jobs running"]
    with closing(connect.open(target)) as opened:
        for each in (lease, other):
            job = opened.store.get(each.id)
            assert job is not None
            assert job.state is JobState.COMPLETED


def test_a_draining_worker_ends_jobs_with_all_that_follows_from_it(
    source: str, target: str, here: Store
) -> None:
    here.join(a_worker("busy"))
    batch, next_job = NewBatch(id="b1", name="import", then=a_job(key="then")), a_job(key="next")
    assert batch.then is not None
    parent = take_new(here, worker="busy")
    child = put_one(here, depends_on=(parent.id,))
    [part] = here.enqueue_batch(batch, [a_job()])
    last = take_one(here, worker="busy")
    assert last.id == part.id
    told: list[str] = []

    def work(step: Step) -> None:
        if not step.name.startswith("waiting") or told:
            return
        told.append(step.name)
        ends = [Settlement(parent, DONE, LEASE, (next_job,)), Settlement(last, DONE, LEASE)]
        assert here.settle(ends) == []
        # Nobody else enqueues meanwhile, also not just after that.
        with pytest.raises(StoreUnavailable, match="being moved"):
            put_one(here)
        here.leave("busy")

    moving(source, target, running=Running.DRAIN, step=work)
    with closing(connect.open(target)) as opened:
        store = opened.store
        assert store.waits_for(child.id) == []
        for each in (child, batch.then, next_job):
            job = store.get(each.id)
            assert job is not None
            assert job.state is JobState.PENDING
        assert store.check() == []


def test_what_a_worker_runs_that_nobody_waits_for_runs_again_in_the_target(
    source: str, target: str, here: Store
) -> None:
    here.join(a_worker("busy"))
    lease = take_new(here, worker="busy")
    moving(source, target, running=Running.LEAVE)
    with pytest.raises(StoreMoved):
        settle(here, lease, DONE)
    with pytest.raises(StoreMoved):
        here.beat("busy", Vitals())
    with closing(connect.open(target)) as opened:
        assert lease.id in {orphan.id for orphan in opened.store.orphans(limit=1000)}


# --- the target ---------------------------------------------------------------------------------


def test_a_store_that_holds_jobs_is_not_mixed_with_others(source: str, target: str, here: Store) -> None:
    with closing(connect.open(target)) as opened:
        put_one(opened.store)
    with pytest.raises(Refused, match="holds jobs, keys or settings already"):
        moving(source, target)
    put_one(here)
    with closing(connect.open(target)) as opened:
        put_one(opened.store)


def test_nobody_works_on_half_of_a_store(source: str, target: str) -> None:
    with closing(connect.open(target)) as opened:
        there = opened.store
        there.join(a_worker("early"))
        with pytest.raises(Killed):
            moving(source, target, around=Cut(6, done=True).around, batch=50)
        assert there.status().notes[-1].startswith("is being filled by a move from sqlite:///")
        for write in (
            lambda: put_one(there),
            lambda: put(there, a_job(key="k")),
            lambda: take_one(there),
            lambda: there.set_setting("keep_dead", "1d"),
        ):
            with pytest.raises(
                StoreUnavailable, match=r"is being filled by a move from sqlite:///.*try again"
            ):
                write()
        moving(source, target)
        put_one(there)
        assert take(there, 1, types={"mix.pending": 1})


def test_a_move_that_has_begun_goes_nowhere_else(source: str, target: str) -> None:
    with pytest.raises(Killed):
        moving(source, target, around=Cut(5, done=True).around)
    with fresh() as other:
        with pytest.raises(Refused, match=r"is being moved to .*: go on with that, or --abort"):
            moving(source, other)
        moving(source, target)
        with pytest.raises(StoreMoved):
            moving(source, other)
    assert moving(source, target).copied == 0


# --- taking it back -----------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 2, 4, 7])
def test_a_move_that_is_not_over_can_be_taken_back_and_begun_again(
    source: str, target: str, here: Store, at: int
) -> None:
    with pytest.raises(Killed):
        moving(source, target, around=Cut(at, done=True).around)
    take_back(source, target)
    new = put_one(here)
    with closing(connect.open(target)) as opened:
        assert opened.store.find(Filter()).jobs == []
        opened.store.cancel(put_one(opened.store).id)
        Ops(opened.store).prune(ended=LEASE * 0)
    moving(source, target)
    with closing(connect.open(target)) as opened:
        assert opened.store.get(new.id) is not None


def test_a_source_that_was_opened_again_without_its_target_can_be_moved_anew(
    source: str, target: str, here: Store
) -> None:
    with pytest.raises(Killed):
        moving(source, target, around=Cut(5, done=True).around)
    with closing(connect.source(source)) as one:
        abort(one, None)
    put_one(here)
    moving(source, target)
    assert story(target) == story(source)


def test_a_mover_that_was_taken_back_meanwhile_stops(source: str, target: str, here: Store) -> None:
    class Overtaken(Cut):
        def call(self, verb: Callable[..., Any], *args: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                take_back(source, target)
            return verb(*args)

    with pytest.raises((Refused, StoreError)):
        moving(source, target, around=Overtaken(6, done=True).around)
    put_one(here)
    assert mark(source) is None


def test_what_is_over_cannot_be_taken_back(source: str, target: str) -> None:
    class Over(Cut):
        def call(self, verb: Callable[..., Any], *args: Any) -> Any:
            answer = verb(*args)
            if mark(source) == State.MOVED:
                raise Killed
            return answer

    with pytest.raises(Killed):
        moving(source, target, around=Over(0, done=True).around)
    with pytest.raises(StoreMoved):
        take_back(source, target)
    moving(source, target)
    with pytest.raises(StoreMoved):
        take_back(source, target)


def test_nothing_to_take_back_is_said(source: str, target: str) -> None:
    with pytest.raises(Refused, match="is not being moved"):
        take_back(source, target)


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "postgresql://localhost/nothing"])
def test_only_a_file_can_be_moved(url: str) -> None:
    with pytest.raises(InvalidValue, match="store to be moved must be a file of SQLite"):
        connect.source(url)


def test_only_postgresql_can_be_moved_to(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="--to must be postgresql://"):
        connect.target(f"sqlite:///{tmp_path}/other.db")
