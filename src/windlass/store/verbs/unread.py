"""Which jobs wait for a worker of another release, because nobody else could read them?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.clock import from_micros
from windlass.store.explaining import Unread

if TYPE_CHECKING:
    from collections.abc import Collection

    from windlass.job import Job
    from windlass.store.transaction import Tx

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
            found.append(
                Unread(
                    type=kind["type"],
                    readers=frozenset(kind["readers"].split()),
                    field=kind["field"],
                    problem=row["problem"],
                    since=from_micros(row["since"]),
                    count=row["count"],
                )
            )
    return found


def of_job(tx: Tx, job: Job) -> Unread | None:
    """Why a job is aside; None if it is not."""
    row = tx.row("unread_job", seq=job.seq)
    if row is None:
        return None
    return Unread(
        type=job.type,
        readers=frozenset(row["readers"].split()),
        field=row["field"],
        problem=row["problem"],
        since=from_micros(row["since"]),
    )
