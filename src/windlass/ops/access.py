"""Who may do what over HTTP, and who did?"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.errors import must_be
from windlass.ops import keys
from windlass.ops.actions import Verbs

if TYPE_CHECKING:
    from windlass.ops.keys import KeyWish
    from windlass.store.access import ApiKey, AuditPage


class AccessVerbs(Verbs):
    """The verbs about keys and about what was done."""

    def create_key(self, wish: KeyWish, *, by: str | None = None, why: str = "") -> tuple[ApiKey, str]:
        """Make an API key; its secret is told now and never again."""
        new, secret = keys.made(wish)
        return self.store.add_api_key(new, by=self._who(by), why=why), secret

    def keys(self) -> list[ApiKey]:
        """Every API key, the newest first, ended ones too."""
        return self.store.api_keys()

    def revoke_key(
        self, key_id: str, *, after: timedelta = timedelta(0), by: str | None = None, why: str = ""
    ) -> ApiKey:
        """End an API key, now or after a time in which another one takes over."""
        if after > keys.LONGEST:
            raise must_be("after", f"{after.days}d", f"at most {keys.LONGEST.days}d")
        return self.store.revoke_api_key(key_id, after, by=self._who(by), why=why)

    def audit(
        self,
        *,
        target: str = "",
        tenant: str | None = None,
        who: str = "",
        verb: str = "",
        limit: int = 50,
        cursor: str | None = None,
    ) -> AuditPage:
        """Who did what, newest first; a job may be named by its key."""
        job = self.store.get(target, caller=None, tenant=tenant) if target else None
        name = target if job is None else job.id
        return self.store.audit(target=name, who=who, verb=verb, limit=limit, cursor=cursor)
