"""What does the person on call see: a screen that fits, events in order, diagnoses with what fixes them?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tests.conformance.scene import (
    AGAIN,
    DEAD,
    DONE,
    LATER,
    MAIL,
    REPORT,
    a_job,
    a_worker,
    put,
    put_one,
    settle,
    take_one,
)
from tests.servers import sqlite
from windlass import connect
from windlass.cli.dlq import spark
from windlass.cli.screen import Screen
from windlass.cli.top import frame, look, rates
from windlass.clock import ManualClock
from windlass.job import Error, Reason, TypeInfo, View
from windlass.ops import Ops
from windlass.ops.doctor import Checkup, Diagnosis, Level, checkup, diagnoses
from windlass.ops.tail import Tail
from windlass.ops.verdict import Verdict
from windlass.outcome import Dead, Left
from windlass.store.fleet import Vitals
from windlass.store.jobs import Filter
from windlass.store.oncall import DatabaseSetting, OpenTransaction, TableHealth
from windlass.store.store import Store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    opened = connect.open(sqlite.prepared(tmp_path / "jobs.db", ManualClock), clock=clock)
    yield opened.store
    opened.close()


@pytest.fixture
def ops(store: Store, clock: ManualClock) -> Ops:
    return Ops(store, by="ann", clock=clock)


# --- tail ---------------------------------------------------------------------------------------


def told(tail: Tail) -> list[tuple[str, str]]:
    return [(event.what, event.job.type) for event in tail.look()]


def test_what_happens_is_told_once_and_in_its_order(ops: Ops, store: Store, clock: ManualClock) -> None:
    put_one(store, type=REPORT)
    store.join(a_worker("worker-1", types=(MAIL, REPORT)))
    clock.advance(1)
    tail = Tail(ops, Filter())
    assert told(tail) == []
    clock.advance(1)
    put_one(store)
    clock.advance(1)
    report, mail = take_one(store), take_one(store)
    clock.advance(1)
    assert told(tail) == [("enqueued", MAIL), ("started", REPORT), ("started", MAIL)]
    assert told(tail) == []
    assert settle(store, mail, DONE)
    clock.advance(1)
    assert settle(store, report, LATER)
    clock.advance(1)
    assert told(tail) == [("completed", MAIL), ("retrying", REPORT)]
    clock.advance(30)
    assert store.beat("worker-1", Vitals())
    store.promote()
    assert settle(store, take_one(store), DEAD)
    clock.advance(1)
    assert told(tail) == [("dead", REPORT)]
    ops.replay(report.id)
    clock.advance(1)
    ops.cancel(report.id)
    clock.advance(1)
    assert told(tail) == [("replay", REPORT), ("cancel", REPORT), ("cancelled", REPORT)]


def test_a_tail_shows_only_what_was_asked_for(ops: Ops, store: Store, clock: ManualClock) -> None:
    tails = {
        "failures": Tail(ops, Filter(), failures=True),
        "mails": Tail(ops, Filter(types=(MAIL,))),
        "ended": Tail(ops, Filter(), states=("completed",)),
        "acme": Tail(ops, Filter(tenant="acme")),
    }
    clock.advance(1)
    put_one(store, tenant="acme")
    assert settle(store, take_one(store), DONE)
    put_one(store, type=REPORT)
    assert settle(store, take_one(store), AGAIN)
    clock.advance(1)
    assert {name: told(tail) for name, tail in tails.items()} == {
        "failures": [("retrying", REPORT)],
        "mails": [("enqueued", MAIL), ("completed", MAIL)],
        "ended": [("completed", MAIL)],
        "acme": [("enqueued", MAIL), ("completed", MAIL)],
    }


def test_a_job_far_behind_the_newest_is_followed_all_the_same(
    ops: Ops, store: Store, clock: ManualClock
) -> None:
    store.join(a_worker("worker-1"))
    first = put_one(store, priority=9)
    put(store, *(a_job() for _ in range(300)))
    clock.advance(1)
    tail = Tail(ops, Filter())
    clock.advance(1)
    lease = take_one(store)
    assert lease.id == first.id
    clock.advance(1)
    assert told(tail) == [("started", MAIL)]
    assert settle(store, lease, DONE)
    clock.advance(1)
    assert told(tail) == [("completed", MAIL)]


# --- top ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (200, 60)])
def test_the_screen_is_never_larger_than_the_terminal(
    ops: Ops, store: Store, clock: ManualClock, size: tuple[int, int]
) -> None:
    width, height = size
    names = [f"a.type.with.a.rather.long.name.{number}" for number in range(40)]
    store.register([TypeInfo(name=name, schema={}) for name in names])
    put(store, *(a_job(type=name) for name in names))
    for number in range(20):
        store.join(a_worker(f"worker-{number}", types=tuple(names)))
    before = look(ops)
    for _ in range(5):
        put_one(store)
        assert settle(store, take_one(store), AGAIN)
    clock.advance(2)
    assert store.beat("worker-1", Vitals(done=10, failed=4, busy=3))
    after = look(ops)
    pace = rates(before, after)
    assert pace is not None
    assert (pace.done, pace.failed, pace.by_worker["worker-1"]) == (5.0, 2.0, 5.0)
    lines = frame("jobs.db", after, pace, Screen(width), height=height, note="q: leave")
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    roomy = width >= 80
    for word in ("TYPE", "more types", "ValueEr", *(("5.0/s done", "WORKER", "DONE/S") if roomy else ())):
        assert word in text


def test_an_empty_store_has_a_screen_too(ops: Ops) -> None:
    text = "\n".join(frame("jobs.db", look(ops), None, Screen(80), height=24))
    assert "no types yet" in text
    assert "no worker is running: windlass worker start" in text
    assert "nothing has failed lately" in text


def test_small_bars_show_whatever_is_not_nothing() -> None:
    assert spark([0, 1, 500, 1000]) == " ▁▄█"
    assert spark([0, 0]) == "  "


# --- doctor -------------------------------------------------------------------------------------


def seen_by(ops: Ops, clock: ManualClock) -> Checkup:
    return checkup(ops, clock)


def bad(found: Checkup) -> dict[str, Diagnosis]:
    return {each.name: each for each in diagnoses(found) if each.level is not Level.OK}


def well(found: Checkup) -> Checkup:
    """The same without what this machine's own SQLite has wrong with it."""
    return msgspec.structs.replace(found, database=msgspec.structs.replace(found.database, notes=[]))


def test_a_store_with_nothing_wrong_is_green(ops: Ops, store: Store, clock: ManualClock) -> None:
    store.join(a_worker("worker-1"))
    assert bad(well(seen_by(ops, clock))) == {}


def test_what_is_wrong_comes_with_what_mends_it(ops: Ops, store: Store, clock: ManualClock) -> None:
    store.register([TypeInfo(name=MAIL, schema={})])
    store.join(a_worker("worker-1"))
    put(store, *(a_job() for _ in range(3)))
    take_one(store)
    ops.bury(take_one(store).id)
    clock.advance(70)
    ops.pause(MAIL)
    store.set_setting("timeout", "soon")
    found = bad(well(seen_by(ops, clock)))
    assert {name: each.fix for name, each in found.items()} == {
        "settings": "windlass config set timeout --reset",
        "workers": "windlass worker start APP",
        "leases": "windlass worker start APP",
        "pauses": f"windlass resume {MAIL}",
    }
    # Its worker is declared dead: what it held is nobody's, until another one takes it.
    [worker] = store.workers()
    assert store.declare_dead(worker.id, worker.beat)
    found = bad(well(seen_by(ops, clock)))
    assert found["orphans"].level is Level.BAD
    store.join(a_worker("worker-2"))
    found = bad(well(seen_by(ops, clock)))
    assert found["orphans"].level is Level.WARNING
    assert "takes back what is held within seconds" in found["orphans"].sentence


def test_jobs_that_no_worker_can_read_are_told_until_they_end(
    ops: Ops, store: Store, clock: ManualClock
) -> None:
    store.join(msgspec.structs.replace(a_worker("worker-1"), reader="old"))
    for _ in range(2):
        put_one(store)
        settle(store, take_one(store), Left(None, reader="old", field="payload.copy", problem="unknown"))
    sentence = (
        f"No running worker can read payload.copy in 2 jobs of {MAIL}, which another release of the "
        "application made: deploy a release that can, edit each (windlass edit) or bury them "
        f"(windlass bury --type {MAIL} --state unreadable)"
    )

    def told() -> str | None:
        found = bad(well(seen_by(ops, clock))).get("payloads")
        status = [each.sentence for each in (ops.status().verdict or Verdict(state="", sentence="")).findings]
        assert (found is not None) == (sentence in status)
        return None if found is None else found.sentence.rpartition(", for ")[0]

    assert told() == sentence
    store.leave("worker-1")
    assert told() == sentence, "also when no worker serves the type"
    store.join(msgspec.structs.replace(a_worker("worker-2"), reader="new"))
    assert told() is None
    store.leave("worker-2")
    for job in store.find(Filter(view=View.UNREADABLE)).jobs:
        store.bury(job.id)
    assert told() is None


def test_a_version_that_no_worker_takes_is_told(ops: Ops, store: Store, clock: ManualClock) -> None:
    store.join(msgspec.structs.replace(a_worker("worker-1"), versions={MAIL: 1}))
    [job] = put(store, a_job(schema_version=2))
    clock.advance(5)
    store.beat("worker-1", Vitals())
    [told] = [each for each in diagnoses(well(seen_by(ops, clock))) if each.name == "versions"]
    words = f"No running worker takes version 2 of {MAIL}, only versions up to 1: 1 job waits"
    assert told.sentence.startswith(words)
    assert "versions up to 1" in ops.explain(job.id).sentence
    store.join(msgspec.structs.replace(a_worker("worker-2"), versions={MAIL: 2}))
    assert [each for each in diagnoses(well(seen_by(ops, clock))) if each.name == "versions"] == []


def test_records_that_nobody_prunes_are_told(ops: Ops, store: Store, clock: ManualClock) -> None:
    put_one(store)
    assert settle(store, take_one(store), DONE)
    clock.advance(timedelta(days=8, hours=23))
    assert "retention" not in bad(seen_by(ops, clock))
    clock.advance(timedelta(hours=2))
    late = bad(seen_by(ops, clock))["retention"]
    assert (late.level, late.sentence) == (
        Level.WARNING,
        "the oldest record is 2d past its retention of 7d: nobody prunes",
    )
    ops.prune()
    assert "retention" not in bad(seen_by(ops, clock))


def test_a_type_names_the_releases_that_serve_it(ops: Ops, store: Store) -> None:
    for app, reader, schema in (("1.4", "a", {"a": 1}), ("1.5", "b", {"b": 2}), ("", "c0ffee99", {"a": 1})):
        info = msgspec.structs.replace(a_worker(f"worker-{reader}"), app=app, reader=reader)
        store.join(info)
        store.register([TypeInfo(name=MAIL, schema=schema)], app)
    store.leave("worker-a")
    [mail] = [each for each in ops.types() if each.name == MAIL]
    assert (mail.releases, mail.schemas) == (["1.5", "unnamed c0ffee"], 2)


def test_dead_letters_that_are_late_are_told(ops: Ops, store: Store, clock: ManualClock) -> None:
    put_one(store)
    settle(store, take_one(store), Dead(Error(Reason.EXPIRED, message="older than 5m")))
    put_one(store)
    settle(store, take_one(store), DEAD)
    found = bad(seen_by(ops, clock))
    told = "2 jobs are in the dead letters, 1 of them too old to run (max_age)"
    assert found["dead letters"].sentence == told
    assert "retention" not in found
    clock.advance(timedelta(days=32, hours=1))
    late = bad(seen_by(ops, clock))["retention"]
    assert late.sentence == "the oldest dead letter is 2d past its retention of 30d: nobody prunes"


def test_diagnoses_of_the_database(ops: Ops, clock: ManualClock) -> None:
    found = well(seen_by(ops, clock))
    health = msgspec.structs.replace(
        found.database,
        kind="postgresql",
        settings=[DatabaseSetting(name="fsync", value="off", wanted="on")],
        oldest=OpenTransaction(holder="process 7 (psql)", pid=7, age=timedelta(minutes=5)),
        tables=[TableHealth(name="jobs", rows=10, dead_rows=1_000_000, size_bytes=1)],
        sessions=95,
        most_sessions=100,
        wal_bytes=2**30,
        disk_free_bytes=2**20,
    )
    status = msgspec.structs.replace(found.status, invalid_indexes=("jobs_failed",))
    sick = msgspec.structs.replace(
        found, database=health, status=status, here=found.here + timedelta(seconds=30)
    )
    told_of = bad(sick)
    assert set(told_of) == {
        *("schema", "clock", "disk", "wal", "database", "vacuum", "connections", "transactions"),
    }
    assert told_of["transactions"].fix == "select pg_terminate_backend(7)"
    assert told_of["schema"].fix == "windlass db migrate"
    assert told_of["clock"].sentence == "the store's clock and this machine's are 30.0 s apart"
