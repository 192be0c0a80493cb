"""What do the operator's verbs do, on a real store?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.servers import sqlite
from windlass import connect
from windlass.clock import ManualClock, uuid7
from windlass.connect import Opened
from windlass.errors import InvalidPayload, InvalidValue, JobNotFound, WorkerNotFound, WrongState
from windlass.job import Error, JobState, NewJob, Reason, TypeInfo
from windlass.ops import Bulk, Ops
from windlass.ops.bulk import summed_up
from windlass.ops.overview import Overview, local_workers
from windlass.ops.verdict import Cause, judged
from windlass.outcome import Again, Dead
from windlass.settings import read
from windlass.store.engine import Settlement, Want
from windlass.store.fleet import Vitals, WorkerInfo
from windlass.store.jobs import Filter
from windlass.store.operations import Carried
from windlass.upkeep.membership import here

# Longer than the schema of a release stays after its last process was seen.
RELEASE_GONE = 660.0
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
BOOM = Error(Reason.EXCEPTION, "ValueError", "boom")
REFUSED = Error(Reason.EXCEPTION, "ConnectionError", "crm: connection refused")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def opened(tmp_path: Path, clock: ManualClock) -> Iterator[Opened]:
    opened = connect.open(sqlite.prepared(tmp_path / "jobs.db", ManualClock), clock=clock)
    opened.store.register([TypeInfo(name="mail", schema=SCHEMA)])
    yield opened
    opened.close()


@pytest.fixture
def ops(opened: Opened, clock: ManualClock) -> Ops:
    return Ops(opened.store, wakeup=opened.wakeup, by="ann", clock=clock)


def _enqueue(ops: Ops, count: int = 1, **fields: object) -> list[str]:
    jobs = [
        NewJob(**{"id": uuid7(), "type": "mail", "payload": b'{"n":%d}' % number, **fields})  # type: ignore[arg-type]
        for number in range(count)
    ]
    return [each.id for each in ops.store.enqueue(jobs)]


def _kill(ops: Ops, count: int = 1) -> None:
    """Let the next jobs fail for good."""
    want = Want(worker="w", types={"mail": 1}, limit=count, lease=timedelta(minutes=1))
    leases = ops.store.claim(want).leases
    assert ops.store.settle([Settlement(lease, Dead(BOOM), None) for lease in leases]) == []


def test_each_verb_notes_who_did_it_and_why(ops: Ops) -> None:
    [job_id] = _enqueue(ops)
    ops.bury(job_id, why="kills its worker")
    Ops(ops.store, by="bob").replay(job_id)
    ops.cancel(job_id)
    changes = [(change.verb, change.by, change.why) for change in ops.show(job_id).changes]
    assert changes == [("bury", "ann", "kills its worker"), ("replay", "bob", ""), ("cancel", "ann", "")]


def test_jobs_answer_to_their_keys(ops: Ops) -> None:
    [job_id] = _enqueue(ops, key="signup:1")
    assert ops.show("signup:1").id == job_id
    assert ops.cancel("signup:1").id == job_id
    with pytest.raises(JobNotFound):
        ops.cancel("signup:2")


def test_replay_checks_the_payload_against_the_schema_of_today(ops: Ops, clock: ManualClock) -> None:
    [job_id] = _enqueue(ops)
    _kill(ops)
    with pytest.raises(InvalidPayload, match=r"payload\.n must be an integer"):
        ops.replay(job_id, payload={"n": "one"})
    narrower = {**SCHEMA, "properties": {"n": {"type": "integer", "minimum": 5}}}
    clock.advance(RELEASE_GONE)
    ops.store.register([TypeInfo(name="mail", schema=narrower, schema_version=2)])
    with pytest.raises(InvalidPayload):
        ops.replay(job_id)
    assert ops.show(job_id).state is JobState.DEAD
    ops.replay(job_id, payload={"n": 7})
    job = ops.show(job_id)
    assert (job.state, bytes(job.payload), job.schema_version) == (JobState.PENDING, b'{"n":7}', 2)
    assert job.changes[-1].before == {"n": 0}


def test_a_waiting_job_can_be_edited_and_made_due(ops: Ops) -> None:
    [job_id] = _enqueue(ops, delay=timedelta(hours=1))
    ops.edit(job_id, priority=9, payload={"n": 3})
    job = ops.show(job_id)
    assert (job.priority, bytes(job.payload)) == (9, b'{"n":3}')
    ops.reschedule(job_id, delay=timedelta(0))
    assert ops.show(job_id).run_at <= ops.now()
    with pytest.raises(InvalidValue, match="priority must be a whole number between 0 and 10, got 11"):
        ops.edit(job_id, priority=11)
    with pytest.raises(InvalidPayload):
        ops.edit(job_id, payload={})
    ops.cancel(job_id)
    with pytest.raises(WrongState):
        ops.edit(job_id, priority=3)


def _bulk(
    ops: Ops,
    verb: str,
    where: Filter,
    *,
    limit: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Bulk:
    begun = ops.operations.start(verb, where, limit=limit)
    return summed_up(ops.operations.follow(begun.id, lambda found: progress(found.reached.matched)))


def test_a_dry_run_counts_and_changes_nothing(ops: Ops) -> None:
    _enqueue(ops, 5)
    answer = ops.operations.count("cancel", Filter(types=("mail",)))
    assert (answer.matched, answer.done, answer.dry_run) == (5, 0, True)
    assert not answer.at_least
    some = ops.operations.count("cancel", Filter(types=("mail",)), limit=2)
    assert (some.matched, some.at_least) == (2, False)
    assert ops.status().counts["due"] == 5


def test_a_bulk_verb_reaches_every_match_over_many_pages(ops: Ops) -> None:
    _enqueue(ops, 1201)
    seen: list[int] = []
    answer = _bulk(ops, "bury", Filter(types=("mail",)), progress=seen.append)
    assert (answer.matched, answer.done, answer.refused) == (1201, 1201, 0)
    assert seen == sorted(seen)
    assert seen[-1] == 1201
    assert ops.status().counts["dead"] == 1201


def test_a_bulk_verb_with_a_limit_takes_the_oldest(ops: Ops) -> None:
    ids = _enqueue(ops, 10)
    _kill(ops, 10)
    assert _bulk(ops, "replay", Filter(types=("mail",)), limit=4).done == 4
    assert [ops.show(job_id).state for job_id in ids] == [JobState.PENDING] * 4 + [JobState.DEAD] * 6


def test_a_bulk_verb_asks_the_workers_of_running_jobs(ops: Ops) -> None:
    _enqueue(ops, 3)
    ops.store.claim(Want(worker="w", types={"mail": 1}, limit=1, lease=timedelta(minutes=1)))
    answer = _bulk(ops, "cancel", Filter())
    assert (answer.matched, answer.done, answer.asked) == (3, 2, 1)
    assert ops.status().counts["processing"] == 1


def test_jobs_that_end_during_a_bulk_verb_are_counted_apart_and_are_no_refusal(
    ops: Ops, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = _enqueue(ops, 450)[-1]
    find_next = ops.store.next_jobs

    def found_too_late(carried: Carried, limit: int) -> tuple[tuple[str, ...], int]:
        found = find_next(carried, limit)
        if newest in found[0]:
            ops.cancel(newest)
        return found

    monkeypatch.setattr(ops.store, "next_jobs", found_too_late)
    answer = _bulk(ops, "bury", Filter())
    assert (answer.matched, answer.done, answer.moved_on, answer.refused) == (450, 449, 1, 0)


def test_what_the_rules_refuse_is_counted_and_quoted_and_the_rest_is_done(
    ops: Ops, clock: ManualClock
) -> None:
    _enqueue(ops, 8)
    _kill(ops, 8)
    narrower = {**SCHEMA, "properties": {"n": {"type": "integer", "minimum": 6}}}
    clock.advance(RELEASE_GONE)
    ops.store.register([TypeInfo(name="mail", schema=narrower, schema_version=2)])
    answer = _bulk(ops, "replay", Filter())
    assert (answer.matched, answer.done, answer.refused, len(answer.refusals)) == (8, 2, 6, 5)
    assert all("payload.n must be" in refusal for refusal in answer.refusals)


@pytest.mark.parametrize(
    ("verb", "state"),
    [
        ("cancel", JobState.DEAD),
        ("bury", JobState.COMPLETED),
        ("replay", JobState.PENDING),
        ("discard", JobState.CANCELLED),
    ],
)
def test_a_bulk_verb_refuses_states_that_it_is_not_for(ops: Ops, verb: str, state: JobState) -> None:
    with pytest.raises(InvalidValue, match=f"got '{state}'"):
        _bulk(ops, verb, Filter(states=(state,)))


def test_jobs_that_no_worker_has_let_in_are_due_everywhere(ops: Ops, clock: ManualClock) -> None:
    _enqueue(ops, 2, delay=timedelta(seconds=10))
    clock.advance(70)
    seen = ops.status()
    assert (seen.counts["due"], seen.oldest_due) == (2, timedelta(minutes=1))
    assert [(band.due, band.oldest) for band in seen.bands] == [(2, timedelta(minutes=1))]
    assert seen.types[0].oldest_due == timedelta(minutes=1)
    assert seen.verdict is not None
    assert all(each.since is not None for each in seen.verdict.findings)
    assert ops.signals().bands == tuple(seen.bands)


def test_status_counts_and_names_what_is_wrong(ops: Ops, clock: ManualClock) -> None:
    _enqueue(ops, 2)
    _enqueue(ops, delay=timedelta(hours=1))
    clock.advance(30)
    seen = ops.status()
    assert (seen.counts["due"], seen.counts["scheduled"]) == (2, 1)
    assert seen.oldest_due == timedelta(seconds=30)
    assert seen.warnings == ["No worker is running: 2 jobs wait, for 30s: windlass worker start APP"]
    ops.store.join(_worker_row("w-1", types=("other",)))
    assert ops.status().warnings == [
        (
            "No running worker serves mail: 2 jobs wait (cancel them if the function was deleted), for 30s: "
            "windlass worker start APP --types mail"
        )
    ]
    ops.store.join(_worker_row("w-2", types=("mail",)))
    assert ops.status().warnings == []
    _kill(ops)
    assert ops.status().warnings == ["1 dead letter of mail: windlass dlq list --type mail"]


def _fail(ops: Ops, job_type: str, error: Error, count: int) -> None:
    """Let jobs of a type fail, and wait for their next attempt."""
    _enqueue(ops, count, type=job_type)
    want = Want(worker="w", types={job_type: 1}, limit=count, lease=timedelta(minutes=1))
    later = Again(timedelta(hours=1), error)
    leases = ops.store.claim(want).leases
    assert ops.store.settle([Settlement(lease, later, None) for lease in leases]) == []


def _behind_a_million(seen: Overview, job_type: str) -> Overview:
    types = [
        replace(each, counts={**each.counts, "due": 1_000_000}) if each.name == job_type else each
        for each in seen.types
    ]
    return replace(seen, types=types)


def test_an_outage_is_named_however_many_jobs_wait(ops: Ops) -> None:
    ops.store.join(_worker_row("w-1", types=("mail",)))
    _fail(ops, "mail", REFUSED, 4)
    told = judged(_behind_a_million(ops.status(), "mail"), ops.store, ops.signals().findings).verdict
    assert told is not None
    assert (told.findings[0].cause, told.findings[0].type) == (Cause.DEPENDENCY, "mail")


def test_a_type_that_fails_is_named_beside_one_that_fails_much_faster(ops: Ops, clock: ManualClock) -> None:
    ops.store.register([TypeInfo(name="fast", schema=SCHEMA)])
    _fail(ops, "mail", REFUSED, 4)
    clock.advance(1)
    _fail(ops, "fast", BOOM, 120)
    told = ops.status().verdict
    assert told is not None
    assert {(each.cause, each.type) for each in told.findings if each.grave} == {
        (Cause.DEPENDENCY, "mail"),
        (Cause.POISON, "fast"),
    }


def test_a_worker_that_is_not_told_of_jobs_is_named(ops: Ops) -> None:
    for name, host, deaf in (("w-1", "one", True), ("w-2", "two", False), ("w-3", "three", True)):
        ops.store.join(_worker_row(name, host=host))
        ops.store.beat(name, Vitals(deaf=deaf))
    [warning] = ops.status().warnings
    assert warning.startswith("2 workers not notified of new jobs (one, three)")
    for name in ("w-1", "w-3"):
        ops.store.beat(name, Vitals())
    assert ops.status().warnings == []


def test_a_worker_without_a_beat_is_silent(ops: Ops, clock: ManualClock) -> None:
    ops.store.join(_worker_row("w-1"))
    clock.advance(9)
    assert [(each.alive, each.silent_for) for each in ops.workers()] == [(True, timedelta(seconds=9))]
    clock.advance(2)
    assert [each.alive for each in ops.workers()] == [False]
    assert (ops.status().fleet.alive, ops.status().fleet.silent) == (0, 1)


def test_a_worker_is_drained_by_any_unmistakable_start_of_its_id(ops: Ops) -> None:
    for name in ("host-1-aa", "host-1-ab", "host-1"):
        ops.store.join(_worker_row(name))
    assert ops.drain("host-1-aa") == "host-1-aa"
    assert ops.drain("host-1") == "host-1"
    assert {each.info.id for each in ops.workers() if each.info.drain} == {"host-1-aa", "host-1"}
    with pytest.raises(WorkerNotFound):
        ops.drain("host-1-a")
    with pytest.raises(WorkerNotFound):
        ops.drain("host-2")


def test_a_worker_that_has_gone_after_a_drain_may_be_drained_again(ops: Ops) -> None:
    ops.store.join(_worker_row("host-7-aa"))
    assert ops.drain("host-7-aa") == "host-7-aa"
    ops.store.leave("host-7-aa")
    assert ops.drain("host-7-aa") == "host-7-aa"
    with pytest.raises(WorkerNotFound):
        ops.drain("host-7")


def test_only_processes_that_surely_run_here_are_local(ops: Ops) -> None:
    place = here()
    ours = {
        "host": place.host,
        "boot": place.boot,
        "pid_space": place.pid_space,
        "pid_started": place.pid_started,
    }
    ops.store.join(_worker_row("here", **ours, pid=place.pid))
    ops.store.join(_worker_row("other boot", **{**ours, "boot": "another"}, pid=place.pid))
    ops.store.join(_worker_row("other numbers", **{**ours, "pid_space": "pid:[1]"}, pid=place.pid))
    ops.store.join(_worker_row("number used again", **{**ours, "pid_started": 1}, pid=place.pid))
    # Seen from another process of this machine: nobody stops itself.
    elsewhere = msgspec.structs.replace(place, pid=place.pid + 1)
    assert [worker.id for worker in local_workers(ops.workers(), elsewhere)] == ["here"]
    assert local_workers(ops.workers(), place) == []


def test_settings_are_checked_stored_and_reset(ops: Ops) -> None:
    ops.set_settings({"mail.timeout": " 10m "})
    ops.set_settings({"keep_dead": "1d"})
    found = {each.name: (each.value, each.stored) for each in ops.settings()}
    assert found["mail.timeout"] == (timedelta(minutes=10), True)
    assert found["keep_dead"] == (timedelta(days=1), True)
    assert found["max_attempts"] == (5, False)
    assert ops.retention().dead == timedelta(days=1)
    with pytest.raises(InvalidValue):
        ops.set_settings({"mail.timeout": "soon"})
    ops.set_settings({"mail.timeout": None})
    assert "mail.timeout" not in {each.name for each in ops.settings()}
    ops.store.set_setting("timeout", "written by somebody else")
    assert len(read(ops.front.settings()).problems) == 1


def test_types_tell_what_holds_for_them(ops: Ops) -> None:
    options = {"timeout": 30.0, "max_attempts": 3, "said": ["timeout"]}
    ops.store.register([TypeInfo(name="mail", schema=SCHEMA, schema_version=2, options=options)])
    ops.set_settings({"max_attempts": "7"})
    [mail] = ops.types()
    assert (mail.effective.timeout, mail.effective.max_attempts) == (timedelta(seconds=30), 7)
    ops.set_settings({"mail.timeout": "1m"})
    assert ops.types()[0].effective.timeout == timedelta(minutes=1)


def test_pruning_goes_on_until_nothing_is_past_its_retention(ops: Ops, clock: ManualClock) -> None:
    _enqueue(ops, 30)
    _bulk(ops, "cancel", Filter())
    clock.advance(timedelta(days=6, hours=23))
    assert ops.prune() == 0
    clock.advance(timedelta(hours=2))
    assert ops.prune() == 30
    line = ops.store.audit(target="records").entries[0]
    assert (line.verb, line.kind, line.after) == (
        "prune",
        "store",
        {"jobs": 30, "kept": {"ended": "7d", "dead": "30d"}},
    )


def _worker_row(name: str, **fields: object) -> WorkerInfo:
    row = {"host": "h", "boot": "b", "pid_space": "p", "pid": 1, "pid_started": 1, "version": "0"}
    return WorkerInfo(**{"id": name, **row, **fields})  # type: ignore[arg-type]
