"""API keys and the audit log.

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
from typing import Annotated

import msgspec
from msgspec import Meta, structs

from windlass.checks import Problems, check_text
from windlass.errors import must_be
from windlass.job import MAX_TENANT
from windlass.ops.actions import Action, Cursor, Limit, Need, Option, Verbs, Why
from windlass.ops.document import CHECK
from windlass.store.access import ApiKey, AuditPage, KeyInfo, NewApiKey, check_cursor

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


RoleName = Annotated[str, Meta(extra_json_schema={"enum": sorted(Role)})]


class KeyWish(msgspec.Struct, frozen=True, kw_only=True):
    """What a new API key shall be good for."""

    name: Annotated[str, Meta(min_length=1, max_length=64, examples=["billing"])]
    roles: Annotated[tuple[RoleName, ...], Meta(min_length=1)]
    types: tuple[str, ...] = ()
    tenant: str | None = None
    rate: Annotated[float, Meta(gt=0, description="Jobs per second; 1000 if left out.")] | None = None
    lasts: timedelta | None = msgspec.field(default=None, name="expires")


class NewKey(KeyInfo, frozen=True, kw_only=True):
    """An API key that was just made: the only time that its secret is shown.

    `key` is null where the same request had made it before.
    """

    key: str | None


def shown(key: ApiKey) -> KeyInfo:
    """An API key, without what would let anybody use it."""
    return msgspec.convert(key, KeyInfo, from_attributes=True)


def made(wish: KeyWish, key_id: str) -> tuple[NewApiKey, str]:
    """A key for that wish, checked, and its secret."""
    rate = DEFAULT_RATE if wish.rate is None else wish.rate
    problems = Problems()
    with problems:
        if not _NAME.fullmatch(wish.name):
            allowed = "up to 64 letters, digits, _, ., @ or -, a letter or digit first"
            raise must_be("name", wish.name, allowed)
    with problems:
        wrong = [role for role in wish.roles if role not in set(Role)]
        if wrong or not wish.roles:
            raise must_be("roles", ", ".join(wrong) or "none", "one or more of " + ", ".join(Role))
    with problems:
        for pattern in wish.types:
            if not _PATTERN.fullmatch(pattern):
                raise must_be("types", pattern, "names or patterns of types, such as send_email or mail.*")
        _check_types(wish)
    with problems:
        if wish.tenant is not None:
            check_text("tenant", wish.tenant, MAX_TENANT)
            if Role.WORKER in wish.roles:
                raise must_be("tenant", wish.tenant, "left out for workers, who take jobs of every tenant")
    with problems:
        if not _LOWEST_RATE <= rate <= _HIGHEST_RATE:
            raise must_be("rate", rate, f"between {_LOWEST_RATE:g} and {_HIGHEST_RATE:g} jobs per second")
    with problems:
        if wish.lasts is not None and not timedelta(0) < wish.lasts <= LONGEST:
            lasts = f"{wish.lasts.total_seconds():g}s"
            raise must_be("expires", lasts, f"more than 0 and at most {LONGEST.days}d")
    problems.check()
    secret = secrets.token_urlsafe(32)
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


def _check_types(wish: KeyWish) -> None:
    """Refuse bounds that would hold nobody back: operators see and act on all types."""
    if wish.types and not {Role.OPERATOR, Role.ADMIN}.isdisjoint(wish.roles):
        allowed = "left out for operators and admins, who act on every type: make a key of its own for them"
        raise must_be("types", ", ".join(wish.types), allowed)
    if wish.types and {Role.PRODUCER, Role.WORKER}.isdisjoint(wish.roles):
        raise must_be("types", ", ".join(wish.types), "left out for viewers, who see every type")


def split(text: str) -> tuple[str, str]:
    """The id and the secret in what a caller sent; both empty if it cannot be a key."""
    prefix, _, rest = text.partition("_")
    key_id, _, secret = rest.partition("_")
    return (key_id, secret) if prefix == _PREFIX and secret else ("", "")


def opens(key: ApiKey, secret: str, now: datetime) -> bool:
    """Whether the secret is the key's, compared in constant time, and the key is valid."""
    same = hmac.compare_digest(_digest(secret), key.digest)
    return same and key.valid(now)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


class AccessVerbs(Verbs):
    """The verbs about keys and about what was done."""

    @Action(
        "POST keys",
        need=Need.ADMINISTER,
        command="keys create",
        own_command=True,
        status=201,
        past="made",
        check=lambda _, wish, **__: made(wish, ""),
    )
    def create_key(self, wish: KeyWish, *, why: Why = "") -> NewKey:
        """Make an API key for a service. It is shown once: the store keeps only its digest."""
        asked = self.request_id
        # The same for the same request, if that has an id.
        key_id = hashlib.sha256(asked.encode()).hexdigest()[:12] if asked else secrets.token_hex(6)
        new, secret = made(wish, key_id)
        key = self.store.add_api_key(new, by=self._who, why=why)
        # If the same request was sent before, the secret went out with the first answer.
        return NewKey(**structs.asdict(shown(key)), key=secret if key.digest == new.digest else None)

    @Action("GET keys", need=Need.ADMINISTER, command="keys list", operation="list_keys", answers=("keys",))
    def keys(self) -> list[KeyInfo]:
        """Every API key, the newest first, ended ones too."""
        return [shown(key) for key in self.store.api_keys()]

    @Action(
        "DELETE keys/{id}",
        need=Need.ADMINISTER,
        command="keys revoke",
        danger=True,
        past="revoked",
        examples="""
            windlass keys revoke 3f9a1c22b70d
            windlass keys revoke 3f9a1c22b70d --after 1d
        """,
    )
    def revoke_key(
        self,
        key_id: Annotated[str, Option("", "ID")],
        *,
        after: Annotated[timedelta, Option("How long it stays valid, such as 1d.", "DURATION")] = timedelta(
            0
        ),
        why: Why = "",
    ) -> KeyInfo:
        """End a key; servers follow within seconds."""
        if after > LONGEST:
            raise must_be("after", f"{after.days}d", f"at most {LONGEST.days}d")
        return shown(self.store.revoke_api_key(key_id, after, by=self._who, why=why))

    @Action("GET audit", need=Need.OPERATE, operation="show_audit")
    def audit(
        self,
        *,
        target: Annotated[str, Option("A job (id or key), type, schedule, setting, worker or API key.")] = "",
        tenant: Annotated[
            str | None, Option("The tenant whose key it is, where several tenants have the same one.")
        ] = None,
        who: Annotated[str, Option("What this one did.")] = "",
        verb: Annotated[str, Option("Such as cancel, replay, pause, set, drain, create, revoke.")] = "",
        limit: Limit = 50,
        cursor: Annotated[Cursor, Meta(extra={CHECK: check_cursor})] = None,
    ) -> AuditPage:
        """Who did what, newest first; a job may be named by its key."""
        job = self.store.get(target, caller=None, tenant=tenant) if target else None
        name = target if job is None else job.id
        return self.store.audit(target=name, who=who, verb=verb, limit=limit, cursor=cursor)
