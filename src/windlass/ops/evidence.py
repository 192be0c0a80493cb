"""Why do a type's jobs fail? A few of the newest failures tell; no more are read, however many jobs wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from windlass.job import Job, JobState, View
from windlass.ops.findings import findings
from windlass.ops.overview import Overview
from windlass.ops.verdict import MOST_SAMPLED, SAMPLE, SEVERAL, Failures, verdict, worth_a_sample
from windlass.store.protocol import Filter

if TYPE_CHECKING:
    from windlass.ops.signals import Signals
    from windlass.store.protocol import Store


def judged(seen: Overview, store: Store, signals: Signals) -> Overview:
    """One look at everything, with the verdict."""
    wanted = worth_a_sample(seen.types)
    newest = store.failures(limit=MOST_SAMPLED * SAMPLE) if wanted else []
    failures = {name: _failures(seen, store, name, newest) for name in wanted}
    told = verdict(seen.now, seen.types, seen.fleet, failures, tuple(findings(signals)))
    return structs.replace(seen, verdict=told)


def _failures(seen: Overview, store: Store, name: str, newest: Sequence[Job]) -> Failures:
    [counts] = [each.counts for each in seen.types if each.name == name]
    mine = [job for job in newest if job.type == name]
    retrying = [job for job in mine if job.view(seen.now) is View.RETRYING]
    dead = [job for job in mine if job.state is JobState.DEAD]
    # Others may fail so much faster that none of this type's failures is among the newest.
    if len(retrying) < min(SEVERAL, counts[View.RETRYING]) and counts[View.DUE] <= _FEW_ENOUGH:
        retrying = list(store.find(Filter(types=(name,), view=View.RETRYING), limit=SAMPLE).jobs)
    if len(dead) < min(SEVERAL, counts[JobState.DEAD]):
        dead = list(store.find(Filter(types=(name,), states=(JobState.DEAD,)), limit=SAMPLE).jobs)
    return Failures(retrying=retrying[:SAMPLE], dead=dead[:SAMPLE])


# Those of one type are searched for behind its due jobs, and this is done every second.
_FEW_ENOUGH = 50_000
