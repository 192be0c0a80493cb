"""What is said of API keys, and of who did what?"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from windlass.ops.keys import Role
from windlass.server.schemas import Span, WhyForm


class KeyForm(WhyForm, frozen=True, kw_only=True):
    """An API key to be made."""

    name: Annotated[str, Meta(min_length=1, max_length=64, examples=["billing"])]
    roles: Annotated[tuple[Role, ...], Meta(min_length=1)]
    types: tuple[str, ...] = ()
    tenant: str | None = None
    rate: Annotated[float, Meta(gt=0, description="Jobs per second; 1000 if left out.")] | None = None
    expires: Span | None = None


class KeyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An API key, without what would let anybody use it."""

    id: str
    name: str
    roles: list[str]
    types: list[str]
    tenant: str | None
    rate: float | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None


class NewKeyDocument(KeyDocument, frozen=True, kw_only=True):
    """An API key that was just made: the only time that it is shown."""

    key: str


class KeysDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every API key, the newest first."""

    keys: list[KeyDocument]


class EntryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the audit log."""

    seq: int
    at: datetime
    who: str
    verb: str
    kind: str
    target: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    why: str


class AuditDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The audit log, newest first."""

    entries: list[EntryDocument]
    next: str | None
