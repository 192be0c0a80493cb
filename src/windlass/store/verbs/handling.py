"""What does a running handler have recorded: how far it came, and what it has done once?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.clock import from_micros
from windlass.errors import LeaseLost
from windlass.store.handling import Once, Progress, Said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.job import Lease
    from windlass.store.transaction import Tx


def note_progress(tx: Tx, said: Sequence[tuple[Lease, Said]]) -> None:
    """Keep each job's newest word; in a fixed order, so that two workers never wait for each other."""
    for lease, told in sorted(said, key=lambda each: each[0].id):
        fence = {"seq": lease.job.seq, "token": lease.token}
        tx.change(
            "note_progress", done=told.done, total=told.total, message=told.message, now=tx.now, **fence
        )


def progress(tx: Tx, job_id: str) -> Progress | None:
    """How far a job said that it had come."""
    row = tx.row("progress_of", id=job_id)
    if row is None:
        return None
    return Progress(row["done"], row["total"], from_micros(row["noted_at"]), row["message"])


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
