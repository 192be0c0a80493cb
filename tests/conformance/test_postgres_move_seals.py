"""Who may do what with a store that is being moved, or was, and with the one it goes to."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conformance.moves import (
    Cut,
    Killed,
    filled,
    fresh,
    here,
    mark,
    moving,
    source,
    story,
    take_back,
    target,
)
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
from windlass import connect
from windlass.errors import InvalidValue, Refused, StoreError, StoreMoved, StoreUnavailable
from windlass.job import JobState, NewJob, TypeInfo
from windlass.move import Running, Step, abort, move
from windlass.ops import Ops
from windlass.schedule import NewSchedule, Timing
from windlass.store.chains import NewBatch
from windlass.store.engine import Settlement
from windlass.store.fleet import Vitals
from windlass.store.jobs import Filter
from windlass.store.moving import Mark, State
from windlass.store.running import Said
from windlass.store.store import Store

__all__ = ["filled", "here", "source", "target"]


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
        "progress": lambda: store.note_progress([(lease, Said(1))]),
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


def test_whoever_looks_after_the_move_sees_what_was_counted_last(
    source: str, target: str, here: Store
) -> None:
    put_one(here)
    counted = here.take_sample(timedelta(0))
    moving(source, target)
    before = story(source)
    seen = here.take_sample(timedelta(0))
    assert (seen.at, set(seen.standing)) == (counted.at, set(counted.standing))
    assert seen.standing
    assert story(source) == before


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


@pytest.mark.parametrize("second", ["move", "abort"])
def test_a_process_that_was_held_up_does_not_clear_what_another_one_has_copied(
    source: str, target: str, second: str
) -> None:
    """Found by proofs/Move.tla: the source had moved by then, and its jobs were gone from the target."""

    class Over(Cut):
        def call(self, verb: Callable[..., Any], *args: Any) -> Any:
            answer = verb(*args)
            if mark(source) == State.MOVED:
                raise Killed
            return answer

    with closing(connect.source(source)) as one, closing(connect.target(target)) as other:
        first = Mark(id="first", state=State.CLOSING, place=other.place, began_at=1)
        other.begin(msgspec.structs.replace(first, state=State.FILLING, place=one.place))

        class HeldUp:
            """The target as the second process sees it, held up before it clears what is left."""

            def __getattr__(self, name: str) -> Any:
                return getattr(other, name)

            def clear(self, move: str, **options: Any) -> None:
                one.begin(first)
                with pytest.raises(Killed):
                    moving(source, target, around=Over(0, done=True).around)
                other.clear(move, **options)

        held_up: Any = HeldUp()
        with closing(connect.open(source)) as opened, pytest.raises(Refused, match="not being filled"):
            abort(one, held_up) if second == "abort" else move(one, held_up, Ops(opened.store))
    moving(source, target)
    assert story(target) == story(source)


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
