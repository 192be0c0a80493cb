"""Who works here, who is alive, and what does a worker learn with each look? The fleet's part of the seam."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

import msgspec

from windlass.job import Request

# A worker whose beat is older than this is taken for dead by the others.
ALIVE_WITHIN = timedelta(seconds=10)
# As new as any can be.
NEWEST_VERSION = 2**31 - 1


class PoolInfo(msgspec.Struct, frozen=True):
    """A pool of a worker: its slots, and how many of them are taken."""

    slots: int
    busy: int = 0
    held: int = 0


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process as its row tells."""

    id: str
    state: str = "running"
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
    busy: int = 0
    held: int = 0
    done: int = 0
    failed: int = 0
    late: int = 0
    # Not told of new jobs, though it should be: it finds them by looking each second.
    deaf: bool = False
    # What its process and those below it take; None where nobody tells: over HTTP, or without /proc.
    resident_bytes: int | None = None
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


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker tells of itself with each beat."""

    state: str = "running"
    busy: int = 0
    held: int = 0
    done: int = 0
    failed: int = 0
    late: int = 0
    deaf: bool = False
    resident_bytes: int | None = None
    # None: as it said before.
    pools: Mapping[str, PoolInfo] | None = None


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
