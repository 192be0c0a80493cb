"""What do the metrics say at this moment? Facts from the store, then families from facts, which is pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from windlass import settings
from windlass.job import JobState, TypeInfo, View
from windlass.observe import names
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
from windlass.observe.fleet import Load, ScaleTargets, Seen, desired, seen
from windlass.policy import limit_from
from windlass.settings import KEY, Settings
from windlass.store.fleet import WorkerInfo
from windlass.store.flow import Switches
from windlass.store.history import LENGTH, OTHER, Past, Release, Step
from windlass.store.oncall import Sighting
from windlass.store.samples import PENDING, POISON, Sample
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
    fleet: Seen
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
        fleet=seen(store.workers(), now),
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
        *_upkeep(facts, labels),
        family("windlass_desired_workers", [((), desired_workers(facts))]),
        family("windlass_store_up", [((), 1)]),
    ]


def away() -> list[Family]:
    """All that can be said while the store does not answer."""
    return [family("windlass_store_up", [((), 0)])]


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
    running = {worker.app for worker in facts.fleet.alive}
    return known[:MOST_RELEASES] + [each for each in known[MOST_RELEASES:] if each in running]


# --- how things stand ---------------------------------------------------------------------------


def _standing(facts: Facts, types: Shown) -> list[Family]:
    sample = facts.sample
    # A type of which nothing waits says so: a series that is not there fires no alert, and clears none.
    depth = Counter({(name, _USUAL_PRIORITY, View.DUE.value): 0 for name in types.types})
    oldest: dict[tuple[str, str], float] = {}
    for each in sample.standing:
        of = (types.label(each.type), str(each.priority))
        if each.view in PENDING:
            depth[*of, each.view] += each.count
        if each.view == View.DUE and each.oldest is not None:
            oldest[of] = max(oldest.get(of, 0.0), each.oldest.total_seconds())

    def counts(*views: str) -> list[tuple[str, float]]:
        return [(each.type, each.count) for each in sample.standing if each.view in views]

    # Of this very moment: a sample does not know which workers are alive.
    unread = (
        (each.type, each.count) for each in facts.sighting.unread if each.for_none_of(facts.fleet.alive)
    )
    ages = (
        (each.type, each.oldest.total_seconds())
        for each in sample.standing
        if each.view == JobState.DEAD and each.oldest is not None
    )
    turned = ((name, swings(depths)) for name, depths in facts.dues.items())
    return [
        family("windlass_queue_depth", sorted(depth.items())),
        _by_type("windlass_queue_due", types, counts(View.DUE)),
        _by_type("windlass_queue_swings", types, turned, max),
        family("windlass_oldest_due_age_seconds", sorted(oldest.items())),
        _by_type("windlass_jobs_processing", types, counts(*_RUNNING)),
        _by_type("windlass_jobs_stuck", types, counts(View.STUCK)),
        _by_type("windlass_jobs_unreadable", types, unread),
        _by_type("windlass_dlq_depth", types, counts(JobState.DEAD)),
        _by_type("windlass_dlq_oldest_age_seconds", types, ages, max),
        _by_type("windlass_dlq_poison", types, counts(POISON)),
        family("windlass_sample_age_seconds", _known(sample.age)),
        family("windlass_sample_duration_seconds", _known(sample.took)),
    ]


def _by_type(
    name: str, types: Shown, amounts: Iterable[tuple[str, float]], fold: Callable[[list[float]], float] = sum
) -> Family:
    """A value for every type, 0 if nothing is known of it."""
    found: dict[str, list[float]] = {label: [0.0] for label in types.types}
    for job_type, amount in amounts:
        found.setdefault(types.label(job_type), [0.0]).append(amount)
    return family(name, [((label,), fold(values)) for label, values in sorted(found.items())])


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
        family("windlass_tenant_jobs", sorted(jobs.items())),
        family("windlass_tenant_oldest_due_age_seconds", _sorted(oldest)),
    ]


def _fleet(facts: Facts, types: Shown) -> list[Family]:
    fleet = facts.fleet
    versions = _bounded(Counter(worker.app or worker.version for worker in fleet.alive), _MOST_VERSIONS)
    slots: Counter[str] = Counter({"all": 0, "busy": 0, "held": 0})
    for worker in fleet.alive:
        slots.update(all=worker.slots, busy=worker.busy, held=worker.held)
    newest = ((version, int(not place)) for place, version in enumerate(types.releases))
    serving = ((name, fleet.serving(name)) for name in known_types(facts))
    return [
        family("windlass_workers", [((state,), count) for state, count in fleet.states.items()]),
        family("windlass_workers_by_version", _sorted(versions)),
        family("windlass_release_newest", [((version,), is_newest) for version, is_newest in newest]),
        *_pools(fleet.alive),
        family("windlass_slots", [((state,), count) for state, count in slots.items()]),
        _by_type("windlass_type_workers", types, serving),
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
        family("windlass_pool_workers", _sorted(shown)),
        family("windlass_pool_slots", sorted(slots.items())),
    )


def _bounded(found: Counter[str], most: int) -> Counter[str]:
    """The commonest; a fleet in which each worker says something else must not fill a Prometheus."""
    # Of those that are as common the same ones with every scrape.
    kept = Counter(dict(sorted(found.items(), key=lambda each: (-each[1], each[0]))[:most]))
    return kept + Counter({OTHER: found.total() - kept.total()})


def _sorted(found: Mapping[str, float]) -> list[tuple[tuple[str], float]]:
    return [((name,), value) for name, value in sorted(found.items())]


def _upkeep(facts: Facts, types: Shown) -> list[Family]:
    """What is held back, how old the archive is, when upkeep last succeeded, and what is to be verified."""
    breakers = {name: int(each.open) for name, each in facts.switches.breakers.items()}
    age = None if facts.oldest_record is None else max(timedelta(0), facts.now - facts.oldest_record)
    ages = {name: max(0.0, (facts.now - at).total_seconds()) for name, at in facts.sighting.ticks.items()}
    waiting: Counter[str] = Counter()
    for each in facts.sighting.verdicts:
        waiting[types.label(each.type)] += each.waiting
    return [
        _by_type("windlass_type_paused", types, ((name, 1) for name in facts.switches.pauses), max),
        family("windlass_breaker_open", _sorted(breakers)[:MOST_TYPES]),
        family("windlass_archive_oldest_age_seconds", _known(age)),
        family("windlass_archive_kept_seconds", _known(facts.settings.keep_ended)),
        family("windlass_tick_age_seconds", _sorted(ages)),
        family("windlass_checks_waiting", _sorted(waiting)),
    ]


# --- how many workers it takes ------------------------------------------------------------------


def scale_targets(held: Settings) -> ScaleTargets:
    """What operators want of the number of workers."""
    return ScaleTargets(
        **{name: held.value(f"autoscale.{name}") for name in ("target", "least", "most", "cooldown")}
    )


def desired_workers(facts: Facts) -> int:
    """With the cool-down: the most that any of the last minutes asked for."""
    targets, slots = scale_targets(facts.settings), slots_of(facts)
    # More at once, fewer only if no moment of the cool-down asked for more.
    return max(desired(loads, slots, targets) for loads in (loads_now(facts), *_loads_before(facts)))


def slots_of(facts: Facts) -> int:
    """What one worker can run at once: as those that are alive can."""
    alive = facts.fleet.alive
    return max(1, round(sum(worker.slots for worker in alive) / len(alive))) if alive else _USUAL_SLOTS


def loads_now(facts: Facts) -> list[Load]:
    """What each type asks for, as of the last look."""
    waiting: Counter[str] = Counter()
    running: Counter[str] = Counter()
    for each in facts.sample.standing:
        if each.view == View.DUE:
            waiting[each.type] += each.count
        elif each.view in _RUNNING:
            running[each.type] += each.count
    return [
        _load(facts, name, RATES, facts.lately.get((name, names.ENQUEUED), 0), waiting[name], running[name])
        for name in known_types(facts)
        if not _held_back(facts, name)
    ]


def _loads_before(facts: Facts) -> list[list[Load]]:
    """The same for each step of the cool-down that is over, from history."""
    steps: dict[datetime, dict[str, Counter[str]]] = {}
    for each in facts.past:
        steps.setdefault(each.at, {}).setdefault(each.type, Counter())[each.name] = each.value
    length = LENGTH[facts.step]
    return [
        [
            _load(facts, name, length, of[names.ENQUEUED], of[names.DEPTH] if of[names.OLDEST] else 0)
            for name, of in types.items()
            if name and not _held_back(facts, name)
        ]
        for _, types in sorted(steps.items())[:-1]
    ]


def _load(facts: Facts, job_type: str, within: timedelta, came: int, waiting: int, running: int = 0) -> Load:
    info = facts.types.get(job_type)
    limit = facts.settings.limit(job_type, limit_from(info.options) if info else None).concurrency
    # How long a job takes: lately, else ever.
    service = 0.0
    for counts in (facts.totals, facts.lately):
        if started := counts.get((job_type, names.STARTED), 0):
            service = counts.get((job_type, names.total(names.RUN)), 0) / _MILLION / started
    return Load(
        type=job_type,
        waiting=waiting,
        running=running,
        arrivals=came / within.total_seconds(),
        service=service,
        limit=limit,
    )


def _held_back(facts: Facts, job_type: str) -> bool:
    """Whether more workers would start no more of them, but only wait for a dependency that is down."""
    info = facts.types.get(job_type)
    key = info.options.get("limit_key") if info else None
    breaker = facts.switches.breakers.get(KEY + key if key else job_type)
    return job_type in facts.switches.pauses or (breaker is not None and breaker.open)


_RUNNING = (JobState.PROCESSING, View.STUCK)
_USUAL_PRIORITY = "5"
