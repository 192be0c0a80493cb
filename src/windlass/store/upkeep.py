"""Settings, retention, promotion and the state of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from windlass.clock import span
from windlass.store import access, history, rows
from windlass.store.engine import Row, Tx


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long records are kept after a job ended."""

    ended: timedelta = timedelta(days=7)
    dead: timedelta = timedelta(days=30)


class Restored(msgspec.Struct, frozen=True):
    """What a restored backup has brought back."""

    path: str
    backup: str
    # Where the file is that was at the path before; None if there was none.
    kept: str | None
    live: int
    running: int
    archived: int
    # Migrations that this version knows and the backup has not seen.
    pending: tuple[str, ...]


class ClockWatch(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the store's clock: for how long it has gone on steadily, and by how much it jumped."""

    steady_for: timedelta
    # Only of a jump that was seen just now.
    jump: timedelta | None = None


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What `windlass db status` shows."""

    url: str
    kind: str
    version: str
    schema: int
    newest_schema: int
    size_bytes: int
    live: int
    archived: int
    # Of a store that this code can use: indexes left half-made, and where its jobs are going or have gone.
    invalid_indexes: tuple[str, ...] = ()
    moved_to: str | None = None
    notes: tuple[str, ...] = ()


def check(tx: Tx) -> list[str]:
    """What is wrong with the stored data."""
    problems = [f"job {row['id']} is both live and archived" for row in tx.rows("check_twice")]
    problems += [
        f"key {row['key']!r} belongs to job {row['job_id']}, which is gone" for row in tx.rows("check_keys")
    ]
    return problems


# A person had a day to look.
_LATELY = timedelta(days=1)
# Less than this is no reason to distrust a clock.
_JUMP = timedelta(hours=1)
_LONGEST_GAP = timedelta(hours=26)
_NOTES = (
    *("progress", "once", "batches", "checks", "unread"),
    *("workers", "failures", "tallies", "held"),
    *("history", "flushes", "operations"),
)


def promote(tx: Tx, *, limit: int = 1000) -> int:
    """Put scheduled jobs whose time has come into the claim index."""
    return tx.change("promote", now=tx.now, limit=limit)


def prune_notes(tx: Tx, keep: Retention) -> None:
    """Delete what was recorded beside jobs: of their runs, of the fleet, of what happened."""
    tx.change_all(
        [f"prune_{which}" for which in _NOTES],
        ended=tx.now - span(keep.ended),
        lately=tx.now - span(_LATELY),
        **history.bounds(tx.now),
    )
    history.prune(tx)


def watch_clock(tx: Tx, boot: str, uptime: float) -> ClockWatch:
    """Compare the store's clock with one that only rises, and remember both.

    `uptime` is in seconds since the start of the machine that `boot` names; any process may look next.
    """
    row, risen = tx.row("clock_watch"), round(uptime * 1_000_000)
    jump = None if row is None else _jump(row, tx.now, boot, risen)
    since = tx.now if row is None or jump is not None else row["since"]
    tx.change("note_clock", now=tx.now, since=since, boot=boot, uptime=risen)
    told = None if jump is None else rows.from_span(jump)
    return ClockWatch(steady_for=rows.from_span(tx.now - since), jump=told)


def _jump(row: Row, now: int, boot: str, risen: int) -> int | None:
    """By how much the store's clock has jumped since it was last seen; None if it went on as it should.

    On the machine that saw it last, its own steady clock tells. Elsewhere nobody knows how much time has
    passed: a day without a look is common, where workers run once a day, and more is taken for a jump.
    """
    passed = now - row["seen_at"]
    if boot and row["boot"] == boot:
        jump = passed - (risen - row["uptime"])
        return jump if abs(jump) > span(_JUMP) else None
    return None if -span(_JUMP) <= passed <= span(_LONGEST_GAP) else passed


def note_pruned(tx: Tx, gone: Sequence[Row], by: str) -> None:
    """Write a line of the audit log for each dead letter that goes. No name: no line."""
    if gone and by:
        told = [{"id": str(row["id"]), "type": row["type"]} for row in gone]
        tx.change("note_pruned", now=tx.now, who=by, gone=rows.json_text(told))


def oldest_dead(tx: Tx) -> datetime | None:
    """When the first of the dead letters died."""
    row = tx.row("oldest_dead")
    return None if row is None else rows.moment(row["at"])


def oldest_record(tx: Tx) -> datetime | None:
    """When the oldest job of the archive ended, to the day; None if it is empty."""
    row = tx.row("oldest_record")
    return None if row is None else rows.moment(row["finished_at"])


def settings(tx: Tx) -> dict[str, str]:
    """What operators have set, by name."""
    return {row["name"]: row["value"] for row in tx.rows("settings")}


def set_settings(tx: Tx, changes: Mapping[str, str | None], *, by: str = "", why: str = "") -> None:
    """Store settings or, where there is no value, forget them."""
    # In a fixed order, so that two who set the same never wait for each other.
    for name in sorted(changes):
        was, value = tx.row("setting", name=name), changes[name]
        before = None if was is None else {"value": was["value"]}
        if value is None:
            access.note(tx, "reset", "setting", name, by=by, why=why, before=before)
            tx.change("reset_setting", name=name)
        else:
            access.note(tx, "set", "setting", name, by=by, why=why, before=before, after={"value": value})
            tx.change("put_setting", name=name, value=value, now=tx.now)
    tx.change("revise")
