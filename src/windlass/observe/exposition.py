"""Metrics as families of values, made from counts, and as the text that Prometheus reads (version 0.0.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from windlass.job import Reason
from windlass.observe import names
from windlass.observe.metrics import (
    CLAIMS,
    COUNTED,
    ERRORS,
    FAILURES,
    OF_RELEASE,
    OF_TENANT,
    PLACE_RESTARTS,
    REFUSALS,
    RELEASE_RUN,
    REQUESTS,
    SERVICE_ENQUEUED,
    SERVICE_REQUESTS,
    STORE_ERRORS,
    Kind,
    Metric,
)
from windlass.store.access import ApiKey
from windlass.store.history import OTHER

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]


class Value(msgspec.Struct, frozen=True):
    """One line: what stands behind the metric's name, the labels, the value."""

    suffix: str
    labels: Labels
    value: float


class Family(msgspec.Struct, frozen=True):
    """A metric with all its values."""

    metric: Metric
    values: list[Value]


def family(metric: Metric, values: Iterable[tuple[Sequence[str], float]]) -> Family:
    """A counter or gauge; each value comes with its labels' values in the metric's order."""
    return Family(
        metric,
        [Value("", tuple(zip(metric.labels, labels, strict=True)), float(value)) for labels, value in values],
    )


def histogram(
    metric: Metric, bounds: Sequence[float], measured: Iterable[tuple[Sequence[str], Sequence[int], float]]
) -> Family:
    """A histogram: of each series its labels' values, how many fell into each bucket, and the sum."""
    values: list[Value] = []
    for named, buckets, total in measured:
        labels = tuple(zip(metric.labels, named, strict=True))
        count = 0
        for bound, number in zip((*map(_number, bounds), "+Inf"), buckets, strict=True):
            count += number
            values.append(Value("_bucket", (*labels, ("le", bound)), count))
        values += [Value("_sum", labels, total), Value("_count", labels, count)]
    return Family(metric, values)


def render(families: Iterable[Family]) -> str:
    """The whole text."""
    lines: list[str] = []
    for each in families:
        metric = each.metric
        lines += [f"# HELP {metric.name} {_escaped(metric.help)}", f"# TYPE {metric.name} {metric.kind}"]
        lines += [
            f"{metric.name}{value.suffix}{_labels(value.labels)} {_number(value.value)}"
            for value in each.values
        ]
    return "\n".join([*lines, ""])


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_quoted(value)}"' for name, value in labels) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


# --- counted -------------------------------------------------------------------------------------

# More types than this have their counts under the last label together: a scrape stays small.
MOST_TYPES = 200
# So many releases are shown, the newest, and as many more that run somewhere.
MOST_RELEASES = 5
# So many services, the first that were given an API key to produce with.
MOST_SERVICES = 50
# So many classes of errors of each type, and so many workers that were restarted: those with the most.
MOST_ERRORS = 20
MOST_WORKERS = 50
_CLAIMED = {
    "taken": names.CLAIM_TAKEN,
    "empty": names.CLAIM_EMPTY,
    "contended": names.CLAIM_CONTENDED,
    "failed": names.CLAIM_FAILED,
}
_PRODUCES = frozenset({"producer", "admin"})
_MILLION = 1_000_000
_RESULTS = (names.ACCEPTED, names.EXISTING, names.INVALID, names.REFUSED, names.BROKEN)
_MICROS = (names.RAN, names.WAITED)

Counts = Mapping[tuple[str, str], int]
_Held = Counter[tuple[str, str]]


class Shown:
    """Which values labels have: bounded, whatever there is."""

    def __init__(
        self,
        types: Sequence[str],
        releases: Sequence[str] = (),
        tenants: Sequence[str] = (),
        services: Sequence[str] = (),
    ) -> None:
        self._named = frozenset(types[:MOST_TYPES])
        self.types = [*types[:MOST_TYPES], *([OTHER] if len(types) > MOST_TYPES else [])]
        self.releases = tuple(releases[: 2 * MOST_RELEASES])
        self.tenants = (*tenants, OTHER) if tenants else ()
        self.services = (*services, OTHER) if services else ()

    def label(self, job_type: str) -> str:
        """A type's name, or for those beyond the bound one for all of them."""
        return job_type if not job_type or job_type in self._named else OTHER


def shown_services(keys: Iterable[ApiKey]) -> tuple[str, ...]:
    """Services that have labels: the oldest. No key is ever forgotten, so all servers agree, and for ever."""
    producing = [key for key in keys if not _PRODUCES.isdisjoint(key.roles) and key.name != OTHER]
    ordered = sorted(producing, key=lambda key: (key.created_at, key.id))
    return tuple(dict.fromkeys(key.name for key in ordered))[:MOST_SERVICES]


def counted(amounts: Counts, shown: Shown) -> list[Family]:
    """Counters and histograms, of every type, from what was counted ever or in a stretch of time."""
    held: _Held = Counter()
    for (job_type, name), value in amounts.items():
        held[shown.label(job_type), name] += value
    failures = (
        ((job_type, reason.value), held[job_type, names.failed_because(reason)])
        for job_type in shown.types
        for reason in Reason
    )
    return [
        *(_counted(metric, held, shown.types) for metric in COUNTED),
        family(CLAIMS, [((result,), held["", name]) for result, name in _CLAIMED.items()]),
        family(FAILURES, failures),
        _errors(held, shown),
        _store_errors(held),
        _place_restarts(held),
        family(REQUESTS, (((result,), held["", result]) for result in _RESULTS)),
        _refusals(held),
        *(_of_release(metric, held, shown) for metric in OF_RELEASE),
        _release_runs(held, shown),
        *_of_services(held, shown),
        *(_of_tenant(metric, held, shown) for metric in OF_TENANT),
    ]


def _counted(metric: Metric, held: _Held, types: Sequence[str]) -> Family:
    of = [(name,) for name in types] if metric.labels else [()]
    if metric.kind is Kind.HISTOGRAM:
        return _histogram(metric, held, of)
    name = metric.counted or ""
    return family(metric, [(labels, held["".join(labels), name]) for labels in of])


def _histogram(metric: Metric, held: _Held, of: Sequence[tuple[str, ...]]) -> Family:
    measure = metric.counted or ""
    return histogram(
        metric,
        names.BOUNDS[measure],
        [(labels, *_measures(held, "".join(labels), measure, measure)) for labels in of],
    )


def _measures(held: _Held, job_type: str, measure: str, name: str) -> tuple[list[int], float]:
    """The buckets and the sum of what was measured, under its name or under that of a release."""
    buckets = [held[job_type, names.bucket(name, number)] for number in range(len(names.BOUNDS[measure]) + 1)]
    return buckets, held[job_type, names.total(name)] / _MILLION


def _errors(held: _Held, shown: Shown) -> Family:
    """Those that are not among the commonest are left out: were they added up, that sum could fall."""
    found: dict[str, list[tuple[int, str]]] = {}
    for (job_type, name), value in held.items():
        if value and (error := names.error_of(name)) is not None:
            found.setdefault(job_type, []).append((-value, error))
    return family(
        ERRORS,
        [
            ((job_type, error), -value)
            for job_type in shown.types
            for value, error in sorted(found.get(job_type, ()))[:MOST_ERRORS]
        ],
    )


def _store_errors(held: _Held) -> Family:
    found = ((names.store_error_of(name), value) for (job_type, name), value in held.items() if not job_type)
    return family(STORE_ERRORS, sorted((of, value) for of, value in found if of is not None))


def _place_restarts(held: _Held) -> Family:
    found = [
        (-value, worker)
        for (job_type, name), value in held.items()
        if not job_type and value and (worker := names.restarted_of(name)) is not None
    ]
    most = sorted(found)[:MOST_WORKERS]
    return family(PLACE_RESTARTS, sorted(((worker,), -value) for value, worker in most))


def _refusals(held: _Held) -> Family:
    """Those that there were: the routes are the server's, and few."""
    found = ((names.answer_of(name), value) for (job_type, name), value in held.items() if not job_type)
    return family(REFUSALS, sorted((of, value) for of, value in found if of is not None))


def _of_services(held: _Held, shown: Shown) -> tuple[Family, Family]:
    def count(service: str, name: str) -> int:
        return held["", names.of_service(service, name)]

    requests = (
        ((service, result), count(service, result)) for service in shown.services for result in _RESULTS
    )
    enqueued = (((service,), count(service, names.ENQUEUED)) for service in shown.services)
    return family(SERVICE_ENQUEUED, enqueued), family(SERVICE_REQUESTS, requests)


def _of_release(metric: Metric, held: _Held, shown: Shown) -> Family:
    """Of each release those types alone of which it ran anything."""
    name = metric.counted or ""
    return family(
        metric,
        [
            ((job_type, version), _value(name, held[job_type, names.of_release(version, name)]))
            for job_type in shown.types
            for version in shown.releases
            if held[job_type, names.of_release(version, names.ATTEMPTS)]
        ],
    )


def _release_runs(held: _Held, shown: Shown) -> Family:
    found: list[tuple[tuple[str, ...], list[int], float]] = []
    for job_type in shown.types:
        for version in shown.releases:
            buckets, _ = _measures(held, job_type, names.RUN, names.of_release(version, names.RUN))
            ran = held[job_type, names.of_release(version, names.RAN)] / _MILLION
            if sum(buckets):
                found.append(((job_type, version), buckets, ran))
    return histogram(RELEASE_RUN, names.SECONDS, found)


def _of_tenant(metric: Metric, held: _Held, shown: Shown) -> Family:
    name = metric.counted or ""
    return family(
        metric,
        [((tenant,), _value(name, held["", names.of_tenant(tenant, name)])) for tenant in shown.tenants],
    )


def _value(name: str, value: int) -> float:
    return value / _MILLION if name in _MICROS else value
