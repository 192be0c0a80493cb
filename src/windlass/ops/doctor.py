"""Is anything wrong that a person should fix, and how? Diagnoses from facts; pure but for the gathering."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from windlass.clock import Clock, from_micros
from windlass.job import JobState, Reason, View
from windlass.ops import signals
from windlass.ops.overview import Overview, WorkerHealth
from windlass.ops.verdict import Cause, lasting
from windlass.ops.words import count, serve_type, span, start_worker
from windlass.settings import ALL, Settings, read
from windlass.size import size_text
from windlass.store.oncall import DatabaseHealth
from windlass.store.upkeep import StoreStatus

if TYPE_CHECKING:
    from windlass.ops.ops import Ops


class Level(StrEnum):
    """How a thing stands."""

    OK = "ok"
    # Worth knowing; nothing is lost or late by it now.
    WARNING = "warning"
    BAD = "bad"


class Diagnosis(msgspec.Struct, frozen=True):
    """One thing that was looked at, and what fixes it if it is not well."""

    name: str
    level: Level
    sentence: str
    fix: str | None = None


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at everything saw."""

    seen: Overview
    workers: list[WorkerHealth]
    status: StoreStatus
    database: DatabaseHealth
    settings: Settings
    # When the oldest record of a job that has ended did so.
    oldest: datetime | None
    # When the first of the dead letters died, and how many of the newest ones were too old to run.
    oldest_dead: datetime | None
    expired: int
    orphans: int
    signals: signals.Signals
    # This machine's time when the store told its own.
    here: datetime


# Clocks that differ by more than this make ages and schedules look wrong; leases do not depend on it.
_APART = timedelta(seconds=5)
_LONG = timedelta(minutes=1)
# As the alert has it: on PostgreSQL a whole day may go at once, and a pruner need not be there each hour.
_LATE_RECORDS = timedelta(days=2)
_LEAST_ROOM = 512 * 2**20
_MUCH_LOG = 512 * 2**20
_MANY_DEAD_ROWS = 200_000
_NEARLY_ALL = 0.9
_MOST_ORPHANS = 1_000


def checkup(ops: Ops, clock: Clock) -> Checkup:
    """Look at everything that a diagnosis may come from."""
    seen, workers = ops.status(), ops.workers()
    return Checkup(
        seen=seen,
        workers=workers,
        status=ops.store.status(),
        database=ops.database(),
        settings=read(ops.store.settings()),
        oldest=ops.store.oldest_record(),
        oldest_dead=ops.store.oldest_dead(),
        expired=sum(each.count for each in ops.dead_groups().groups if each.error == Reason.EXPIRED),
        orphans=len(ops.store.orphans(limit=_MOST_ORPHANS)),
        # Nothing is written: a store whose disk is full, or that is sealed, is looked at as well.
        signals=signals.gather(ops.store, seen, workers, anew=False),
        here=from_micros(clock.micros()) - (ops.now() - seen.now),
    )


def diagnoses(found: Checkup) -> list[Diagnosis]:
    """Every thing that was looked at, in the order in which a person should read them."""
    store = (_settings, _schema, _clock, _room, _retention, _database, _notes, _transaction)
    who = (_fleet, _upkeep, _leases, _listening)
    return [each for part in (*store, *who, _jobs, _findings) for each in part(found)]


def _settings(found: Checkup) -> Iterator[Diagnosis]:
    for problem in found.settings.problems:
        reset = f"windlass config set {problem.partition(' ')[0]} --reset"
        yield Diagnosis("settings", Level.BAD, f"{problem}; it is not used", reset)
    if not found.settings.problems:
        text = f"{len(found.settings.values)} set at run time, all of them usable"
        yield Diagnosis("settings", Level.OK, text)


def _schema(found: Checkup) -> Iterator[Diagnosis]:
    status = found.status
    if status.moved_to is not None:
        text = f"its jobs are in another store: {status.moved_to}"
        yield Diagnosis("schema", Level.BAD, text, "use that one")
    if status.invalid_indexes:
        text = f"half-made indexes slow down what needs them: {', '.join(status.invalid_indexes)}"
        yield Diagnosis("schema", Level.BAD, text, "windlass db migrate")
    if status.schema > status.newest_schema:
        newer = f"the store has schema {status.schema} of a newer release"
        text = f"{newer}; this one knows {status.newest_schema}"
        yield Diagnosis("schema", Level.WARNING, text, "install the newer release here as well")
    elif not status.invalid_indexes:
        yield Diagnosis("schema", Level.OK, f"{status.schema}, the newest that this release knows")


def _judged(name: str, sentence: str, fix: str, *, bad: bool) -> Diagnosis:
    return Diagnosis(name, Level.BAD, sentence, fix) if bad else Diagnosis(name, Level.OK, sentence)


def _clock(found: Checkup) -> Iterator[Diagnosis]:
    apart = abs(found.here - found.seen.now)
    text = f"the store's clock and this machine's are {apart.total_seconds():.1f} s apart"
    yield _judged("clock", text, "set both by NTP", bad=apart > _APART)


def _room(found: Checkup) -> Iterator[Diagnosis]:
    room, log = found.database.disk_free_bytes, found.database.wal_bytes
    taken = f"the store takes {size_text(found.database.size_bytes)}"
    if room is None:
        yield Diagnosis("disk", Level.OK, f"{taken}; its disk is the server's")
    elif room < _LEAST_ROOM:
        text = f"only {size_text(room)} are left on the store's disk: free some; old records can be deleted"
        yield Diagnosis("disk", Level.BAD, text, "windlass db prune")
    else:
        yield Diagnosis("disk", Level.OK, f"{taken}, {size_text(room)} are free")
    if log is not None and log > _MUCH_LOG:
        text = f"the write-ahead log has grown to {size_text(log)}: somebody has read the file for long"
        yield Diagnosis("wal", Level.BAD, text, "end that program; the log then shrinks by itself")


def _retention(found: Checkup) -> Iterator[Diagnosis]:
    kept, late = found.settings.keep_ended, False
    dead = ("dead letter", found.oldest_dead, found.settings.keep_dead)
    for what, since, keep in (("record", found.oldest, kept), dead):
        past = timedelta(0) if since is None else found.seen.now - since - keep
        if past > _LATE_RECORDS:
            late = True
            text = f"the oldest {what} is {span(past)} past its retention of {span(keep)}: nobody prunes"
            prune = "windlass db prune, or let a worker or a server run for longer"
            yield Diagnosis("retention", Level.WARNING, text, prune)
    if not late:
        yield Diagnosis("retention", Level.OK, f"no record is kept for much longer than {span(kept)}")


def _database(found: Checkup) -> Iterator[Diagnosis]:
    health = found.database
    wrong = [each for each in health.settings if each.wanted is not None]
    for each in wrong:
        text = f"{each.name} is {each.value}: jobs may be lost or the tables grow without end"
        fix = f"sqlite3 FILE 'pragma {each.name} = {each.wanted}'"
        if health.kind == "postgresql":
            fix = f"alter system set {each.name} = '{each.wanted}'"
        yield Diagnosis("database", Level.BAD, text, fix)
    if "can corrupt a file" in " ".join(health.notes):
        risk = "can corrupt a file when other programs write to it; Windlass does not"
        text = f"SQLite {health.version} {risk}"
        yield Diagnosis("database", Level.WARNING, text, "pip install 'windlass[sqlite]'")
    elif not wrong:
        yield Diagnosis("database", Level.OK, f"{health.kind} {health.version}, its settings are safe")
    dead = sum(each.dead_rows for each in health.tables)
    live = sum(each.rows for each in health.tables)
    if dead > max(_MANY_DEAD_ROWS, live):
        text = f"{dead:,} dead rows beside {live:,} live ones"
        yield Diagnosis("vacuum", Level.WARNING, text, "vacuum windlass.jobs")
    if health.sessions is not None and health.most_sessions is not None:
        text = f"{health.sessions} of {health.most_sessions} connections are taken"
        fix = "raise max_connections, or put a pooler before the server"
        full = health.sessions > _NEARLY_ALL * health.most_sessions
        yield _judged("connections", text, fix, bad=full)


def _notes(found: Checkup) -> Iterator[Diagnosis]:
    for note in found.database.notes:
        if "network file system" in note:
            yield Diagnosis("database", Level.BAD, note, "move the file to a disk of this machine")
        elif note.startswith("every user of this machine"):
            problem, _, remedy = note.partition(": run ")
            yield Diagnosis("permissions", Level.WARNING, problem, remedy.replace("`", ""))
        elif note.startswith("no standby is synchronous"):
            problem, _, _ = note.partition(";")
            fix = "alter system set synchronous_standby_names = '*'"
            yield Diagnosis("standby", Level.WARNING, problem, fix)


def _transaction(found: Checkup) -> Iterator[Diagnosis]:
    oldest = found.database.oldest
    if oldest is not None and oldest.age > _LONG:
        text = (
            f"{oldest.holder} has been in a transaction for {oldest.age.total_seconds():.0f} s: what jobs "
            "leave behind cannot be cleaned up meanwhile"
        )
        yield Diagnosis("transactions", Level.BAD, text, f"select pg_terminate_backend({oldest.pid})")
    elif found.database.kind == "postgresql":
        yield Diagnosis("transactions", Level.OK, "none is open for long")


def _fleet(found: Checkup) -> Iterator[Diagnosis]:
    alive = [each for each in found.workers if each.alive]
    silent = [each for each in found.workers if not each.alive and each.info.state in _LIVING]
    gone = [each for each in found.workers if each.info.state == "dead" and each.silent_for < _A_DAY]
    for each in silent:
        text = f"{each.info.id} has been silent for {each.silent_for.total_seconds():.0f} s"
        yield Diagnosis("workers", Level.BAD, text, start_worker(each.info.types))
    if gone:
        text = f"workers that died in the last day: {len(gone)}, {gone[0].info.id} the latest"
        yield Diagnosis("workers", Level.WARNING, text, "windlass worker health")
    due = [each for each in found.seen.types if each.counts[View.DUE]]
    unserved = [each for each in due if not each.workers]
    if due and not alive:
        text = f"{_count(found.seen.counts[View.DUE], 'job')} due and no worker is running"
        yield Diagnosis("workers", Level.BAD, text, start_worker(each.name for each in due))
    else:
        for kind in unserved:
            text = (
                f"{_count(kind.counts[View.DUE], 'job')} due of {kind.name}, which no worker serves "
                f"(windlass cancel --type {kind.name} if the function was deleted)"
            )
            yield Diagnosis("workers", Level.BAD, text, serve_type(kind.name))
    if not (silent or unserved):
        yield Diagnosis("workers", Level.OK, f"{_count(len(alive), 'worker')} alive")


def _upkeep(found: Checkup) -> Iterator[Diagnosis]:
    late = [each for each in found.signals.findings if each.cause is Cause.STOPPED]
    for each in late:
        text = f"{lasting(each, found.signals.now)}: a thread of the workers stands still"
        fix = "windlass worker drain ID, one after the other, and start them again"
        yield Diagnosis("upkeep", Level.BAD, text, fix)
    if not late and any(each.alive for each in found.workers):
        names = ", ".join(each.name for each in found.signals.ticks)
        yield Diagnosis("upkeep", Level.OK, f"{names}: each succeeds as often as it should")


def _leases(found: Checkup) -> Iterator[Diagnosis]:
    if any(each.alive for each in found.workers):
        level, fix = Level.WARNING, None
        soon = "a running worker takes back what is held within seconds"
    else:
        level, fix = Level.BAD, start_worker(each.name for each in found.seen.types)
        soon = "no worker is there to take it back"
    stuck = found.seen.counts[View.STUCK]
    if stuck:
        words = f"{_count(stuck, 'lease')} past {'its' if stuck == 1 else 'their'} end: {soon}"
        yield Diagnosis("leases", level, words, fix)
    if found.orphans:
        words = f"{_count(found.orphans, 'job')} held by workers that are gone: {soon}"
        yield Diagnosis("orphans", level, words, fix)
    if not stuck and not found.orphans:
        text = "none has run out, and none is held by a worker that is gone"
        yield Diagnosis("leases", Level.OK, text)


def _listening(found: Checkup) -> Iterator[Diagnosis]:
    deaf = [each.info for each in found.workers if each.alive and each.info.deaf]
    if deaf:
        who = ", ".join(sorted({each.host for each in deaf}))
        text = f"{_count(len(deaf), 'worker')} not notified of new jobs ({who}), which start within a second"
        fix = "say windlass_pooler=on in the database URL, if there is a transaction pooler"
        yield Diagnosis("listener", Level.WARNING, text, fix)
    elif found.database.listeners is not None:
        text = f"{_count(found.database.listeners, 'session')} listening, nobody is deaf"
        yield Diagnosis("listener", Level.OK, text)


def _jobs(found: Checkup) -> Iterator[Diagnosis]:
    seen = found.seen
    waiting, most = seen.counts[View.DUE], found.settings.soft_depth(ALL)
    bound = f"more than {most:,}" if waiting > most else f"at most {most:,} are expected"
    yield _judged("depth", f"{_count(waiting, 'job')} due, {bound}", "windlass top", bad=waiting > most)
    for each in seen.types:
        if each.paused is not None:
            text = f"{each.name} is paused by {each.paused.by} since {each.paused.at:%Y-%m-%d %H:%M} UTC"
            yield Diagnosis("pauses", Level.WARNING, text, f"windlass resume {each.name}")
        if each.breaker is not None and each.breaker.open:
            text = f"the circuit breaker of {each.name} is open since {each.breaker.at:%Y-%m-%d %H:%M} UTC"
            yield Diagnosis("breakers", Level.WARNING, text, f"windlass breaker {each.name} close")
    dead = seen.counts[JobState.DEAD]
    if dead:
        old = f", {found.expired:,} of them too old to run (max_age)" if found.expired else ""
        text = f"{_count(dead, 'job')} in the dead letters{old}"
        yield Diagnosis("dead letters", Level.WARNING, text, "windlass dlq list --group")
    else:
        yield Diagnosis("dead letters", Level.OK, "there are none")


def _findings(found: Checkup) -> Iterator[Diagnosis]:
    """What the verdict and the signals have found, each cause under its name here."""
    verdict = found.seen.verdict
    findings = {"verdict": () if verdict is None else verdict.findings, "signals": found.signals.findings}
    for cause, source, name, level in _FOUND:
        for each in findings[source]:
            if each.cause is cause:
                fix = "start workers of the newer release" if cause is Cause.VERSION else each.fix
                yield Diagnosis(name, level, lasting(each, found.signals.now), fix)
        if cause is Cause.OPERATION:
            yield from _untaken(found)


def _untaken(found: Checkup) -> Iterator[Diagnosis]:
    for each in found.signals.untaken:
        # Those that nobody serves, or that are held back, have diagnoses of their own.
        if each.why in _UNTAKEN:
            jobs, since = count(each.count, "job"), span(each.oldest)
            text = f"{jobs} of {each.type} due for {since} and none runs: {_UNTAKEN[each.why]}"
            fix = f"windlass list --type {each.type} --state due --limit 1, then windlass explain ID"
            yield Diagnosis("untaken", Level.BAD, text, fix)


def _count(count: int, what: str) -> str:
    return f"1 {what} is" if count == 1 else f"{count:,} {what}s are"


# Who sees nobody, a pause or a breaker is told so by diagnoses of their own.
_UNTAKEN = {
    "not_promoted": "their time has come, but nobody lets them into the queue",
    "untaken": "workers serve that type and take none",
}
_A_DAY = timedelta(days=1)
_LIVING = ("running", "draining")
# In the order in which they are told.
_FOUND = (
    (Cause.REPLAYED, "signals", "dead letters", Level.WARNING),
    (Cause.OPERATION, "verdict", "operations", Level.WARNING),
    (Cause.VERSION, "verdict", "versions", Level.BAD),
    (Cause.UNREADABLE, "signals", "payloads", Level.BAD),
    (Cause.STARVED, "signals", "priorities", Level.BAD),
    (Cause.MISMATCH, "signals", "verification", Level.BAD),
    (Cause.UNVERIFIED, "signals", "verification", Level.WARNING),
)
