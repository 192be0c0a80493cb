"""API keys and the audit log: values and verbs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.clock import span
from windlass.errors import JobNotFound, must_be
from windlass.store import rows

if TYPE_CHECKING:
    from windlass.store.engine import Tx


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an API key is good for, and when it was last used."""

    id: str
    name: str
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


class ApiKey(KeyInfo, frozen=True, kw_only=True):
    """An API key as the store knows it, with the digest of its secret."""

    digest: str


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


_MOST = 1000
_FROM_THE_TOP = 2**62
_LONGEST = 2_000
# Keys of one service whose lines are looked for by the name of the service.
_MOST_ACTORS = 100


def note(
    tx: Tx,
    verb: str,
    kind: str,
    target: str,
    *,
    by: str,
    why: str = "",
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Write a line of the audit log, in the transaction of what it tells of. No name: no line."""
    if by:
        was, now = (None if each is None else rows.json_text(each) for each in (before, after))
        what = {"verb": verb, "kind": kind, "target": target, "before": was, "after": now}
        tx.change("note_action", now=tx.now, who=by, why=said(why), **what)


def said(why: str) -> str:
    """What somebody gave as a reason, as far as a store takes it."""
    return why[:_LONGEST].replace("\0", "")


def check_cursor(cursor: str, _field: str = "cursor") -> str:
    """The `next` of a page of the audit log, or InvalidValue."""
    if cursor.isascii() and cursor.isdecimal() and int(cursor) <= _FROM_THE_TOP:
        return cursor
    raise must_be("cursor", cursor, "the `next` of an earlier page")


def audit(
    tx: Tx, *, target: str = "", who: str = "", verb: str = "", limit: int = 50, cursor: str | None = None
) -> AuditPage:
    """A page of the audit log, newest first."""
    if not 1 <= limit <= _MOST:
        raise must_be("limit", limit, f"between 1 and {_MOST}")
    asked = {name: value for name, value in (("target", target), ("verb", verb)) if value}
    clauses = "".join(f" and {name} = :{name}" for name in asked)
    page = {
        "before": _FROM_THE_TOP if cursor is None else int(check_cursor(cursor)),
        "limit": limit + 1,
        **asked,
    }
    if not who:
        found = list(tx.search(["audit"], clauses, page))
    else:
        # One after the other: a page of each is read from an index in its order, however long the log is.
        clauses += " and who = :who"
        found = [
            row for name in _actors(tx, who) for row in tx.search(["audit"], clauses, page | {"who": name})
        ]
        found.sort(key=lambda row: -row["seq"])
    entries = [rows.read(Entry, row) for row in found[:limit]]
    return AuditPage(entries, str(entries[-1].seq) if len(found) > limit else None)


def _actors(tx: Tx, who: str) -> list[str]:
    """A name as it stands, and with each key or user id: `billing`, `billing (key 3f9a1c22b70d)`."""
    found, after = [who], f"{who} ("
    while len(found) < _MOST_ACTORS:
        row = tx.row("next_actor", after=after, until=f"{who} )")
        if row is None or row["who"] is None:
            break
        after = row["who"]
        found.append(after)
    return found


def add_api_key(tx: Tx, new: NewApiKey, *, by: str, why: str = "") -> ApiKey:
    """Store a new key; one that has its id is left as it is, and answered with."""
    rate = None if new.rate is None else str(new.rate)
    expires_at = None if new.lasts is None else tx.now + span(new.lasts)
    added = tx.change("add_api_key", **rows.columns(new, rate=rate), expires_at=expires_at, now=tx.now)
    after = {"name": new.name, "roles": new.roles, "types": new.types, "tenant": new.tenant, "rate": new.rate}
    if added:
        note(tx, "create", "api_key", new.id, by=by, why=why, after=after)
    return _known(tx, new.id)


def api_keys(tx: Tx) -> list[ApiKey]:
    """Every key, the newest first, ended ones too."""
    return [rows.read(ApiKey, row) for row in tx.rows("api_keys")]


def revoke_api_key(tx: Tx, key_id: str, after: timedelta, *, by: str, why: str = "") -> ApiKey:
    """End a key after a time, which may be none. JobNotFound if there is no such key."""
    before = _known(tx, key_id)
    if not tx.change("revoke_api_key", id=key_id, at=tx.now + span(after)):
        return before
    ended = _known(tx, key_id)
    was, now = ({"name": each.name, "revoked_at": each.revoked_at} for each in (before, ended))
    note(tx, "revoke", "api_key", key_id, by=by, why=why, before=was, after=now)
    return ended


def api_keys_used(tx: Tx, ids: Collection[str]) -> None:
    """Note that these keys were of use."""
    for key_id in sorted(ids):
        tx.change("api_key_used", id=key_id, at=tx.now)


def _known(tx: Tx, key_id: str) -> ApiKey:
    found = [key for key in api_keys(tx) if key.id == key_id]
    if not found:
        raise JobNotFound(key_id, "API key")
    return found[0]
