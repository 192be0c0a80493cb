"""For the person on call: dead groups, failures, stalled and unreadable jobs, checks, database health."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from operator import itemgetter
from typing import Any

import msgspec

from windlass.clock import from_micros, span, to_micros
from windlass.job import Job
from windlass.store import history, rows, running
from windlass.store.engine import Row, Tx
from windlass.store.jobs import EXACTLY
from windlass.store.running import Unread

# A line of a dead group's past has so many points.
POINTS = 24
# The dead are many after an incident: so many of the newest are grouped.
MOST_DEAD = 5_000


class DeadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead jobs of one type that died of one kind of error."""

    type: str
    # The error's class; without one, its reason.
    error: str
    # The newest one's.
    reason: str
    count: int
    first: datetime
    last: datetime
    # The newest of them, and what its error said.
    sample: str
    message: str
    # How many died in each step up to now, the oldest first.
    spark: tuple[int, ...]
    step: timedelta
    # The filter `error` that finds exactly these.
    match: str


class DeadGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters in groups, the largest first; `capped`: only the newest ones were looked at."""

    groups: list[DeadGroup]
    capped: bool = False


class TableHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A table of ours, as the database's statistics tell (in a file: counted up to 100,000)."""

    name: str
    rows: int
    dead_rows: int
    size_bytes: int
    vacuumed_at: datetime | None = None
    analyzed_at: datetime | None = None


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """Who has been in a transaction for longest, and so keeps dead rows from being cleaned up."""

    holder: str
    pid: int
    age: timedelta


class DatabaseSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the database that matters to us; `wanted`: what it should be, if it is not."""

    name: str
    value: str
    wanted: str | None = None


def checked_settings(found: Mapping[str, Any], allowed: Mapping[str, Sequence[str]]) -> list[DatabaseSetting]:
    """The settings that matter to us; of the values that are allowed the first is what each should be."""
    return [
        DatabaseSetting(
            name=name, value=str(found[name]), wanted=None if str(found[name]) in good else good[0]
        )
        for name, good in allowed.items()
    ]


class DatabaseHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How the database is. What does not exist in one of its kind is None, or empty."""

    kind: str
    version: str
    size_bytes: int
    tables: list[TableHealth]
    settings: list[DatabaseSetting]
    # What is wrong in words, as `db status` tells it.
    notes: list[str] = []
    oldest: OpenTransaction | None = None
    # Of so many sessions, those of ours that listen for hints.
    sessions: int | None = None
    most_sessions: int | None = None
    listeners: int | None = None
    # Of a file: its write-ahead log, pages that are free in it, and room on its disk.
    wal_bytes: int | None = None
    free_bytes: int | None = None
    disk_free_bytes: int | None = None


_MINUTE = 60_000_000


def failures(tx: Tx, *, since: datetime | None = None, limit: int = 50) -> list[Job]:
    """Live jobs whose last attempt failed, dead or to be tried again; the last to change first."""
    found = tx.rows("failed_lately", since=0 if since is None else to_micros(since), limit=limit)
    return [rows.read(Job, row) for row in found]


def dead_groups(tx: Tx, types: Sequence[str] = ()) -> DeadGroups:
    """The newest dead jobs in groups, the largest first."""
    found: list[Row] = [] if types else [*tx.rows("dead_lately", limit=MOST_DEAD)]
    for name in dict.fromkeys(types):
        found += tx.rows("dead_lately_of_type", type=name, limit=MOST_DEAD - len(found))
    groups: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in found:
        error = rows.error_from(row["error"])
        # By what the filter for an error knows, so that whoever acts on a group acts on these jobs alone.
        groups[row["type"], (error and error.kind) or row["reason"] or "unknown"].append(row)
    told = [_group(key, died, tx.now) for key, died in groups.items()]
    told.sort(key=lambda each: (-each.count, each.type, each.error))
    return DeadGroups(groups=told, capped=len(found) >= MOST_DEAD)


def _group(key: tuple[str, str], died: Sequence[Row], now: int) -> DeadGroup:
    job_type, error = key
    first, last = min(row["finished_at"] for row in died), max(died, key=itemgetter("finished_at", "id"))
    # Whole minutes, as many as it takes to see the first of them.
    step = _MINUTE * max(1, -(-(now - first) // (POINTS * _MINUTE)))
    spark = [0] * POINTS
    for row in died:
        ago = min(POINTS - 1, max(0, now - row["finished_at"]) // step)
        spark[POINTS - 1 - ago] += 1
    said = rows.error_from(last["error"])
    return DeadGroup(
        type=job_type,
        error=error,
        reason=last["reason"] or "",
        count=len(died),
        first=from_micros(first),
        last=from_micros(last["finished_at"]),
        sample=last["id"],
        message="" if said is None else said.message,
        spark=tuple(spark),
        step=rows.from_span(step),
        match=f"{EXACTLY}{error}",
    )


class Stalled(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of a type whose time came long ago and which no claim can find: a promotion is missing."""

    type: str
    count: int
    since: datetime


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the checks of a type, and how many are still to be made (since when)."""

    type: str
    matched: int = 0
    mismatched: int = 0
    unknown: int = 0
    mismatch_at: datetime | None = None
    mismatch_job: str | None = None
    waiting: int = 0
    since: datetime | None = None


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """What one look finds."""

    now: datetime
    ticks: Mapping[str, datetime]
    stalled: tuple[Stalled, ...]
    verdicts: tuple[Verdicts, ...]
    # Jobs that no worker has been able to read so far.
    unread: tuple[Unread, ...] = ()


class Verdict(StrEnum):
    """What a check says about the outcome of a completed job."""

    MATCHED = "matched"
    MISMATCHED = "mismatched"
    # It could not be made.
    UNKNOWN = "unknown"


class Check(msgspec.Struct, frozen=True):
    """The right to check one outcome; `takes`, how often it was taken, is the fence."""

    job_id: str
    type: str
    takes: int


_MOST_STALLED = 10_000


def sight(tx: Tx, stalled_for: timedelta) -> Sighting:
    """Ticks, what stands still, and what came of checks."""
    stalled = tx.rows("count_unpromoted", before=tx.now - span(stalled_for), limit=_MOST_STALLED)
    return Sighting(
        now=from_micros(tx.now),
        ticks={row["name"]: from_micros(row["at"]) for row in tx.rows("ticks")},
        stalled=tuple(rows.read(Stalled, row) for row in stalled),
        verdicts=_verdicts(tx),
        unread=tuple(running.every(tx)),
    )


def _verdicts(tx: Tx) -> tuple[Verdicts, ...]:
    found = {row["type"]: rows.read(Verdicts, row) for row in tx.rows("verdicts")}
    for row in tx.rows("waiting_checks"):
        known = found.get(row["type"], Verdicts(type=row["type"]))
        since = from_micros(row["since"])
        found[row["type"]] = msgspec.structs.replace(known, waiting=row["count"], since=since)
    return tuple(found[name] for name in sorted(found))


def note_ticks(tx: Tx, ages: Mapping[str, timedelta], who: str) -> None:
    """Keep that things which must happen again and again succeeded, so long ago."""
    spans = {name: span(age) for name, age in ages.items()}
    tx.change("note_ticks", ages=rows.json_text(spans), now=tx.given, who=who)


def add_check(tx: Tx, job_id: str, job_type: str, after: timedelta) -> None:
    """The outcome of a job that ends in this transaction is to be checked later."""
    tx.change("add_check", job_id=job_id, type=job_type, now=tx.now, due_at=tx.now + span(after))


def with_checks(tx: Tx, types: Sequence[str]) -> list[str]:
    """The types of which something is to be checked now."""
    return [name for name in types if tx.row("any_check", type=name, now=tx.now) is not None]


def take_checks(tx: Tx, types: Sequence[str], limit: int, again: timedelta) -> list[Check]:
    """Take checks that are due."""
    taken: list[Check] = []
    until = tx.now + span(again)
    for name in types:
        if len(taken) < limit:
            found = tx.rows("take_checks", type=name, now=tx.now, again=until, limit=limit - len(taken))
            taken += [rows.read(Check, row) for row in found]
    return taken


def put_off_check(tx: Tx, check: Check, by: timedelta) -> None:
    """Try again later."""
    tx.change("put_off_check", job_id=check.job_id, takes=check.takes, again=tx.now + span(by))


def end_check(tx: Tx, check: Check, verdict: Verdict) -> bool:
    """Count a verdict, in the transaction that ends the check: never twice, never not at all."""
    if not tx.change("end_check", job_id=check.job_id, takes=check.takes):
        return False
    counts = {each.value: int(each is verdict) for each in Verdict}
    at, job = (tx.now, check.job_id) if verdict is Verdict.MISMATCHED else (None, None)
    tx.change("note_verdict", type=check.type, mismatch_at=at, mismatch_job=job, **counts)
    history.add(tx, {(check.type, verdict.value): 1})
    return True
