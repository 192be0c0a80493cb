"""Which API keys are there, as of the last look? Every request asks; the store is asked now and then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING

from windlass.observe.counted import shown_services
from windlass.ops import keys
from windlass.ops.keys import Role
from windlass.server.identity import LOCAL, Identity
from windlass.server.problems import Problem
from windlass.store.access import ApiKey
from windlass.store.history import OTHER

if TYPE_CHECKING:
    from windlass.store.store import Store


class Keyring:
    """The keys, and who comes with which.

    As soon as there is one key, every caller needs one. Where keys are needed from the start (`always`)
    nobody comes in without; `never` leaves the door open.
    """

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
        """Whether a caller needs a key."""
        return self._always or (self._any and not self._never)

    def look(self) -> None:
        """Read the keys, and tell which were of use since the last look. Waits for the store."""
        store = self._store()
        used, self._used = self._used, set()
        if used:
            store.api_keys_used(used)
        found = store.api_keys()
        self._time = (store.now(), monotonic())
        # Before the keys: whoever comes with a new one is counted under its own name.
        self._services = frozenset(shown_services(found))
        self._any = bool(found)
        self._keys = {key.id: (key, _identity(key)) for key in found}

    def known(self, text: str | None) -> Identity | None:
        """Who comes with this, if the keys of the last look tell."""
        if not self.needed and text is None:
            return LOCAL
        parts = keys.split(text or "")
        found = self._keys.get(parts[0]) if parts else None
        if parts is None or found is None or not keys.opens(found[0], parts[1], self._now()):
            return None
        self._used.add(found[0].id)
        return found[1]

    def id_of(self, text: str | None) -> str | None:
        """The id of the key that somebody claims to have, if there is such a key."""
        parts = keys.split(text or "")
        return parts[0] if parts is not None and parts[0] in self._keys else None

    def label(self, who: Identity) -> str:
        """What metrics call somebody: their service, or one name for all beyond the bound; empty: no key."""
        if who.key_id is None:
            return ""
        return who.name if who.name in self._services else OTHER

    def may_be_new(self, text: str | None) -> bool:
        """Whether this looks like a key that another look may find."""
        parts = keys.split(text or "")
        return parts is not None and parts[0] not in self._keys

    def _now(self) -> datetime:
        moment, seen_at = self._time
        return moment + timedelta(seconds=monotonic() - seen_at)


def refusal(text: str | None) -> Problem:
    """Nobody comes in with this."""
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
