"""Running jobs: leases, progress, side effects done once, and jobs that workers could not read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from windlass.clock import from_micros, span
from windlass.errors import LeaseLost
from windlass.job import Error, Job, Lease
from windlass.store import flow, rows
from windlass.store.engine import Claimed, Row, Settlement, Tx, Want

if TYPE_CHECKING:
    from windlass.store.fleet import WorkerInfo


class Once(StrEnum):
    """What is known of a side effect that shall happen once."""

    NEW = "new"
    DONE = "done"
    # Begun by an attempt that never said how it ended.
    IN_DOUBT = "in doubt"


class Said(NamedTuple):
    """How far a running job says that it has come, and what it does."""

    done: int
    total: int | None = None
    message: str | None = None


class Progress(msgspec.Struct, frozen=True):
    """How far a job said that it had come, and when."""

    done: int
    total: int | None
    noted_at: datetime
    message: str | None = None


class Transacting(Protocol):
    """Where a handler's own writes commit together with its job's completion."""

    def transaction(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> AbstractContextManager[Any]:
        """A connection of the handler's own in a transaction that commits together with the completion.

        That is asked for at the block's end. LeaseLost, and nothing written, if it comes too late.
        """

    def transaction_async(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> AbstractAsyncContextManager[Any]:
        """The same on the running event loop."""

    def close(self) -> None:
        """Let go of the connections."""


def note_hang(tx: Tx, seq: int, token: str, hang: Error | None) -> None:
    """Keep why a running job's worker does not answer, for its reaper; None: it answers again."""
    row = tx.row("running_job", seq=seq, token=token)
    if row is not None:
        job = rows.read(Job, row)
        history = job.history
        flow.note_hang(tx, job, hangs=hang is not None)
        before = history[-1].error if history else None
        error = rows.json_text(hang) if hang else rows.error_text(before) if before else None
        tx.change("note_hang", seq=seq, token=token, error=error)


def extend(tx: Tx, leases: Sequence[Lease], by: timedelta) -> tuple[list[Lease], list[Lease]]:
    """Move the leases' end to now + `by`: (kept with their new end, lost)."""
    until = tx.now + span(by)
    end = from_micros(until)
    kept: list[Lease] = []
    lost: list[Lease] = []
    for lease in leases:
        if tx.change("extend", seq=lease.job.seq, token=lease.token, until=until):
            kept.append(msgspec.structs.replace(lease, until=end))
        else:
            lost.append(lease)
    return kept, lost


def held_by(tx: Tx, worker: str) -> list[Lease]:
    """Every lease in a worker's name."""
    return [rows.lease_from(row) for row in tx.rows("held_by", worker=worker)]


def orphans(tx: Tx, *, limit: int) -> list[Lease]:
    """Leases whose worker is declared dead, stopped, or unknown."""
    return [rows.lease_from(row) for row in tx.rows("orphans", limit=limit)]


def expired(tx: Tx, *, limit: int) -> list[Lease]:
    """Leases past their end, the longest past first."""
    return [rows.lease_from(row) for row in tx.rows("expired", now=tx.now, limit=limit)]


def note_progress(tx: Tx, said: Sequence[tuple[Lease, Said]]) -> None:
    """Keep how far jobs have come; in a fixed order, so that two workers never wait for each other."""
    for lease, told in sorted(said, key=lambda each: each[0].id):
        fence = {"seq": lease.job.seq, "token": lease.token}
        tx.change("note_progress", **told._asdict(), now=tx.now, **fence)


def progress(tx: Tx, job_id: str) -> Progress | None:
    """How far a job said that it had come."""
    row = tx.row("progress_of", id=job_id)
    return None if row is None else rows.read(Progress, row)


def begin_once(tx: Tx, lease: Lease, key: str) -> Once:
    """Begin a side effect, or say what became of it before. LeaseLost if the job is another's."""
    fence = {"seq": lease.job.seq, "token": lease.token}
    if tx.row("begin_once", key=key, now=tx.now, **fence) is not None:
        return Once.NEW
    known = tx.row("once_of", key=key, **fence)
    if known is None or known["done"] is None:
        raise LeaseLost(lease.id)
    return Once.DONE if known["done"] else Once.IN_DOUBT


def end_once(tx: Tx, lease: Lease, key: str) -> None:
    """The side effect is done."""
    tx.change("end_once", id=lease.id, key=key, now=tx.now)


def undo_once(tx: Tx, lease: Lease, key: str) -> None:
    """The side effect surely did not happen."""
    tx.change("undo_once", id=lease.id, key=key, seq=lease.job.seq, token=lease.token)


def claimed_before(tx: Tx, want: Want) -> Claimed | None:
    """What this very claim took when it came the first time: leases whose tokens end with its mark."""
    found = [
        lease for lease in held_by(tx, want.worker) if lease.token.replace("-", "").endswith(want.mark or "")
    ]
    return Claimed(found, repeated=True) if found and want.mark else None


# Jobs are counted up to here, so that a look costs little however many wait.
MOST_COUNTED = 10_000


def any_for(tx: Tx, types: Collection[str], reader: str) -> bool:
    """Whether jobs of these types are aside that a reader has not tried."""
    if not reader:
        return False
    return any(row["type"] in types and reader not in row["readers"] for row in tx.rows("unread_sets"))


def every(tx: Tx) -> list[Unread]:
    """All jobs that are aside, by type, by field and by who has tried them."""
    found = []
    for kind in tx.rows("unread_sets"):
        row = tx.row("count_unread", **kind, limit=MOST_COUNTED)
        if row is not None and row["count"]:
            found.append(_unread(kind, row))
    return found


def of_job(tx: Tx, job: Job) -> Unread | None:
    """Why a job is aside; None if it is not."""
    row = tx.row("unread_job", seq=job.seq)
    return None if row is None else _unread({"type": job.type}, row)


def _unread(kind: Row, row: Row) -> Unread:
    told = {**kind, **row}
    return rows.read(Unread, told, readers=frozenset(told["readers"].split()))


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that workers could not read, and have left to workers of another release."""

    type: str
    # The readers that have tried them.
    readers: frozenset[str]
    # What they cannot read, and what one of them said of it.
    field: str
    problem: str
    since: datetime
    # Counted up to a bound.
    count: int = 1

    def is_for(self, worker: WorkerInfo) -> bool:
        """Whether a worker that takes jobs of this type may be able to read them."""
        # Over HTTP nothing is said of versions: such a worker takes whatever it is given. One of an older
        # release of Windlass says no reader, and is never offered what others have left.
        return worker.reader not in self.readers if worker.reader else not worker.versions

    def for_none_of(self, workers: Iterable[WorkerInfo]) -> bool:
        """Whether none of these workers, which are alive, takes the type and may be able to read them."""
        return not any(
            worker.state != "draining" and worker.serves(self.type) and self.is_for(worker)
            for worker in workers
        )
