"""Metrics as families of values, made from counts, and as the text that Prometheus reads (version 0.0.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from windlass.job import Reason
from windlass.observe import names
from windlass.observe.metrics import BY_NAME, COUNTED, OF_RELEASE, OF_TENANT, Kind, Metric
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


def family(name: str, values: Iterable[tuple[Sequence[str], float]]) -> Family:
    """A counter or gauge; each value comes with its labels' values in the metric's order."""
    metric = BY_NAME[name]
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
            f"{metric.name}{value.suffix}{_braced(value.labels)} {_number(value.value)}"
            for value in each.values
        ]
    return "\n".join([*lines, ""])


def _braced(labels: Labels) -> str:
    quoted = (name + '="' + _escaped(value).replace('"', r"\"") + '"' for name, value in labels)
    return "{" + ",".join(quoted) + "}" if labels else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


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
_PRODUCES = frozenset({"producer", "admin"})
_MILLION = 1_000_000
_CLAIMS = (names.CLAIM_TAKEN, names.CLAIM_EMPTY, names.CLAIM_CONTENDED, names.CLAIM_FAILED)
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
    requests = (
        ((service, result), held["", names.of_service(service, result)])
        for service in shown.services
        for result in _RESULTS
    )
    enqueued = (
        ((service,), held["", names.of_service(service, names.ENQUEUED)]) for service in shown.services
    )
    store_errors = ((rest.partition(".")[::2], value) for _, rest, value in _under(held, names.STORE_ERROR))
    refusals = ((rest.partition(".")[::-2], value) for _, rest, value in _under(held, names.ANSWERED))
    restarts = (((worker,), value) for _, worker, value in _most(_under(held, names.RESTARTED), MOST_WORKERS))
    return [
        *(_counted(metric, held, shown.types) for metric in COUNTED),
        family("windlass_claims_total", (((name.split(".")[1],), held["", name]) for name in _CLAIMS)),
        family("windlass_job_failures_total", failures),
        _errors(held, shown),
        family("windlass_store_errors_total", sorted(store_errors)),
        family("windlass_worker_place_restarts_total", sorted(restarts)),
        family("windlass_enqueue_requests_total", (((result,), held["", result]) for result in _RESULTS)),
        family("windlass_http_refusals_total", sorted(refusals)),
        *(_of_release(metric, held, shown) for metric in OF_RELEASE),
        family("windlass_service_enqueued_total", enqueued),
        family("windlass_service_requests_total", requests),
        *(_of_tenant(metric, held, shown) for metric in OF_TENANT),
    ]


def _counted(metric: Metric, held: _Held, types: Sequence[str]) -> Family:
    of = [(name,) for name in types] if metric.labels else [()]
    if metric.kind is Kind.HISTOGRAM:
        measured = [(labels, *_measures(held, "".join(labels), metric, metric.counted)) for labels in of]
        return histogram(metric, names.BOUNDS[metric.counted], measured)
    return family(metric.name, [(labels, held["".join(labels), metric.counted]) for labels in of])


def _measures(held: _Held, job_type: str, metric: Metric, name: str) -> tuple[list[int], float]:
    """The buckets and the sum of what was measured, under its name or under that of a release."""
    size = len(names.BOUNDS[metric.counted]) + 1
    buckets = [held[job_type, names.bucket(name, number)] for number in range(size)]
    return buckets, held[job_type, names.total(name)] / _MILLION


def _under(held: _Held, prefix: str) -> list[tuple[str, str, int]]:
    """What was counted under names that begin so: the type, the rest of the name, and the count."""
    return [
        (job_type, name.removeprefix(prefix), value)
        for (job_type, name), value in held.items()
        if name.startswith(prefix)
    ]


def _most(found: Iterable[tuple[str, str, int]], most: int) -> list[tuple[str, str, int]]:
    """Those with the largest counts; what was never counted is left out."""
    return sorted((each for each in found if each[2]), key=lambda each: (-each[2], each[1]))[:most]


def _errors(held: _Held, shown: Shown) -> Family:
    """Those that are not among the commonest are left out: were they added up, that sum could fall."""
    found: dict[str, list[tuple[str, str, int]]] = {}
    for each in _under(held, names.ERROR):
        found.setdefault(each[0], []).append(each)
    commonest = (_most(found.get(job_type, ()), MOST_ERRORS) for job_type in shown.types)
    return family(
        "windlass_job_errors_total",
        [((job_type, error), value) for of_type in commonest for job_type, error, value in of_type],
    )


def _of_release(metric: Metric, held: _Held, shown: Shown) -> Family:
    """Of each release those types alone of which it ran anything."""
    ran = [
        (job_type, version)
        for job_type in shown.types
        for version in shown.releases
        if held[job_type, names.of_release(version, names.ATTEMPTS)]
    ]
    if metric.kind is Kind.COUNTER:
        amounts = ((of, held[of[0], names.of_release(of[1], metric.counted)]) for of in ran)
        return family(metric.name, ((of, _value(metric, amount)) for of, amount in amounts))
    measured: list[tuple[tuple[str, ...], list[int], float]] = []
    for job_type, version in ran:
        buckets, _ = _measures(held, job_type, metric, names.of_release(version, metric.counted))
        if sum(buckets):
            total = held[job_type, names.of_release(version, names.RAN)] / _MILLION
            measured.append(((job_type, version), buckets, total))
    return histogram(metric, names.BOUNDS[metric.counted], measured)


def _of_tenant(metric: Metric, held: _Held, shown: Shown) -> Family:
    amounts = ((tenant, held["", names.of_tenant(tenant, metric.counted)]) for tenant in shown.tenants)
    return family(metric.name, (((tenant,), _value(metric, amount)) for tenant, amount in amounts))


def _value(metric: Metric, amount: int) -> float:
    return amount / _MILLION if metric.counted in _MICROS else amount
