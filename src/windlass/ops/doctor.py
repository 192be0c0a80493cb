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


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at, and what mends it if it is not well."""

    name: str
    level: Level
    sentence: str
    mend: str | None = None


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
    store = (_settings, _schema, _clock, _room, _retention, _database, _transaction)
    who = (_fleet, _upkeep, _leases, _listening)
    parts = (*store, *who, _jobs, _operations, _untaken, _versions, _unread, _starved, _verified)
    return [each for part in parts for each in part(found)]


def _ok(name: str, sentence: str) -> Diagnosis:
    return Diagnosis(name=name, level=Level.OK, sentence=sentence)


def _warn(name: str, sentence: str, mend: str | None = None) -> Diagnosis:
    return Diagnosis(name=name, level=Level.WARNING, sentence=sentence, mend=mend)


def _bad(name: str, sentence: str, mend: str | None = None) -> Diagnosis:
    return Diagnosis(name=name, level=Level.BAD, sentence=sentence, mend=mend)


# --- the store ----------------------------------------------------------------------------------


def _settings(found: Checkup) -> Iterator[Diagnosis]:
    for problem in found.settings.problems:
        name = problem.partition(" ")[0]
        yield _bad("settings", f"{problem}; it is not used", f"windlass config set {name} --reset")
    if not found.settings.problems:
        yield _ok("settings", f"{len(found.settings.values)} set at run time, all of them usable")


def _schema(found: Checkup) -> Iterator[Diagnosis]:
    status = found.status
    if status.moved_to is not None:
        yield _bad("schema", f"its jobs are in another store: {status.moved_to}", "use that one")
    if status.invalid_indexes:
        names = ", ".join(status.invalid_indexes)
        yield _bad("schema", f"half-made indexes slow down what needs them: {names}", "windlass db migrate")
    if status.schema > status.newest_schema:
        yield _warn(
            "schema",
            f"the store has schema {status.schema} of a newer release; this one knows {status.newest_schema}",
            "install the newer release here as well",
        )
    elif not status.invalid_indexes:
        yield _ok("schema", f"{status.schema}, the newest that this release knows")


def _clock(found: Checkup) -> Iterator[Diagnosis]:
    apart = abs(found.here - found.seen.now)
    told = f"the store's clock and this machine's are {apart.total_seconds():.1f} s apart"
    if apart > _APART:
        yield _bad("clock", told, "set both by NTP")
    else:
        yield _ok("clock", told)


def _room(found: Checkup) -> Iterator[Diagnosis]:
    room, log = found.database.disk_free_bytes, found.database.wal_bytes
    if room is None:
        yield _ok("disk", f"the store takes {_size(found.database.size_bytes)}; its disk is the server's")
    elif room < _LEAST_ROOM:
        text = f"only {_size(room)} are left on the store's disk: free some; old records can be deleted"
        yield _bad("disk", text, "windlass db prune")
    else:
        yield _ok("disk", f"the store takes {_size(found.database.size_bytes)}, {_size(room)} are free")
    if log is not None and log > _MUCH_LOG:
        yield _bad(
            "wal",
            f"the write-ahead log has grown to {_size(log)}: somebody has read the file for long",
            "end that program; the log then shrinks by itself",
        )


def _retention(found: Checkup) -> Iterator[Diagnosis]:
    kept = found.settings.keep_ended
    records = (
        ("record", found.oldest, kept),
        ("dead letter", found.oldest_dead, found.settings.keep_dead),
    )
    late = False
    for what, since, keep in records:
        past = timedelta(0) if since is None else found.seen.now - since - keep
        if past > _LATE_RECORDS:
            late = True
            told = f"the oldest {what} is {span(past)} past its retention of {span(keep)}: nobody prunes"
            yield _warn("retention", told, "windlass db prune, or let a worker or a server run for longer")
    if not late:
        yield _ok("retention", f"no record is kept for much longer than {span(kept)}")


def _database(found: Checkup) -> Iterator[Diagnosis]:
    health = found.database
    wrong = [each for each in health.settings if each.wanted is not None]
    for each in wrong:
        yield _bad(
            "database",
            f"{each.name} is {each.value}: jobs may be lost or the tables grow without end",
            f"alter system set {each.name} = '{each.wanted}'"
            if health.kind == "postgresql"
            else f"sqlite3 FILE 'pragma {each.name} = {each.wanted}'",
        )
    if "can corrupt a file" in " ".join(health.notes):
        yield _warn(
            "database",
            f"SQLite {health.version} can corrupt a file when other programs write to it; Windlass does not",
            "pip install 'windlass[sqlite]'",
        )
    elif not wrong:
        yield _ok("database", f"{health.kind} {health.version}, its settings are safe")
    for note in health.notes:
        if "network file system" in note:
            yield _bad("database", note, "move the file to a disk of this machine")
        elif note.startswith("every user of this machine"):
            problem, _, remedy = note.partition(": run ")
            yield _warn("permissions", problem, remedy.replace("`", ""))
    dead = sum(each.dead_rows for each in health.tables)
    live = sum(each.rows for each in health.tables)
    if dead > max(_MANY_DEAD_ROWS, live):
        yield _warn("vacuum", f"{dead:,} dead rows beside {live:,} live ones", "vacuum windlass.jobs")
    if health.sessions is not None and health.most_sessions is not None:
        told = f"{health.sessions} of {health.most_sessions} connections are taken"
        if health.sessions > _NEARLY_ALL * health.most_sessions:
            yield _bad("connections", told, "raise max_connections, or put a pooler before the server")
        else:
            yield _ok("connections", told)


def _transaction(found: Checkup) -> Iterator[Diagnosis]:
    oldest = found.database.oldest
    if oldest is not None and oldest.age > _LONG:
        yield _bad(
            "transactions",
            f"{oldest.holder} has been in a transaction for {oldest.age.total_seconds():.0f} s: what jobs "
            "leave behind cannot be cleaned up meanwhile",
            f"select pg_terminate_backend({oldest.pid})",
        )
    elif found.database.kind == "postgresql":
        yield _ok("transactions", "none is open for long")


# --- who works ----------------------------------------------------------------------------------


def _fleet(found: Checkup) -> Iterator[Diagnosis]:
    alive = [each for each in found.workers if each.alive]
    silent = [each for each in found.workers if not each.alive and each.info.state in _LIVING]
    gone = [each for each in found.workers if each.info.state == "dead" and each.silent_for < _A_DAY]
    for each in silent:
        since = f"{each.silent_for.total_seconds():.0f} s"
        yield _bad("workers", f"{each.info.id} has been silent for {since}", start_worker(each.info.types))
    if gone:
        told = f"workers that died in the last day: {len(gone)}, {gone[0].info.id} the latest"
        yield _warn("workers", told, "windlass worker health")
    due = found.seen.counts[View.DUE]
    unserved = [each for each in found.seen.types if each.counts[View.DUE] and not each.workers]
    if due and not alive:
        start = start_worker(each.name for each in found.seen.types if each.counts[View.DUE])
        yield _bad("workers", f"{_count(due, 'job')} due and no worker is running", start)
    else:
        for kind in unserved:
            told = (
                f"{_count(kind.counts[View.DUE], 'job')} due of {kind.name}, which no worker serves "
                f"(windlass cancel --type {kind.name} if the function was deleted)"
            )
            yield _bad("workers", told, serve_type(kind.name))
    if not (silent or unserved):
        yield _ok("workers", f"{_count(len(alive), 'worker')} alive")


def _upkeep(found: Checkup) -> Iterator[Diagnosis]:
    late = list(_signalled(found, Cause.STOPPED))
    for told, _ in late:
        yield _bad(
            "upkeep",
            f"{told}: a thread of the workers stands still",
            "windlass worker drain ID, one after the other, and start them anew",
        )
    if not late and any(each.alive for each in found.workers):
        told = ", ".join(each.name for each in found.signals.ticks)
        yield _ok("upkeep", f"{told}: each succeeds as often as it should")


def _leases(found: Checkup) -> Iterator[Diagnosis]:
    alive = any(each.alive for each in found.workers)
    soon = (
        "a running worker takes back what is held within seconds"
        if alive
        else "no worker is there to take it back"
    )
    mend = None if alive else start_worker(each.name for each in found.seen.types)
    level = Level.WARNING if alive else Level.BAD
    stuck = found.seen.counts[View.STUCK]
    if stuck:
        words = f"{_count(stuck, 'lease')} past {'its' if stuck == 1 else 'their'} end: {soon}"
        yield Diagnosis(name="leases", level=level, sentence=words, mend=mend)
    if found.orphans:
        words = f"{_count(found.orphans, 'job')} held by workers that are gone: {soon}"
        yield Diagnosis(name="orphans", level=level, sentence=words, mend=mend)
    if not stuck and not found.orphans:
        yield _ok("leases", "none has run out, and none is held by a worker that is gone")


def _listening(found: Checkup) -> Iterator[Diagnosis]:
    deaf = [each.info for each in found.workers if each.alive and each.info.deaf]
    if deaf:
        who = ", ".join(sorted({each.host for each in deaf}))
        yield _warn(
            "listener",
            f"{_count(len(deaf), 'worker')} not notified of new jobs ({who}), which start within a second",
            "say windlass_pooler=on in the database URL, if there is a transaction pooler",
        )
    elif found.database.listeners is not None:
        yield _ok("listener", f"{_count(found.database.listeners, 'session')} listening, nobody is deaf")


# --- what waits ---------------------------------------------------------------------------------


def _jobs(found: Checkup) -> Iterator[Diagnosis]:
    seen = found.seen
    waiting = seen.counts[View.DUE]
    most = found.settings.soft_depth(ALL)
    if waiting > most:
        yield _bad("depth", f"{_count(waiting, 'job')} due, more than {most:,}", "windlass top")
    else:
        yield _ok("depth", f"{_count(waiting, 'job')} due, at most {most:,} are expected")
    for each in seen.types:
        if each.paused is not None:
            since = f"{each.paused.at:%Y-%m-%d %H:%M} UTC"
            told = f"{each.name} is paused by {each.paused.by} since {since}"
            yield _warn("pauses", told, f"windlass resume {each.name}")
        if each.breaker is not None and each.breaker.open:
            told = f"the circuit breaker of {each.name} is open since {each.breaker.at:%Y-%m-%d %H:%M} UTC"
            yield _warn("breakers", told, f"windlass breaker {each.name} close")
    dead = seen.counts[JobState.DEAD]
    if dead:
        old = f", {found.expired:,} of them too old to run (max_age)" if found.expired else ""
        told = f"{_count(dead, 'job')} in the dead letters{old}"
        yield _warn("dead letters", told, "windlass dlq list --group")
    else:
        yield _ok("dead letters", "there are none")
    for told, mend in _signalled(found, Cause.REPLAYED):
        yield _warn("dead letters", told, mend)


def _untaken(found: Checkup) -> Iterator[Diagnosis]:
    for each in found.signals.untaken:
        # Those that nobody serves, or that are held back, have diagnoses of their own.
        if each.why in _UNTAKEN:
            jobs, since = count(each.count, "job"), span(each.oldest)
            told = f"{jobs} of {each.type} due for {since} and none runs: {_UNTAKEN[each.why]}"
            fix = f"windlass list --type {each.type} --state due --limit 1, then windlass explain ID"
            yield _bad("untaken", told, fix)


def _versions(found: Checkup) -> Iterator[Diagnosis]:
    for each in found.seen.verdict.findings if found.seen.verdict is not None else ():
        if each.cause is Cause.VERSION:
            yield _bad("versions", lasting(each, found.signals.now), "start workers of the newer release")


def _operations(found: Checkup) -> Iterator[Diagnosis]:
    for each in found.seen.verdict.findings if found.seen.verdict is not None else ():
        if each.cause is Cause.OPERATION:
            yield _warn("operations", lasting(each, found.signals.now), each.mend)


def _unread(found: Checkup) -> Iterator[Diagnosis]:
    for told, mend in _signalled(found, Cause.UNREADABLE):
        yield _bad("payloads", told, mend)


def _starved(found: Checkup) -> Iterator[Diagnosis]:
    for told, mend in _signalled(found, Cause.STARVED):
        yield _bad("priorities", told, mend)


def _verified(found: Checkup) -> Iterator[Diagnosis]:
    for told, mend in _signalled(found, Cause.MISMATCH):
        yield _bad("verification", told, mend)
    for told, mend in _signalled(found, Cause.UNVERIFIED):
        yield _warn("verification", told, mend)


def _signalled(found: Checkup, cause: Cause) -> Iterator[tuple[str, str | None]]:
    """What the signals say of one thing, and what mends it."""
    for each in found.signals.findings:
        if each.cause is cause:
            yield lasting(each, found.signals.now), each.mend


def _count(count: int, what: str) -> str:
    return f"1 {what} is" if count == 1 else f"{count:,} {what}s are"


def _size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < _STEP:
            return f"{amount:.0f} {unit}"
        amount /= _STEP
    return f"{amount:.1f} TB"


# Who sees nobody, a pause or a breaker is told so by diagnoses of their own.
_UNTAKEN = {
    "not_promoted": "their time has come, but nobody lets them into the queue",
    "untaken": "workers serve that type and take none",
}
_STEP = 1024
_A_DAY = timedelta(days=1)
_LIVING = ("running", "draining")
