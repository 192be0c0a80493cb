"""What is an API key made of, and how is one known again?

A key reads `wl_ID_SECRET`. The id finds its record; of the secret, which has 256 bits of chance, the store
keeps only the digest, so nobody who reads the store can use it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from windlass.checks import check_text
from windlass.errors import must_be
from windlass.job import MAX_TENANT
from windlass.store.access import ApiKey, NewApiKey

DEFAULT_RATE = 1_000.0
_PREFIX = "wl"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_PATTERN = re.compile(r"[a-z0-9_.*?\[\]-]{1,128}")
LONGEST = timedelta(days=3650)
_LOWEST_RATE = 0.001
_HIGHEST_RATE = 1_000_000.0


class Role(StrEnum):
    """What an API key is for."""

    PRODUCER = "producer"
    WORKER = "worker"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class KeyWish(msgspec.Struct, frozen=True, kw_only=True):
    """What a new API key shall be good for."""

    name: str
    roles: tuple[str, ...]
    types: tuple[str, ...] = ()
    tenant: str | None = None
    rate: float | None = None
    lasts: timedelta | None = None


def made(wish: KeyWish) -> tuple[NewApiKey, str]:
    """A key for that wish, checked, and its secret."""
    if not _NAME.fullmatch(wish.name):
        raise must_be("name", wish.name, "up to 64 letters, digits, _, ., @ or -, a letter or digit first")
    if not wish.roles:
        raise must_be("roles", "none", "one or more of " + ", ".join(Role))
    for role in wish.roles:
        if role not in set(Role):
            raise must_be("roles", role, "one or more of " + ", ".join(Role))
    for pattern in wish.types:
        if not _PATTERN.fullmatch(pattern):
            raise must_be("types", pattern, "names or patterns of types, such as send_email or mail.*")
    _check_bounds(wish)
    rate = DEFAULT_RATE if wish.rate is None else wish.rate
    if not _LOWEST_RATE <= rate <= _HIGHEST_RATE:
        raise must_be("rate", rate, f"between {_LOWEST_RATE:g} and {_HIGHEST_RATE:g} jobs per second")
    if wish.lasts is not None and not timedelta(0) < wish.lasts <= LONGEST:
        raise must_be(
            "expires", f"{wish.lasts.total_seconds():g}s", f"more than 0 and at most {LONGEST.days}d"
        )
    key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    new = NewApiKey(
        id=key_id,
        name=wish.name,
        digest=_digest(secret),
        roles=tuple(dict.fromkeys(wish.roles)),
        types=wish.types,
        tenant=wish.tenant,
        rate=rate,
        lasts=wish.lasts,
    )
    return new, f"{_PREFIX}_{key_id}_{secret}"


def _check_bounds(wish: KeyWish) -> None:
    """Refuse bounds that would hold nobody back: operators see and act on all types."""
    if wish.types and not {Role.OPERATOR, Role.ADMIN}.isdisjoint(wish.roles):
        allowed = "left out for operators and admins, who act on every type: make a key of its own for them"
        raise must_be("types", ", ".join(wish.types), allowed)
    if wish.types and {Role.PRODUCER, Role.WORKER}.isdisjoint(wish.roles):
        raise must_be("types", ", ".join(wish.types), "left out for viewers, who see every type")
    if wish.tenant is None:
        return
    check_text("tenant", wish.tenant, MAX_TENANT)
    if Role.WORKER in wish.roles:
        raise must_be("tenant", wish.tenant, "left out for workers, who take jobs of every tenant")


def split(text: str) -> tuple[str, str] | None:
    """The id and the secret in what a caller sent; None if it cannot be a key."""
    prefix, _, rest = text.partition("_")
    key_id, _, secret = rest.partition("_")
    return (key_id, secret) if prefix == _PREFIX and key_id and secret else None


def opens(key: ApiKey, secret: str, now: datetime) -> bool:
    """Whether the secret is the key's, compared in constant time, and the key is valid."""
    same = hmac.compare_digest(_digest(secret), key.digest)
    return same and key.valid(now)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()
