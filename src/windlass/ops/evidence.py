"""Why do a type's jobs fail? A few of the newest failures of the worst types tell; no more are read."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from windlass.job import JobState, View
from windlass.ops.overview import Overview, TypeStatus
from windlass.ops.verdict import SAMPLE, Failures, verdict, worth_a_sample
from windlass.store.protocol import Filter, Operating


def judged(seen: Overview, store: Operating) -> Overview:
    """One look at everything, with the verdict."""
    failures = {name: _failures(store, name, seen.types) for name in worth_a_sample(seen.types)}
    return structs.replace(seen, verdict=verdict(seen.now, seen.types, seen.fleet, failures))


def _failures(store: Operating, name: str, types: Sequence[TypeStatus]) -> Failures:
    [counts] = [each.counts for each in types if each.name == name]
    retrying = Filter(types=(name,), view=View.RETRYING)
    dead = Filter(types=(name,), states=(JobState.DEAD,))
    # They would be searched for among all that wait, and this is done every second.
    found_soon = counts[View.RETRYING] and counts[View.DUE] <= _FEW_ENOUGH
    return Failures(
        retrying=store.find(retrying, limit=SAMPLE).jobs if found_soon else (),
        dead=store.find(dead, limit=SAMPLE).jobs if counts[JobState.DEAD] else (),
    )


# So many due jobs may have to be passed over until those that wait for another attempt are found.
_FEW_ENOUGH = 50_000
