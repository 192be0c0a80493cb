"""Who asks, and what may they do?"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache

import msgspec

from windlass.job import Job
from windlass.ops.actions import Need
from windlass.ops.keys import Role

__all__ = ["LOCAL", "Identity", "Need"]


_MAY: dict[Role, frozenset[Need]] = {
    Role.PRODUCER: frozenset({Need.PRODUCE, Need.LOOK, Need.ACT}),
    Role.WORKER: frozenset({Need.WORK}),
    Role.VIEWER: frozenset({Need.SEE, Need.LOOK}),
    Role.OPERATOR: frozenset({Need.SEE, Need.LOOK, Need.ACT, Need.OPERATE}),
    Role.ADMIN: frozenset(Need),
}


@cache
def _allowed(roles: frozenset[Role]) -> frozenset[Need]:
    """What somebody with these roles may do. Asked with every request, and there are few sets of roles."""
    return frozenset().union(*(_MAY[role] for role in roles))


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
    def told(self) -> str:
        """Who it is, in messages."""
        return self.name or "local"

    @property
    def recorded(self) -> str:
        """The same with the key, as the audit log has it."""
        return self.told if self.key_id is None else f"{self.told} (key {self.key_id})"

    def may(self, need: Need) -> bool:
        """Whether a role of its allows that."""
        return need is Need.NOTHING or need in _allowed(self.roles)

    def takes(self, job_type: str) -> bool:
        """Whether jobs of a type are its business."""
        return not self.types or any(fnmatchcase(job_type, pattern) for pattern in self.types)

    def sees(self, job: Job) -> bool:
        """Whether a job may be shown to it: its own, or any if a role allows that."""
        if self.tenant is not None and job.tenant != self.tenant:
            return False
        return self.may(Need.SEE) or job.caller == self.name


# Whoever comes to a server that needs no keys.
LOCAL = Identity(name="", roles=frozenset({Role.ADMIN}))
