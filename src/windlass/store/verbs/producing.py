"""Which types does the store know, and what if a job is sent a second time?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.errors import IdConflict
from windlass.store import rows
from windlass.store.protocol import Enqueued

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.job import Job, NewJob, TypeInfo
    from windlass.store.transaction import Tx


def found(job: Job | NewJob) -> Enqueued:
    """There was such a job before."""
    return Enqueued(job.id, job.key, created=False, due=False)


def existing(new: NewJob, known: Job | NewJob | None) -> Enqueued:
    """The id is known: the same request sent again finds its job, anything else is refused."""
    same = (
        known is not None
        and known.type == new.type
        and bytes(known.payload) == new.payload
        and known.key == new.key
        and known.caller == new.caller
    )
    if known is None or not same:
        raise IdConflict(new.id)
    return found(known)


def register(tx: Tx, types: Sequence[TypeInfo]) -> None:
    """Enter types into the catalogue."""
    for info in types:
        tx.change(
            "register_type",
            name=info.name,
            schema_version=info.schema_version,
            schema=rows.json_text(info.schema),
            options=rows.json_text(info.options),
            now=tx.now,
        )


def types(tx: Tx) -> dict[str, TypeInfo]:
    """The catalogue by name."""
    return {row["name"]: rows.type_from(row) for row in tx.rows("types")}
