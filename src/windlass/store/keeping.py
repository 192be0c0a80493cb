"""What keeps a store healthy, and how long does it keep what has ended?"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Protocol

import msgspec


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long records are kept after a job ended."""

    ended: timedelta = timedelta(days=7)
    dead: timedelta = timedelta(days=30)


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


class Upkeep(Protocol):
    """Keeping the store healthy."""

    def now(self) -> datetime:
        """The store's time."""

    def promote(self, *, limit: int = 1000) -> int:
        """Let scheduled jobs whose time has come stand in the claim index."""

    def prune(self, keep: Retention, *, limit: int = 1_000) -> int:
        """Delete one batch of records past their retention, keys included; 0 when nothing is left."""

    def settings(self) -> dict[str, str]:
        """What operators have set, by name."""

    def set_setting(self, name: str, value: str | None, *, by: str = "", why: str = "") -> None:
        """Store a setting, or with None forget it."""

    def set_settings(self, changes: Mapping[str, str | None], *, by: str = "", why: str = "") -> None:
        """The same for several, all at once."""

    def status(self) -> StoreStatus:
        """Size, versions and warnings."""

    def backup(self, path: str) -> None:
        """Write a consistent copy while others go on working."""

    def check(self) -> list[str]:
        """What is wrong with the stored data; empty is the good answer."""

    def close(self) -> None:
        """Let go of files, connections and threads."""
