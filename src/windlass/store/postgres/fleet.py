"""What do a worker and the store tell each other each second? One statement each."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass.clock import from_micros, span
from windlass.job import Lease, Request
from windlass.store import fleet, oncall, samples
from windlass.store.fleet import Look, Vitals
from windlass.store.postgres.arrays import numbers, texts, words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windlass.store.postgres.session import PostgresTx
    from windlass.store.samples import Sample


def beat(tx: PostgresTx, worker: str, vitals: Vitals) -> bool:
    """Move the worker's beat; False if it must take a new id."""
    told = msgspec.structs.asdict(vitals) | {"pools": fleet.pools_text(vitals)}
    return bool(tx.change("beat_now", id=worker, now=tx.given, **told))


def beat_waiting(tx: PostgresTx, workers: Sequence[str]) -> set[str]:
    """Move the beats of workers that wait for jobs; those that are alive."""
    return {row["id"] for row in tx.rows("beat_waiting", now=tx.given, ids=texts(workers))}


def look(tx: PostgresTx, worker: str, types: Mapping[str, int], reader: str = "") -> Look:
    """All that a worker must know each second."""
    [row] = tx.rows(
        "look",
        worker=worker,
        types=list(types),
        versions=numbers(types.values()),
        reader=reader,
        now=tx.given,
    )
    later, fires = row["later"], row["fires"]
    return Look(
        now=from_micros(row["now"]),
        workers=[fleet.worker_from(each) for each in msgspec.json.decode(row["workers"])],
        requests={token: Request(request) for token, request in msgspec.json.decode(row["requests"]).items()},
        expired=row["expired"],
        orphaned=row["orphaned"],
        claimable=row["claimable"],
        next_due=None if later is None else timedelta(microseconds=max(0, later - row["now"])),
        next_fire=None if fires is None else timedelta(microseconds=fires - row["now"]),
        revision=row["revision"],
        unread=row["unread"],
    )


def note_ticks(tx: PostgresTx, ages: Mapping[str, timedelta], who: str) -> None:
    """Keep when things last succeeded."""
    oncall.note_ticks_at(tx, tx.given, ages, who)


def extend(tx: PostgresTx, leases: Sequence[Lease], by: timedelta) -> tuple[list[Lease], list[Lease]]:
    """Move the leases' end: (kept with their new end, lost). One that is locked now is kept as it is."""
    if not leases:
        return [], []
    fence = {
        "seqs": numbers(lease.job.seq for lease in leases),
        "tokens": words(lease.token for lease in leases),
    }
    moved = tx.rows("extend_batch", now=tx.given, by=span(by), **fence)
    ends = {row["token"]: from_micros(row["lease_until"]) for row in moved}
    if len(ends) < len(leases):
        held = {row["token"] for row in tx.rows("settled_already", **fence) if row["held"]}
        ends = {lease.token: lease.until for lease in leases if lease.token in held} | ends
    kept = [
        msgspec.structs.replace(lease, until=ends[lease.token]) for lease in leases if lease.token in ends
    ]
    return kept, [lease for lease in leases if lease.token not in ends]


def look_around(tx: PostgresTx, older_than: timedelta) -> samples.Seen | Sample:
    """Where live jobs stand, looked at anew if the last look is older than that.

    In no one snapshot, and needs none: what has come in is counted up to a number, and what a transaction
    commits below it meanwhile is counted the next time.
    """
    [last] = tx.rows("before_sample", now=tx.given)
    tx.tell(last["now"])
    return samples.look_since(last, tx, older_than)


def note_sample(tx: PostgresTx, seen: samples.Seen, took: timedelta) -> Sample | None:
    """Keep what was seen; None if somebody else was faster."""
    tx.tell(seen.now)
    return samples.note(tx, seen, took)
