"""Which due jobs come next: by priority, tenants in turn, then seq?"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from windlass.clock import span
from windlass.job import HIGHEST_PRIORITY
from windlass.store import rows
from windlass.store.protocol import Claimed, Want
from windlass.store.verbs import limiting
from windlass.store.verbs.fleet import claimable, next_due

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from windlass.store.transaction import Tx

_PROMOTED_AT_ONCE = 1000


class _Type(NamedTuple):
    name: str
    version: int


class _Candidate(NamedTuple):
    priority: int
    # Whether the tenant comes only after the turn has begun again.
    wrapped: bool
    tenant: str
    seq: int


def claim(tx: Tx, want: Want) -> Claimed:
    """Take up to `want.limit` due jobs, at a cost that does not depend on what is not claimable."""
    _promote(tx, want.types)
    found: list[_Candidate] = []
    for job_type, known in want.types.items():
        after = want.turns.get(job_type, "")
        for version in _versions(tx, job_type, known):
            found += _candidates(tx, _Type(job_type, version), after=after, limit=want.limit)
    picked = _in_order(found)[: want.limit]
    if not picked:
        return Claimed([], next_due(tx, want.types))
    taken = tx.rows(
        "claim",
        picked=rows.json_text([candidate.seq for candidate in picked]),
        worker=want.worker,
        mark=want.mark,
        until=tx.now + span(want.lease),
        now=tx.now,
    )
    place = {candidate.seq: number for number, candidate in enumerate(picked)}
    leases = sorted((rows.lease_from(row) for row in taken), key=lambda lease: place[lease.job.seq])
    return Claimed(leases, next_due(tx, want.types))


def claim_within_limits(tx: Tx, want: Want) -> Claimed:
    """The same where some of the types are restricted."""
    return limiting.claim(tx, want, promote=_promote, plain=claim)


def _promote(tx: Tx, types: Iterable[str]) -> None:
    for job_type in types:
        tx.change("promote_type", type=job_type, now=tx.now, limit=_PROMOTED_AT_ONCE)


def nothing_to_claim(tx: Tx, want: Want) -> Claimed | None:
    """The answer to a claim that would find nothing, without a write; None if it may find something."""
    return None if claimable(tx, want.types) else Claimed([], next_due(tx, want.types))


def _versions(tx: Tx, job_type: str, known: int) -> Iterator[int]:
    """The schema versions that wait and are known. Each is a lane of its own: newer ones cost nothing."""
    row = tx.row("lane_version", type=job_type, below=known + 1)
    while row is not None:
        yield row["schema_version"]
        row = tx.row("lane_version", type=job_type, below=row["schema_version"])


def _candidates(tx: Tx, of: _Type, *, after: str, limit: int) -> list[_Candidate]:
    """The first `limit` claimable jobs of a type, priority by priority."""
    found: list[_Candidate] = []
    below = HIGHEST_PRIORITY + 1
    while len(found) < limit:
        top = tx.row("lane_priority", type=of.name, version=of.version, below=below)
        if top is None:
            break
        below = top["priority"]
        found += _of_priority(tx, of, below, after=after, limit=limit - len(found))
    return found


def _of_priority(tx: Tx, of: _Type, priority: int, *, after: str, limit: int) -> list[_Candidate]:
    """Jobs of one type and priority: the same share for each tenant, in rounds until enough are found."""
    found: list[_Candidate] = []
    # The lanes that may hold more, with the last job taken from each.
    lanes = dict.fromkeys(_tenants(tx, of, priority, after=after, limit=limit), 0)
    while lanes and len(found) < limit:
        share = -(-(limit - len(found)) // len(lanes))
        for tenant, last in list(lanes.items()):
            lane = tx.rows(
                "lane_jobs",
                type=of.name,
                version=of.version,
                priority=priority,
                tenant=tenant,
                after=last,
                limit=share,
                now=tx.now,
            )
            found += [_Candidate(priority, tenant <= after, tenant, row["seq"]) for row in lane]
            if len(lane) < share:
                del lanes[tenant]
            else:
                lanes[tenant] = lane[-1]["seq"]
    return found


def _tenants(tx: Tx, of: _Type, priority: int, *, after: str, limit: int) -> list[str]:
    """The tenants that have due jobs, beginning after the one served last, `limit` at most."""
    lane = {"type": of.name, "version": of.version, "priority": priority}
    tenants: list[str] = []
    row = tx.row("lane_tenant", **lane, after=after)
    while row is not None and len(tenants) < limit:
        tenants.append(row["tenant"])
        row = tx.row("lane_tenant", **lane, after=row["tenant"])
    row = tx.row("lane_first_tenant", **lane)
    while row is not None and row["tenant"] <= after and len(tenants) < limit:
        tenants.append(row["tenant"])
        row = tx.row("lane_tenant", **lane, after=row["tenant"])
    return tenants


def _in_order(found: Sequence[_Candidate]) -> list[_Candidate]:
    """By priority; within one, the first of every tenant, then the second of every tenant; then seq."""
    if len({candidate.tenant for candidate in found}) <= 1:
        return sorted(found, key=lambda candidate: (-candidate.priority, candidate.seq))
    served: defaultdict[tuple[int, str], int] = defaultdict(int)
    ranked = []
    for candidate in sorted(found, key=lambda candidate: candidate.seq):
        lane = (candidate.priority, candidate.tenant)
        ranked.append((-candidate.priority, served[lane], candidate))
        served[lane] += 1
    return [candidate for *_, candidate in sorted(ranked)]
