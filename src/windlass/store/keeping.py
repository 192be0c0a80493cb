"""What keeps a store healthy, and how long does it keep what has ended?"""

from __future__ import annotations

from datetime import timedelta

import msgspec


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
