"""What can an operator see of what happened, what is wrong, and how many workers it takes?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import structs

from windlass.errors import StoreError, must_be
from windlass.job import DEFAULT_PRIORITY, LIVE, View
from windlass.observe import exposition, gather, names
from windlass.observe.alerts import RUNBOOK
from windlass.observe.exposition import MOST_RELEASES, Counts, shown_services
from windlass.observe.firing import Firing, StoreMeasures, first_noticed, holding, judge
from windlass.observe.fleet import desired, slots_for
from windlass.observe.history import Chart, average_ms, bounds, chart, most_types
from windlass.ops.actions import Action, Option, Verbs
from windlass.store.history import LOOKED, OTHER, Release, Step, counted_of_release
from windlass.store.jobs import Filter
from windlass.store.samples import Standing

if TYPE_CHECKING:
    from windlass.job import Job

_LAST_EVENTS = 10
_THOUSAND = 1_000
_UNKNOWN = datetime.max.replace(tzinfo=UTC)
# Beyond this nobody can say for how long a condition has held.
_WATCHED = timedelta(minutes=2)


class TypeTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What has happened to the jobs of one type, ever."""

    type: str
    enqueued: int
    started: int
    completed: int
    failed: int
    retried: int
    dead: int
    cancelled: int
    # On average, in milliseconds.
    wait_ms: float | None
    run_ms: float | None


class ReleaseOfType(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the attempts at one type's jobs that one release ran."""

    type: str
    attempts: int
    failed: int
    run_ms: float | None


class ReleaseTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What came of all attempts that one release ran, and by type, the one that fails most first."""

    version: str
    # When it was first heard of.
    first_at: datetime
    attempts: int
    failed: int
    run_ms: float | None
    types: list[ReleaseOfType]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What happened last to one of the newest jobs."""

    at: datetime
    event: str
    type: str
    job: str
    error: str | None = None


class ServiceTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What came over HTTP with the API keys of one service, ever and in the last ten minutes."""

    service: str
    enqueued: int
    enqueued_lately: int
    # Requests to enqueue that were answered with 429, and with 5xx.
    refused: int
    broken: int


class MetricsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Event counts, average durations and the last events; newest releases and services, if there are any."""

    now: datetime
    types: list[TypeTotals]
    releases: list[ReleaseTotals]
    # Who sent most lately first.
    services: list[ServiceTotals]
    events: list[Event]


class AlertDocument(msgspec.Struct, kw_only=True):
    """An alert whose condition holds."""

    name: str
    state: Literal["firing", "pending"]
    severity: Literal["page", "warning"]
    labels: dict[str, str]
    value: float | None
    since: datetime
    summary: str
    runbook: str


class AlertsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All that hold; `watched`: somebody has been looking, so it is known for how long."""

    now: datetime | None
    watched: bool
    alerts: list[AlertDocument]

    @property
    def firing(self) -> list[AlertDocument]:
        """Those that have held for long enough. If nobody was looking: all but those that cannot have."""
        return [each for each in self.alerts if each.state == "firing"]


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What one type asks for."""

    type: str
    waiting: int
    running: int
    arrivals_per_second: float
    service_seconds: float
    slots: float


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How many workers the load asks for, and why."""

    desired: int
    # Without the cool-down.
    now: int
    alive: int
    slots_per_worker: int
    target_seconds: float
    headroom: float
    least: int
    most: int
    cooldown_seconds: float
    types: list[Demand]


class ObservingVerbs(Verbs):
    """The verbs that only look."""

    def scrape(self) -> str:
        """All metrics as Prometheus reads them; also while the store is away, which is what they say then."""
        try:
            return exposition.render(gather.families(gather.read_facts(self.store)))
        except StoreError:
            return exposition.render(gather.away())

    @Action("GET metrics", operation="totals")
    def metrics(self) -> MetricsReport:
        """What has happened, by type, and the last events."""
        held: dict[str, Counter[str]] = {}
        totals = self.store.totals()
        for (job_type, name), value in totals.items():
            if job_type:
                held.setdefault(job_type, Counter())[name] = value
        return MetricsReport(
            now=self.store.now(),
            types=[
                TypeTotals(
                    type=name,
                    # Each is the name of its count, and of its field.
                    **{each: counts[each] for each in TypeTotals.__struct_fields__[1:-2]},
                    wait_ms=average_ms(counts, names.WAIT),
                    run_ms=average_ms(counts, names.RUN),
                )
                for name, counts in sorted(held.items())
            ],
            releases=[_release(each, held) for each in self.store.releases()[:MOST_RELEASES]],
            services=self._services(totals),
            events=_events(self.store.find(Filter(), limit=_LAST_EVENTS).jobs),
        )

    def _services(self, totals: Counts) -> list[ServiceTotals]:
        """Those that have sent anything."""
        services = (*shown_services(self.store.api_keys()), OTHER)
        lately = self.store.increases([gather.RATES])[gather.RATES]
        found = [_service(name, totals, lately) for name in services]
        sent = [each for each in found if each.enqueued or each.refused or each.broken]
        return sorted(sent, key=lambda each: (-each.enqueued_lately, -each.enqueued, each.service))

    @Action("GET stats/history", operation="history", command="")
    def history(
        self,
        *,
        step: Annotated[Step, Option("minute, hour or day; minute if left out")] = Step.MINUTE,
        since: Annotated[
            datetime | None,
            Option("ISO 8601; without it 3 hours, 2 days or 30 days before `to`, by the step", field="from"),
        ] = None,
        until: Annotated[datetime | None, Option("ISO 8601; without it now", field="to")] = None,
        types: Annotated[Sequence[str], Option("these types only; may be repeated", field="type")] = (),
    ) -> Chart:
        """What happened over time, a point for each step and type; without types of all of them."""
        since, until = bounds(step, since, until, self.store.now())
        most = most_types(step, since, until)
        if len(set(types)) > most:
            raise must_be("type", f"{len(set(types))} of them", f"at most {most} for so many {step.value}s")
        chosen = list(types) or self._busiest(most)
        rows = self.store.history(step, since, until, types=chosen)
        if not types and len(chosen) == most:
            # Added up by the store: however many there are, they are read as one.
            rows += self.store.history_of_others(step, since, until, types=chosen)
        return chart(step, since, until, rows)

    def _busiest(self, most: int) -> list[str]:
        """The types with the most jobs ever, so many at most."""
        came: Counter[str] = Counter()
        for (job_type, name), value in self.store.totals().items():
            if job_type:
                came[job_type] += value if name in (names.ENQUEUED, names.STARTED) else 0
        return [name for name, _ in came.most_common(most)]

    @Action("GET alerts", operation="alerts")
    def alerts(self) -> AlertsDocument:
        """Which alerts hold now, judged by the same expressions as in the rule file."""
        try:
            facts = self._as_of_now(gather.read_facts(self.store))
            held = holding(StoreMeasures(self.store, facts))
            before = self.store.noticed()
        except StoreError:
            # What can be said if the store does not answer.
            held = holding(StoreMeasures(None, None))
            away = [judge(first_noticed(of, value, _UNKNOWN), _UNKNOWN) for of, value in held.items()]
            return AlertsDocument(
                now=None, watched=False, alerts=[alert_document(each, fires=True) for each in away]
            )
        known = {(each.name, each.labels): each for each in before}
        watched = any(each.name == LOOKED and facts.now - each.seen_at <= _WATCHED for each in before)
        found = []
        for of, value in held.items():
            noticed = known.get(of) or first_noticed(of, value, facts.now)
            firing = judge(structs.replace(noticed, value=value), facts.now)
            firing = firing if watched else _unwatched(firing, facts)
            found.append(alert_document(firing, fires=firing.fires))
        return AlertsDocument(now=facts.now, watched=watched, alerts=found)

    def _as_of_now(self, facts: gather.Facts) -> gather.Facts:
        """Where jobs are now, without a sample: when somebody last took one is a fact of its own."""
        live = tuple(
            Standing(
                type=each.type,
                priority=DEFAULT_PRIORITY if each.priority is None else each.priority,
                view=each.view or each.state,
                count=each.count,
                oldest=each.oldest,
            )
            for each in (self.counts or self.store.counts)().counts
            if each.state in LIVE
        )
        sample = structs.replace(facts.sample, standing=live).with_poison(self.store.poison())
        return structs.replace(facts, sample=sample)

    @Action("GET autoscale", operation="autoscale")
    def autoscale(self) -> Scale:
        """How many workers the load asks for."""
        facts = gather.read_facts(self.store)
        terms, slots = gather.scale_targets(facts.settings), gather.slots_of(facts)
        loads = gather.loads_now(facts)
        return Scale(
            desired=gather.desired_workers(facts),
            now=desired(loads, slots, terms),
            alive=len(facts.fleet.alive),
            slots_per_worker=slots,
            target_seconds=terms.target.total_seconds(),
            headroom=terms.headroom,
            least=terms.least,
            most=terms.most,
            cooldown_seconds=terms.cooldown.total_seconds(),
            types=[
                Demand(
                    type=load.type,
                    waiting=load.waiting,
                    running=load.running,
                    arrivals_per_second=round(load.arrivals, 3),
                    service_seconds=round(load.service, 6),
                    slots=round(slots_for(load, terms.target), 3),
                )
                for load in loads
            ],
        )


def alert_document(each: Firing, *, fires: bool) -> AlertDocument:
    """An alert for machines, and for webhooks."""
    return AlertDocument(
        name=each.alert.name,
        state="firing" if fires else "pending",
        severity=each.alert.severity.value,
        labels=dict(each.labels),
        value=each.value,
        since=each.since,
        summary=each.summary,
        runbook=f"{RUNBOOK}#{each.alert.anchor}",
    )


def _unwatched(firing: Firing, facts: gather.Facts) -> Firing:
    """What holds is taken to have held for long enough, unless the jobs that it is about came only now."""
    if not firing.alert.about_due:
        return structs.replace(firing, fires=True)
    of = firing.labels.get("type")
    ages = [
        each.oldest
        for each in facts.sample.standing
        if each.view == View.DUE and each.oldest is not None and of in (None, each.type)
    ]
    since = facts.now - max(ages, default=timedelta(0))
    return structs.replace(firing, since=since, fires=facts.now - since >= firing.alert.lasting)


def _service(service: str, totals: Counts, lately: Counts) -> ServiceTotals:
    def count(counts: Counts, name: str) -> int:
        return counts.get(("", names.of_service(service, name)), 0)

    return ServiceTotals(
        service=service,
        enqueued=count(totals, names.ENQUEUED),
        enqueued_lately=count(lately, names.ENQUEUED),
        refused=count(totals, names.REFUSED),
        broken=count(totals, names.BROKEN),
    )


def _release(release: Release, held: Mapping[str, Counter[str]]) -> ReleaseTotals:
    attempts, failed, ran, *_ = counted_of_release(release.version)
    types = [
        ReleaseOfType(
            type=name,
            attempts=counts[attempts],
            failed=counts[failed],
            run_ms=_mean_ms(counts[ran], counts[attempts]),
        )
        for name, counts in held.items()
        if counts[attempts]
    ]
    every = sum(each.attempts for each in types)
    return ReleaseTotals(
        version=release.version,
        first_at=release.first_at,
        attempts=every,
        failed=sum(each.failed for each in types),
        run_ms=_mean_ms(sum(counts[ran] for counts in held.values()), every),
        types=sorted(types, key=lambda each: (-each.failed / each.attempts, each.type)),
    )


def _mean_ms(micros: int, number: int) -> float | None:
    return round(micros / _THOUSAND / number, 3) if number else None


def _events(jobs: Sequence[Job]) -> list[Event]:
    """The last thing that is known of each."""
    found = []
    for job in sorted(jobs, key=lambda job: job.updated_at, reverse=True):
        event = {"processing": "started"}.get(job.state, job.state.value)
        if job.state == "pending":
            event = "failed, to be retried" if job.attempts else "enqueued"
        error = None if job.error is None else f"{job.error.reason.value}: {job.error.message}"
        found.append(Event(at=job.updated_at, event=event, type=job.type, job=job.id, error=error))
    return found
