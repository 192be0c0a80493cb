"""What do the metrics say at this moment? Facts from the store, then families from facts, which is pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from windlass import settings
from windlass.job import JobState, TypeInfo, View
from windlass.observe import metrics, names
from windlass.observe.exposition import (
    MOST_RELEASES,
    MOST_TYPES,
    Counts,
    Family,
    Shown,
    counted,
    family,
    shown_services,
)
from windlass.observe.fleet import Load, ScaleTargets, after_cooldown, desired, seen
from windlass.observe.metrics import Metric
from windlass.policy import limit_from
from windlass.settings import KEY, Settings
from windlass.store.fleet import WorkerInfo
from windlass.store.flow import Switches
from windlass.store.history import LENGTH, OTHER, Past, Release, Step
from windlass.store.oncall import Sighting
from windlass.store.samples import PENDING, POISON, Sample, Standing
from windlass.store.store import Store

_MILLION = 1_000_000
# The stretch by which it is judged how fast jobs come in, and how long they take.
RATES = timedelta(minutes=10)
# The stretch in which it is judged whether a depth goes up and down.
SWINGS_WITHIN = timedelta(minutes=30)
_SWING = 100
_USUAL_SLOTS = 10
_MOST_VERSIONS = 20
_MOST_POOLS = 50


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that is read for one scrape; nothing of it grows with the jobs that there are."""

    now: datetime
    totals: Counts
    lately: Counts
    # Step by step, as far as a cool-down looks back.
    step: Step
    past: list[Past]
    sample: Sample
    workers: list[WorkerInfo]
    switches: Switches
    types: Mapping[str, TypeInfo]
    settings: Settings
    oldest_record: datetime | None
    sighting: Sighting
    # The newest first.
    releases: list[Release]
    # Those that have labels.
    services: tuple[str, ...]
    # How many jobs were due in each of the last minutes, by type.
    dues: Mapping[str, Sequence[int]]


def read_facts(store: Store) -> Facts:
    """Ask the store."""
    now, held = store.now(), settings.read(store.settings())
    cooldown = scale_targets(held).cooldown
    # A day of minutes would make every scrape slow.
    step = Step.MINUTE if cooldown <= LENGTH[Step.HOUR] else Step.HOUR
    return Facts(
        now=now,
        totals=store.totals(),
        lately=store.increases([RATES])[RATES],
        step=step,
        past=store.history(step, now - cooldown, now),
        sample=store.sample(),
        workers=store.workers(),
        switches=store.switches(),
        types=store.types(),
        settings=held,
        oldest_record=store.oldest_record(),
        sighting=store.sight(RATES),
        releases=store.releases(),
        services=shown_services(store.api_keys()),
        dues=store.gauges(names.DUE, SWINGS_WITHIN),
    )


def families(facts: Facts) -> list[Family]:
    """Everything that a server exports."""
    labels = shown(facts)
    return [
        *counted(facts.totals, labels),
        *_standing(facts, labels),
        *_tenants(facts, labels),
        *_fleet(facts, labels),
        *_flow(facts, labels),
        *_archive(facts),
        *_signals(facts, labels),
        family(metrics.DESIRED, [((), desired_workers(facts))]),
        family(metrics.STORE_UP, [((), 1)]),
    ]


def away() -> list[Family]:
    """All that can be said while the store does not answer."""
    return [family(metrics.STORE_UP, [((), 0)])]


def known_types(facts: Facts) -> list[str]:
    """Every type of which anything is known, by name."""
    found = {
        *facts.types,
        *(each.type for each in facts.sample.standing),
        *(name for name, _ in facts.totals),
    }
    return sorted(found - {""})


def shown(facts: Facts) -> Shown:
    """Which types, releases, tenants and services have labels."""
    tenants = facts.settings.value(settings.TENANTS) or ()
    return Shown(known_types(facts), shown_releases(facts), tenants, facts.services)


def shown_releases(facts: Facts) -> list[str]:
    """The newest, and those that run somewhere: a fleet may have gone back to an old one."""
    known = [release.version for release in facts.releases]
    running = {worker.app for worker in seen(facts.workers, facts.now).alive}
    return known[:MOST_RELEASES] + [each for each in known[MOST_RELEASES:] if each in running]


# --- how things stand ---------------------------------------------------------------------------


def _standing(facts: Facts, types: Shown) -> list[Family]:
    sample = facts.sample
    depth: Counter[tuple[str, str, str]] = Counter()
    oldest: dict[tuple[str, str], float] = {}
    due: Counter[str] = Counter(dict.fromkeys(types.types, 0))
    for each in sample.standing:
        if each.view == View.DUE:
            due[types.label(each.type)] += each.count
        if each.view in PENDING:
            depth[types.label(each.type), str(each.priority), each.view] += each.count
        if each.view == View.DUE and each.oldest is not None:
            of = (types.label(each.type), str(each.priority))
            oldest[of] = max(oldest.get(of, 0.0), each.oldest.total_seconds())
    for name in types.types:
        # A type of which nothing waits says so: a series that is not there fires no alert, and clears none.
        depth[name, _USUAL_PRIORITY, View.DUE.value] += 0
    return [
        family(metrics.QUEUE_DEPTH, sorted(depth.items())),
        family(metrics.QUEUE_DUE, [((name,), count) for name, count in sorted(due.items())]),
        _swings(facts, types),
        family(metrics.OLDEST_DUE, sorted(oldest.items())),
        _by_type(metrics.PROCESSING, sample.standing, types, _RUNNING, _count),
        _by_type(metrics.STUCK, sample.standing, types, (View.STUCK,), _count),
        _unreadable(facts, types),
        _by_type(metrics.DLQ_DEPTH, sample.standing, types, (JobState.DEAD,), _count),
        _by_type(metrics.DLQ_OLDEST, sample.standing, types, (JobState.DEAD,), _age, fold=max),
        _by_type(metrics.DLQ_POISON, sample.standing, types, (POISON,), _count),
        family(metrics.SAMPLE_AGE, _known(sample.age)),
        family(metrics.SAMPLE_TIME, _known(sample.took)),
    ]


def _unreadable(facts: Facts, types: Shown) -> Family:
    """Of this very moment: a sample does not know which workers are alive."""
    alive = seen(facts.workers, facts.now).alive
    found: Counter[str] = Counter(dict.fromkeys(types.types, 0))
    for each in facts.sighting.unread:
        if each.for_none_of(alive):
            found[types.label(each.type)] += each.count
    return family(metrics.UNREADABLE, [((name,), count) for name, count in sorted(found.items())])


def _swings(facts: Facts, types: Shown) -> Family:
    found: dict[str, int] = dict.fromkeys(types.types, 0)
    for name, depths in facts.dues.items():
        label = types.label(name)
        found[label] = max(found.get(label, 0), swings(depths))
    return family(metrics.SWINGS, [((name,), count) for name, count in sorted(found.items())])


def swings(depths: Sequence[int]) -> int:
    """How often a depth turned, after it had changed by a hundred and by a quarter of its maximum."""
    if not depths:
        return 0
    least = max(_SWING, max(depths) / 4)
    turns, low, high, rising = 0, depths[0], depths[0], None
    for depth in depths:
        low, high = min(low, depth), max(high, depth)
        if rising is not True and depth - low >= least:
            turns += rising is False
            rising, high = True, depth
        elif rising is not False and high - depth >= least:
            turns += rising is True
            rising, low = False, depth
    return turns


def _by_type(
    metric: Metric,
    standing: Iterable[Standing],
    types: Shown,
    views: Sequence[str],
    value: Callable[[Standing], float],
    *,
    fold: Callable[[list[float]], float] = sum,
) -> Family:
    found: dict[str, list[float]] = {name: [0.0] for name in types.types}
    for each in standing:
        if each.view in views:
            found.setdefault(types.label(each.type), [0.0]).append(value(each))
    return family(metric, [((name,), fold(values)) for name, values in sorted(found.items())])


def _count(each: Standing) -> float:
    return each.count


def _age(each: Standing) -> float:
    return each.oldest.total_seconds() if each.oldest is not None else 0.0


def _known(span: timedelta | None) -> list[tuple[tuple[str, ...], float]]:
    return [] if span is None else [((), span.total_seconds())]


def _tenants(facts: Facts, labels: Shown) -> list[Family]:
    """Where the jobs of those tenants stand that operators name, and of all others together."""
    jobs: Counter[tuple[str, str]] = Counter({(tenant, View.DUE.value): 0 for tenant in labels.tenants})
    oldest: dict[str, float] = dict.fromkeys(labels.tenants, 0.0)
    for each in facts.sample.tenants:
        if each.tenant in labels.tenants:
            jobs[each.tenant, each.view] += each.count
            if each.view == View.DUE and each.oldest is not None:
                oldest[each.tenant] = max(oldest[each.tenant], each.oldest.total_seconds())
    return [
        family(metrics.TENANT_JOBS, sorted(jobs.items())),
        family(metrics.TENANT_OLDEST, [((name,), age) for name, age in sorted(oldest.items())]),
    ]


def _fleet(facts: Facts, types: Shown) -> list[Family]:
    fleet = seen(facts.workers, facts.now)
    versions = _bounded(Counter(worker.app or worker.version for worker in fleet.alive), _MOST_VERSIONS)
    slots = {
        "all": sum(worker.slots for worker in fleet.alive),
        "busy": sum(worker.busy for worker in fleet.alive),
        "held": sum(worker.held for worker in fleet.alive),
    }
    serving: Counter[str] = Counter(dict.fromkeys(types.types, 0))
    for name in known_types(facts):
        serving[types.label(name)] += fleet.serving(name)
    return [
        family(metrics.WORKERS, [((state,), count) for state, count in fleet.states.items()]),
        family(metrics.VERSIONS, [((version,), count) for version, count in sorted(versions.items())]),
        family(metrics.NEWEST, [((each,), int(not place)) for place, each in enumerate(types.releases)]),
        *_pools(fleet.alive),
        family(metrics.SLOTS, [((state,), count) for state, count in slots.items()]),
        family(metrics.SERVING, [((name,), count) for name, count in sorted(serving.items())]),
    ]


def _pools(alive: Sequence[WorkerInfo]) -> tuple[Family, Family]:
    """How many workers have each pool, and how much of it is taken; a worker has one or more."""
    workers = Counter(name for worker in alive for name in worker.pools)
    shown = _bounded(workers, _MOST_POOLS)
    slots: Counter[tuple[str, str]] = Counter()
    for worker in alive:
        for name, pool in worker.pools.items():
            label = name if name in shown else OTHER
            for state, count in (("all", pool.slots), ("busy", pool.busy), ("held", pool.held)):
                slots[label, state] += count
    return (
        family(metrics.POOL_WORKERS, [((name,), count) for name, count in sorted(shown.items())]),
        family(metrics.POOL_SLOTS, sorted(slots.items())),
    )


def _bounded(found: Counter[str], most: int) -> Counter[str]:
    """The commonest; a fleet in which each worker says something else must not fill a Prometheus."""
    kept = Counter(dict(sorted(found.items(), key=_commonest_first)[:most]))
    rest = found.total() - kept.total()
    return kept + Counter({OTHER: rest})


def _commonest_first(each: tuple[str, int]) -> tuple[int, str]:
    name, count = each
    # Of those that are as common the same ones with every scrape.
    return -count, name


def _flow(facts: Facts, types: Shown) -> list[Family]:
    paused: dict[str, int] = dict.fromkeys(types.types, 0)
    for name in facts.switches.pauses:
        paused[types.label(name)] = 1
    breakers = [((name,), int(each.open)) for name, each in sorted(facts.switches.breakers.items())]
    return [
        family(metrics.PAUSED, [((name,), value) for name, value in sorted(paused.items())]),
        family(metrics.BREAKER, breakers[:MOST_TYPES]),
    ]


def _archive(facts: Facts) -> list[Family]:
    age = None if facts.oldest_record is None else max(timedelta(0), facts.now - facts.oldest_record)
    return [
        family(metrics.ARCHIVE_AGE, _known(age)),
        family(metrics.ARCHIVE_KEPT, _known(facts.settings.keep_ended)),
    ]


def _signals(facts: Facts, types: Shown) -> list[Family]:
    """When upkeep last succeeded, and what is still to be verified."""
    waiting: Counter[str] = Counter()
    for each in facts.sighting.verdicts:
        waiting[types.label(each.type)] += each.waiting
    ages = [
        ((name,), max(0.0, (facts.now - at).total_seconds()))
        for name, at in sorted(facts.sighting.ticks.items())
    ]
    counts = [((name,), float(count)) for name, count in sorted(waiting.items())]
    return [family(metrics.TICK_AGE, ages), family(metrics.CHECKS_WAITING, counts)]


# --- how many workers it takes ------------------------------------------------------------------


def scale_targets(held: Settings) -> ScaleTargets:
    """What operators want of the number of workers."""
    return ScaleTargets(
        target=held.value("autoscale.target"),
        least=held.value("autoscale.least"),
        most=held.value("autoscale.most"),
        cooldown=held.value("autoscale.cooldown"),
    )


def desired_workers(facts: Facts) -> int:
    """With the cool-down: the most that any of the last minutes asked for."""
    targets, slots = scale_targets(facts.settings), slots_of(facts)
    before = [desired(loads, slots, targets) for loads in _loads_before(facts)]
    return after_cooldown(desired(loads_now(facts), slots, targets), before)


def slots_of(facts: Facts) -> int:
    """What one worker can run at once: as those that are alive can."""
    alive = seen(facts.workers, facts.now).alive
    return max(1, round(sum(worker.slots for worker in alive) / len(alive))) if alive else _USUAL_SLOTS


def alive(facts: Facts) -> int:
    """How many workers there are."""
    return len(seen(facts.workers, facts.now).alive)


def loads_now(facts: Facts) -> list[Load]:
    """What each type asks for, as of the last look."""
    waiting: Counter[str] = Counter()
    running: Counter[str] = Counter()
    for each in facts.sample.standing:
        if each.view == View.DUE:
            waiting[each.type] += each.count
        elif each.view in _RUNNING:
            running[each.type] += each.count
    seconds = RATES.total_seconds()
    return [
        Load(
            type=name,
            waiting=waiting[name],
            running=running[name],
            arrivals=facts.lately.get((name, names.ENQUEUED), 0) / seconds,
            service=_service(facts, name),
            limit=_limit(facts, name),
        )
        for name in known_types(facts)
        if not _held_back(facts, name)
    ]


def _loads_before(facts: Facts) -> list[list[Load]]:
    """The same for each step of the cool-down that is over, from history."""
    steps: dict[datetime, dict[str, Counter[str]]] = {}
    seconds = LENGTH[facts.step].total_seconds()
    for each in facts.past:
        steps.setdefault(each.at, {}).setdefault(each.type, Counter())[each.name] = each.value
    return [
        [
            Load(
                type=name,
                waiting=counts[names.DEPTH] if counts[names.OLDEST] else 0,
                arrivals=counts[names.ENQUEUED] / seconds,
                service=_service(facts, name),
                limit=_limit(facts, name),
            )
            for name, counts in types.items()
            if name and not _held_back(facts, name)
        ]
        for _, types in sorted(steps.items())[:-1]
    ]


def _service(facts: Facts, job_type: str) -> float:
    """How long a job of that type takes: lately, else ever."""
    for counts in (facts.lately, facts.totals):
        started = counts.get((job_type, names.STARTED), 0)
        if started:
            return counts.get((job_type, names.total(names.RUN)), 0) / _MILLION / started
    return 0.0


def _limit(facts: Facts, job_type: str) -> int | None:
    info = facts.types.get(job_type)
    return facts.settings.limit(job_type, limit_from(info.options) if info else None).concurrency


def _held_back(facts: Facts, job_type: str) -> bool:
    """Whether more workers would start no more of them, but only wait for a dependency that is down."""
    info = facts.types.get(job_type)
    key = info.options.get("limit_key") if info else None
    breaker = facts.switches.breakers.get(KEY + key if key else job_type)
    return job_type in facts.switches.pauses or (breaker is not None and breaker.open)


_RUNNING = (JobState.PROCESSING, View.STUCK)
_USUAL_PRIORITY = "5"
