"""Who may speak with a server, and what have people done? Values and verbs."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Protocol

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


class Access(Protocol):
    """API keys and the audit log. Whatever `by` did is noted in the transaction that does it."""

    def add_api_key(self, key: NewApiKey, *, by: str, why: str = "") -> ApiKey:
        """Store a new key."""

    def api_keys(self) -> list[ApiKey]:
        """Every key, the newest first, ended ones too."""

    def revoke_api_key(self, key_id: str, after: timedelta, *, by: str, why: str = "") -> ApiKey:
        """End a key after a time, which may be none. JobNotFound if there is no such key."""

    def api_keys_used(self, ids: Collection[str]) -> None:
        """Note that these keys were of use."""

    def audit(
        self, *, target: str = "", who: str = "", verb: str = "", limit: int = 50, cursor: str | None = None
    ) -> AuditPage:
        """The audit log, newest first."""
