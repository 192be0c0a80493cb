"""What failed, and what did jobs die of? The latest, one by one or by type and error."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from windlass.clock import from_micros, to_micros
from windlass.store import rows
from windlass.store.examining import MOST_DEAD, POINTS, DeadGroup, DeadGroups
from windlass.store.verbs.searching import EXACTLY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from windlass.job import Job
    from windlass.store.transaction import Row, Tx

_MINUTE = 60_000_000


class _Died(NamedTuple):
    at: int
    id: str
    reason: str
    message: str


def failures(tx: Tx, *, since: datetime | None = None, limit: int = 50) -> list[Job]:
    """Live jobs whose last attempt failed, dead or to be tried again; the last to change first."""
    found = tx.rows("failed_lately", since=0 if since is None else to_micros(since), limit=limit)
    return [rows.live_job(row) for row in found]


def dead_groups(tx: Tx, types: Sequence[str] = ()) -> DeadGroups:
    """The newest dead jobs in groups, the largest first."""
    found = _newest(tx, types)
    groups: defaultdict[tuple[str, str], list[_Died]] = defaultdict(list)
    for row in found:
        error = rows.error_from(row["error"])
        kind = (error.kind if error is not None else None) or row["reason"] or "unknown"
        message = "" if error is None else error.message
        died = _Died(row["finished_at"], row["id"], row["reason"] or "", message)
        # By what the filter for an error knows, so that whoever acts on a group acts on these jobs alone.
        groups[row["type"], kind].append(died)
    told = [_group(key, died, tx.now) for key, died in groups.items()]
    told.sort(key=lambda each: (-each.count, each.type, each.error))
    return DeadGroups(groups=told, capped=len(found) >= MOST_DEAD)


def _newest(tx: Tx, types: Sequence[str]) -> Sequence[Row]:
    if not types:
        return tx.rows("dead_lately", limit=MOST_DEAD)
    found: list[Row] = []
    for name in dict.fromkeys(types):
        found += tx.rows("dead_lately_of_type", type=name, limit=MOST_DEAD - len(found))
    return found


def _group(key: tuple[str, str], died: Sequence[_Died], now: int) -> DeadGroup:
    job_type, error = key
    first, last = min(each.at for each in died), max(died)
    # Whole minutes, as many as it takes to see the first of them.
    step = _MINUTE * max(1, -(-(now - first) // (POINTS * _MINUTE)))
    spark = [0] * POINTS
    for each in died:
        ago = min(POINTS - 1, max(0, now - each.at) // step)
        spark[POINTS - 1 - ago] += 1
    return DeadGroup(
        type=job_type,
        error=error,
        reason=last.reason,
        count=len(died),
        first=from_micros(first),
        last=from_micros(last.at),
        sample=last.id,
        message=last.message,
        spark=tuple(spark),
        step=timedelta(microseconds=step),
        match=f"{EXACTLY}{error}",
    )
