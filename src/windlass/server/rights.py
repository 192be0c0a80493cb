"""What may this caller touch, of what it names? Its roles, types and tenant say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from windlass.errors import JobNotFound
from windlass.payload import parse
from windlass.registry import SHELL
from windlass.server.identity import Need
from windlass.server.problems import Problem
from windlass.server.schemas import NOTHING
from windlass.store.jobs import Filter

if TYPE_CHECKING:
    from windlass.server.call import Call


def check_type_allowed(call: Call, job_type: str, index: int | None = None) -> None:
    """Refuse who may not say what jobs of a type do: shell commands above all."""
    who = call.identity
    if not who.takes(job_type):
        raise _not_allowed(who.told, job_type, index)
    if job_type == SHELL and not (call.parts.config.shell and (who.key_id is None or SHELL in who.types)):
        raise _no_shell(index)


def sent_payload(call: Call, job_type: str, raw: msgspec.Raw) -> dict[str, Any] | None:
    """Another payload for a job, if one was sent: as good as a new job, and not for who may not make one."""
    if raw == NOTHING:
        return None
    check_type_allowed(call, job_type)
    return parse(bytes(raw), "payload")


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


def _not_allowed(who: str, job_type: str, index: int | None) -> Problem:
    return Problem(403, "not-allowed", f"{who} may not use jobs of type {job_type!r}", index=index)


def _no_shell(index: int | None) -> Problem:
    detail = "shell commands need a server with --shell, and a key that is allowed the type shell"
    return Problem(403, "not-allowed", detail, index=index)
