"""Do all jobs come from a SQLite file to PostgreSQL, each once, whatever happens on the way?"""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conformance.contenders import at_once
from tests.conformance.moves import (
    MANY,
    Cut,
    Killed,
    ask,
    copied,
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
from tests.conformance.scene import DONE, LEASE, a_job, put_one, settle, take, take_new
from tests.crash.mixture import fill
from tests.servers import postgres
from windlass import connect
from windlass.clock import ManualClock
from windlass.errors import Refused, StoreError
from windlass.job import JobState
from windlass.move import Moved, Step
from windlass.ops import Ops
from windlass.schedule import NewSchedule, Timing
from windlass.store.chains import NewBatch
from windlass.store.running import Once, Said

__all__ = ["filled", "here", "source", "target"]


# --- what arrives -------------------------------------------------------------------------------


@pytest.mark.parametrize("major", postgres.MAJORS)
def test_everything_arrives_and_goes_on_from_there(source: str, major: int) -> None:
    before = story(source)
    assert {job[0].state for job in before[0]} == {state.value for state in JobState}
    with postgres.fresh(major) as target:
        moved = moving(source, target, batch=100)
        assert story(target) == before == story(source)
        assert all(before[3])
        assert moved.tables["jobs"].rows + moved.tables["archive"].rows == len(before[0])
        with closing(connect.open(target)) as opened:
            store = opened.store
            assert store.check() == []
            assert put_one(store).seq > before[0][0][0].seq
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
        store.note_progress([(lease, Said(3, 4, "halfway"))])
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
