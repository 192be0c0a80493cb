"""Why do a type's jobs fail? The newest failures tell, whatever else waits; no more are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from windlass.job import Job, JobState, View
from windlass.observe import names
from windlass.ops.finding import Finding, in_a_line
from windlass.ops.overview import Overview
from windlass.ops.verdict import LATELY_DONE, Failures, verdict, worth_a_sample
from windlass.store.jobs import Filter
from windlass.store.store import Store

# So many failures are looked at, of all types together, and so many of a type that is not among them.
_NEWEST = 100
_OTHERS = 20
# Those of one type that are tried again are searched for behind its due jobs, and this is done every second.
_FEW_ENOUGH = 50_000


def judged(seen: Overview, store: Store, signalled: Sequence[Finding]) -> Overview:
    """One look at everything, with the verdict; of which signals and schedules tell of their own."""
    worst = worth_a_sample(seen.types)
    failures = _failures(seen, store, worst) if worst else {}
    told = verdict(seen.now, seen.types, seen.fleet, failures, signalled)
    lines = [in_a_line(each, seen.now) for each in told.findings]
    return structs.replace(seen, verdict=told, warnings=lines)


def _failures(seen: Overview, store: Store, worst: Sequence[str]) -> Mapping[str, Failures]:
    """By time and not by type: a few that fail among a million that wait are found at once."""
    newest, completed = store.failures(limit=_NEWEST), _completed(store)
    found: dict[str, list[Job]] = {}
    for job in newest:
        found.setdefault(job.type, []).append(job)
    for name in worst:
        # One that fails more than all others must not hide what they fail of.
        if name not in found:
            found[name] = _others(seen, store, name)
    return {
        name: Failures(
            retrying=[job for job in jobs if job.view(seen.now) is View.RETRYING],
            due=[job for job in jobs if job.view(seen.now) is View.DUE],
            dead=[job for job in jobs if job.state is JobState.DEAD],
            completed=completed.get(name, 0),
        )
        for name, jobs in found.items()
    }


def _others(seen: Overview, store: Store, name: str) -> list[Job]:
    [counts] = [each.counts for each in seen.types if each.name == name]
    wanted = [Filter(types=(name,), states=(JobState.DEAD,))] if counts[JobState.DEAD] else []
    if counts[View.RETRYING] and counts[View.DUE] <= _FEW_ENOUGH:
        wanted.append(Filter(types=(name,), view=View.RETRYING))
    return [job for where in wanted for job in store.find(where, limit=_OTHERS).jobs]


def _completed(store: Store) -> dict[str, int]:
    """How many jobs of each type went well lately."""
    happened = store.increases([LATELY_DONE])[LATELY_DONE]
    return {job_type: count for (job_type, name), count in happened.items() if name == names.COMPLETED}
