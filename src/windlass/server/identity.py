"""API keys, the caller behind each one, and what a caller may do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from windlass.errors import JobNotFound
from windlass.job import Job
from windlass.observe.exposition import shown_services
from windlass.ops import access as keys
from windlass.ops.access import Role
from windlass.ops.actions import Need
from windlass.registry import SHELL
from windlass.server.problems import Problem
from windlass.store.access import ApiKey
from windlass.store.history import OTHER
from windlass.store.jobs import Filter

if TYPE_CHECKING:
    from windlass.server.call import Call
    from windlass.store.store import Store

_MAY: dict[Role, frozenset[Need]] = {
    Role.PRODUCER: frozenset({Need.PRODUCE, Need.LOOK, Need.ACT}),
    Role.WORKER: frozenset({Need.WORK}),
    Role.VIEWER: frozenset({Need.SEE, Need.LOOK}),
    Role.OPERATOR: frozenset({Need.SEE, Need.LOOK, Need.ACT, Need.OPERATE}),
    Role.ADMIN: frozenset(Need),
}


@cache
def _allowed(roles: frozenset[Role]) -> frozenset[Need]:
    """What a caller with these roles may do. Asked with every request, and there are few sets of roles."""
    return frozenset().union(*(_MAY[role] for role in roles))


def roles_for(need: Need) -> list[Role]:
    """The roles that have a right."""
    return [role for role in Role if need in _MAY[role]]


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A caller: its name, its roles, and what it is held to."""

    # The service: jobs carry it, and keys of requests are its own.
    name: str
    roles: frozenset[Role]
    # Patterns of the types that it may enqueue or work on; empty: all.
    types: tuple[str, ...] = ()
    # The tenant that all its jobs belong to; None: any.
    tenant: str | None = None
    # Jobs per second; None: as many as it likes.
    rate: float | None = None
    # The API key that it came with.
    key_id: str | None = None

    @property
    def shown(self) -> str:
        return self.name or "local"

    @property
    def recorded(self) -> str:
        """The same with the key, as the audit log has it."""
        return self.shown if self.key_id is None else f"{self.shown} (key {self.key_id})"

    def may(self, need: Need) -> bool:
        return need is Need.NOTHING or need in _allowed(self.roles)

    def takes(self, job_type: str) -> bool:
        """Whether jobs of a type are its business."""
        return not self.types or any(fnmatchcase(job_type, pattern) for pattern in self.types)

    def sees(self, job: Job) -> bool:
        """Whether a job may be shown to it: its own, or any if a role allows that."""
        if self.tenant is not None and job.tenant != self.tenant:
            return False
        return self.may(Need.SEE) or job.caller == self.name


# Every caller of a server that needs no keys.
LOCAL = Identity(name="", roles=frozenset({Role.ADMIN}))


class Keyring:
    """The keys, and who comes with which. Once there is one, callers need one; or `always`, or `never`."""

    def __init__(self, store: Callable[[], Store], *, always: bool = False, never: bool = False) -> None:
        self._store = store
        self._always = always
        self._never = never
        self._keys: dict[str, tuple[ApiKey, Identity]] = {}
        self._any = False
        self._services: frozenset[str] = frozenset()
        self._used: set[str] = set()
        # The store's time at the last look, by which keys end, and when that was by our own clock.
        self._time = (datetime.min.replace(tzinfo=UTC), 0.0)

    @property
    def needed(self) -> bool:
        return self._always or (self._any and not self._never)

    def look(self) -> None:
        """Read the keys, and record which were used since the last read. Waits for the store."""
        store = self._store()
        used, self._used = self._used, set()
        if used:
            store.api_keys_used(used)
        found = store.api_keys()
        self._time = (store.now(), monotonic())
        # Before the keys: a caller with a new one is counted under its own name.
        self._services = frozenset(shown_services(found))
        self._any = bool(found)
        self._keys = {key.id: (key, _identity(key)) for key in found}

    def known(self, text: str | None) -> Identity | None:
        """The caller with this key, as of the last read."""
        if not self.needed and text is None:
            return LOCAL
        key_id, secret = keys.split(text or "")
        found = self._keys.get(key_id)
        moment, seen_at = self._time
        now = moment + timedelta(seconds=monotonic() - seen_at)
        if found is None or not keys.opens(found[0], secret, now):
            return None
        self._used.add(key_id)
        return found[1]

    def id_of(self, text: str | None) -> str | None:
        """The id of the key that a caller claims to have, if there is such a key."""
        key_id, _ = keys.split(text or "")
        return key_id if key_id in self._keys else None

    def label(self, who: Identity) -> str:
        """What metrics call a caller: its service, or one name for all beyond the bound; empty: no key."""
        if who.key_id is None:
            return ""
        return who.name if who.name in self._services else OTHER

    def may_be_new(self, text: str | None) -> bool:
        """Whether this looks like a key that another look may find."""
        key_id, _ = keys.split(text or "")
        return bool(key_id) and key_id not in self._keys


def refusal(text: str | None) -> Problem:
    """The refusal of a caller without a valid key."""
    detail = (
        "this server needs an API key: Authorization: Bearer wl_..."
        if text is None
        else "the API key is not known, has expired or was revoked"
    )
    return Problem(401, "not-authenticated", detail, headers={b"www-authenticate": b"Bearer"})


def _identity(key: ApiKey) -> Identity:
    return Identity(
        name=key.name,
        roles=frozenset(Role(role) for role in key.roles if role in set(Role)),
        types=key.types,
        tenant=key.tenant,
        rate=key.rate,
        key_id=key.id,
    )


def check_type_allowed(call: Call, job_type: str, index: int | None = None) -> None:
    """Refuse who may not say what jobs of a type do: shell commands above all."""
    who = call.identity
    if not who.takes(job_type):
        raise Problem(403, "not-allowed", f"{who.shown} may not use jobs of type {job_type!r}", index=index)
    if job_type == SHELL and not (call.parts.config.shell and (who.key_id is None or SHELL in who.types)):
        detail = "shell commands need a server with --shell, and a key that is allowed the type shell"
        raise Problem(403, "not-allowed", detail, index=index)


def own(call: Call, where: Filter) -> Filter:
    """The filter, held to the jobs that the caller may see."""
    who = call.identity
    if who.tenant is not None:
        if where.tenant not in (None, who.tenant):
            raise Problem(403, "not-allowed", f"tenant must be {who.tenant!r} for this key")
        where = msgspec.structs.replace(where, tenant=who.tenant)
    return where if who.may(Need.SEE) else msgspec.structs.replace(where, caller=who.name)


def check_own_batch(call: Call, batch_id: str) -> None:
    """Refuse a batch without a job that the caller may see: it is not there."""
    if call.identity.tenant is None and call.identity.may(Need.SEE):
        return
    if not call.parts.store.count(own(call, Filter(batch=batch_id)), limit=1):
        raise JobNotFound(batch_id, "batch")
