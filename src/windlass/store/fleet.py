"""Workers: their rows and beats, who is alive, and what a worker reads each second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

import msgspec

from windlass.clock import from_micros
from windlass.errors import WorkerNotFound
from windlass.job import Request
from windlass.store import access, flow, lanes, rows, running
from windlass.store.engine import Row, Tx


def next_fire(tx: Tx) -> timedelta | None:
    """How long until the next schedule fires."""
    row = tx.row("next_fire")
    return None if row is None or row["next_at"] is None else rows.from_span(row["next_at"] - tx.now)


# A worker whose beat is older than this is taken for dead by the others.
ALIVE_WITHIN = timedelta(seconds=10)
# The states of a worker that is there.
LIVING = ("running", "draining")
# As new as any can be.
NEWEST_VERSION = 2**31 - 1


class PoolInfo(msgspec.Struct, frozen=True):
    """A pool of a worker: its slots, and how many of them are taken."""

    slots: int
    busy: int = 0
    held: int = 0


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker tells of itself with each beat."""

    state: str = "running"
    busy: int = 0
    held: int = 0
    done: int = 0
    failed: int = 0
    late: int = 0
    # Not told of new jobs, though it should be: it finds them by looking each second.
    deaf: bool = False
    # What its process and those below it take; None where nobody tells: over HTTP, or without /proc.
    resident_bytes: int | None = None
    # None: as it said before.
    pools: Mapping[str, PoolInfo] | None = None


class WorkerInfo(Vitals, frozen=True, kw_only=True):
    """A worker process as its row tells."""

    id: str
    beat: int = 0
    beat_at: datetime | None = None
    started_at: datetime | None = None
    host: str
    boot: str
    pid_space: str
    pid: int
    pid_started: int
    version: str
    # The release of the application, as far as it says.
    app: str = ""
    types: tuple[str, ...] = ()
    slots: int = 0
    drain: bool = False
    # The schema versions that its code knows, by type; of older releases and over HTTP nothing is said.
    versions: Mapping[str, int] = {}
    # Which payloads it can read, as one name for all types; of older releases and over HTTP nothing is said.
    reader: str = ""
    # By name, as of its last beat; of older releases and over HTTP nothing is said.
    pools: Mapping[str, PoolInfo] = {}
    # The schedules that its code declares, as digests; None: a worker of an older release does not say.
    declares: tuple[str, ...] | None = ()

    def serves(self, job_type: str) -> bool:
        """Whether it takes jobs of a type."""
        return any(fnmatchcase(job_type, pattern) for pattern in self.types)

    def knows(self, job_type: str) -> int:
        """The newest schema version of a type that it takes."""
        return self.versions.get(job_type, NEWEST_VERSION)


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at the store tells a worker each second."""

    now: datetime
    # Every worker that is running or draining, this one included.
    workers: list[WorkerInfo]
    # What operators asked of jobs that this worker runs, by lease token.
    requests: dict[str, Request]
    # Whether any lease has run out, or belongs to nobody alive.
    expired: bool
    orphaned: bool
    # Whether a claim for the asked types would find anything.
    claimable: bool
    next_due: timedelta | None
    # Until the next schedule fires; negative if it should have.
    next_fire: timedelta | None = None
    # Rises with every change of what operators have set, paused or switched.
    revision: int = 0
    # Whether jobs of the asked types wait that others could not read, and this reader has not tried.
    unread: bool = False


def join(tx: Tx, worker: WorkerInfo) -> None:
    """Enter a worker's row."""
    declares = None if worker.declares is None else " ".join(worker.declares)
    tx.change("join", **rows.columns(worker, declares=declares), now=tx.now)


def beat(tx: Tx, worker: str, vitals: Vitals) -> bool:
    """Move the worker's beat; False if it is unknown or was declared dead: take a new id."""
    return bool(tx.change("beat", id=worker, now=tx.given, **rows.columns(vitals)))


def beat_waiting(tx: Tx, workers: Sequence[str]) -> set[str]:
    """Move the beats of workers that wait for jobs, and change nothing else; those that are alive."""
    found = tx.rows("beat_waiting", ids=rows.json_text(workers), now=tx.given)
    return {row["id"] for row in found}


def leave(tx: Tx, worker: str) -> None:
    """Mark the worker as stopped: nothing of its name is alive any more."""
    tx.change("leave", id=worker, now=tx.now)


def declare_dead(tx: Tx, worker: str, beat: int) -> bool:
    """Mark a worker as dead if its beat still stands at `beat`."""
    return bool(tx.change("declare_dead", id=worker, beat=beat))


def drain(tx: Tx, worker: str, *, by: str = "", why: str = "") -> None:
    """Ask a worker to finish what runs and exit; a dead one is not missed any more.

    WorkerNotFound if there is none, or if it has stopped.
    """
    if not tx.change("drain", id=worker):
        raise WorkerNotFound(worker)
    access.note(tx, "drain", "worker", worker, by=by, why=why, after={"drain": True})


def workers(tx: Tx, prefix: str = "") -> list[WorkerInfo]:
    """Every worker whose id begins so, newest first."""
    rows = tx.rows("workers_named", prefix=prefix) if prefix else tx.rows("workers")
    return [worker_from(row) for row in rows]


def look(tx: Tx, worker: str, types: Mapping[str, int], reader: str = "") -> Look:
    """One read of all that a worker must know each second."""
    return Look(
        now=from_micros(tx.now),
        workers=[worker_from(row) for row in tx.rows("alive")],
        requests={row["token"]: Request(row["request"]) for row in tx.rows("requests", worker=worker)},
        expired=tx.row("any_expired", now=tx.now) is not None,
        orphaned=tx.row("any_orphan") is not None,
        claimable=lanes.claimable(tx, types),
        next_due=lanes.next_due(tx, types),
        next_fire=next_fire(tx),
        revision=flow.revision(tx),
        unread=running.any_for(tx, types, reader),
    )


def worker_from(row: Row) -> WorkerInfo:
    """A worker's row."""
    declares = None if row["declares"] is None else tuple(row["declares"].split())
    return rows.read(WorkerInfo, row, declares=declares)
