"""Who may speak with a server, and what have people done? Values and verbs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key as the store knows it: the digest of its secret, and what it is good for."""

    id: str
    name: str
    digest: str
    roles: tuple[str, ...]
    types: tuple[str, ...] = ()
    tenant: str | None = None
    # Jobs per second.
    rate: float | None = None
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    used_at: datetime | None = None

    def valid(self, now: datetime) -> bool:
        """Whether it opens the door."""
        ends = [end for end in (self.expires_at, self.revoked_at) if end is not None]
        return all(now < end for end in ends)


class NewApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key to be stored."""

    id: str
    name: str
    digest: str
    roles: tuple[str, ...]
    types: tuple[str, ...] = ()
    tenant: str | None = None
    rate: float | None = None
    lasts: timedelta | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the audit log: who did what to what, how it was and is, and why."""

    seq: int
    at: datetime
    who: str
    verb: str
    # job, type, breaker, schedule, setting, worker, api_key.
    kind: str
    target: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    why: str


class AuditPage(msgspec.Struct, frozen=True):
    """Lines of the audit log, newest first, and the cursor of the next page."""

    entries: list[Entry]
    next: str | None
