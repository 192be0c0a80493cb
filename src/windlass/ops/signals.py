"""Which signals cannot lie about the jobs? Gathered here, once; metrics, dashboard and doctor show them.

A depth of 0 may hide jobs that nobody takes, a low age a starved priority, steady completions work that is
done twice, and "completed" an outcome that never came. Each of these is a field of `Signals`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from windlass.errors import StoreError
from windlass.job import JobState, View
from windlass.observe import names
from windlass.ops import findings
from windlass.ops.overview import SILENT_AFTER, Band, Overview, TypeStatus, WorkerHealth, serves
from windlass.ops.verdict import Finding
from windlass.store.oncall import Sighting, Stalled, Verdicts
from windlass.store.samples import PENDING, Sample, Standing
from windlass.store.store import Store
from windlass.upkeep import maintenance

# Where jobs stand is looked at by one process every few seconds; older than this is looked at anew.
LOOKED = timedelta(seconds=15)
STALE = timedelta(minutes=1)
WINDOW = timedelta(hours=1)
# So long may a job be due before somebody should have taken it.
TAKEN_WITHIN = timedelta(seconds=60)
# So often should each of these succeed, where anybody is there to do it.
WITHIN: dict[str, timedelta] = {
    "beat": SILENT_AFTER,
    maintenance.REAP: timedelta(seconds=90),
    maintenance.PROMOTE: timedelta(seconds=90),
    maintenance.SCHEDULE: timedelta(seconds=90),
    maintenance.PRUNE: timedelta(hours=1),
}


class Untaken(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of a type that have been due for long and of which none runs, and why that may be."""

    type: str
    count: int
    oldest: timedelta
    # One of: no_worker, paused, breaker, version, not_promoted, untaken.
    why: str


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """What went in and what came out, of one type, within `Signals.window`.

    Jobs are enqueued, completed and dead; attempts are started and failed.
    """

    type: str
    enqueued: int
    started: int
    completed: int
    failed: int
    dead: int
    # Work done twice: results that came when the job was another worker's, and attempts lost with theirs.
    late: int
    reaped: int


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the verification samples of a type, since the first one."""

    type: str
    # Taken and not checked yet, and by how much the oldest of them is behind its time.
    waiting: int
    overdue: timedelta | None
    matched: int
    mismatched: int
    # The check itself raised, again and again, or the job's record was gone.
    unknown: int
    last_mismatch_at: datetime | None = None
    last_mismatch_job: str | None = None


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """When something that must happen again and again last succeeded: beat, reap, promote and the like."""

    name: str
    # None: never, as far as this store knows.
    at: datetime | None
    age: timedelta | None
    within: timedelta
    # Longer ago, although somebody is there who should have done it.
    late: bool


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """All of them at one moment. `findings`: what of it the person on call should know."""

    now: datetime
    # How old the count of lanes is.
    counted: timedelta
    # The waiting jobs of one type and priority under one view, such as due or scheduled. `oldest` is how
    # long the first of them has been due; None for those whose time has not come.
    lanes: tuple[Standing, ...]
    bands: tuple[Band, ...]
    untaken: tuple[Untaken, ...]
    window: timedelta
    balances: tuple[Balance, ...]
    checked: tuple[Checked, ...]
    ticks: tuple[Tick, ...]
    findings: tuple[Finding, ...]


def gather(store: Store, seen: Overview, fleet: Sequence[WorkerHealth], *, anew: bool = True) -> Signals:
    """One look; what costs much is looked at by one process for all.

    Not `anew`: nothing is written, so that it can be asked of a store that is sealed, and only what findings
    need is read. Where jobs stand is then left out unless somebody has looked lately.
    """
    sighting = store.sight(TAKEN_WITHIN)
    if anew:
        # What has come in is counted with the sample.
        try:
            sample = store.take_sample(LOOKED)
        except StoreError:
            # Who may only read the store is shown what was last counted.
            sample = store.sample()
        return judge(sample, sighting, store.increases([WINDOW])[WINDOW], seen, fleet)
    sample = store.sample()
    lately = sample.age is not None and sample.age <= STALE
    return judge(sample if lately else Sample(), sighting, {}, seen, fleet)


def judge(
    sample: Sample,
    sighting: Sighting,
    happened: Mapping[tuple[str, str], int],
    seen: Overview,
    fleet: Sequence[WorkerHealth],
) -> Signals:
    """What the facts say. Pure."""
    bands = tuple(seen.bands)
    untaken = tuple(_untaken(sample.standing, sighting, seen.types, fleet))
    checked = tuple(_checked(each, sighting.now) for each in sighting.verdicts)
    beats = tuple(_ticks(sighting, fleet))
    return Signals(
        now=sighting.now,
        counted=sample.age or timedelta(0),
        lanes=tuple(_lane(each) for each in sample.standing if each.view in PENDING),
        bands=bands,
        untaken=untaken,
        window=WINDOW,
        balances=tuple(_balances(happened)),
        checked=checked,
        ticks=beats,
        findings=(
            *findings.of_ticks(beats),
            *findings.of_untaken(untaken, sighting.now),
            *findings.of_unread(sighting.unread, fleet),
            *findings.of_checks(checked, sighting.now),
            *findings.of_bands(bands, sighting.now),
            *findings.of_poison(sample.standing, sighting.now),
        ),
    )


# --- what waits ---------------------------------------------------------------------------------


def _lane(each: Standing) -> Standing:
    oldest = each.oldest if each.view == View.DUE else None
    return msgspec.structs.replace(each, oldest=oldest)


def _untaken(
    standing: Sequence[Standing],
    sighting: Sighting,
    types: Sequence[TypeStatus],
    fleet: Sequence[WorkerHealth],
) -> Iterator[Untaken]:
    """Types of which jobs are due for long and none runs; one that is merely behind has some that run."""
    running = {each.type for each in standing if each.view in (JobState.PROCESSING, View.STUCK)}
    known = {each.name: each for each in types}
    stalled = {each.type: each for each in sighting.stalled}
    waiting: dict[str, Untaken] = {}
    for each in standing:
        oldest = each.oldest or timedelta(0)
        if each.view == View.DUE and oldest >= TAKEN_WITHIN and each.type not in running:
            why = _why(each.type, known.get(each.type), stalled, fleet)
            so_far = waiting.get(each.type)
            count = each.count + (so_far.count if so_far else 0)
            longest = max(oldest, so_far.oldest) if so_far else oldest
            waiting[each.type] = Untaken(type=each.type, count=count, oldest=longest, why=why)
    for late in sighting.stalled:
        # Other than a lane these are seen at this very moment.
        if late.type not in waiting:
            why = _why(late.type, known.get(late.type), stalled, fleet)
            oldest = sighting.now - late.since
            waiting[late.type] = Untaken(type=late.type, count=late.count, oldest=oldest, why=why)
    yield from (waiting[name] for name in sorted(waiting))


def _why(
    name: str, status: TypeStatus | None, stalled: Mapping[str, Stalled], fleet: Sequence[WorkerHealth]
) -> str:
    if not any(worker.alive and serves(worker.info, name) for worker in fleet):
        return "no_worker"
    if status is not None and status.paused is not None:
        return "paused"
    if status is not None and status.breaker is not None and status.breaker.open:
        return "breaker"
    if status is not None and status.too_new is not None:
        return "version"
    return "not_promoted" if name in stalled else "untaken"


# --- what happened ------------------------------------------------------------------------------


def _balances(happened: Mapping[tuple[str, str], int]) -> Iterator[Balance]:
    for name in sorted({job_type for job_type, _ in happened if job_type}):
        told = {which: happened.get((name, which), 0) for which in _BALANCED}
        if any(told.values()):
            yield Balance(type=name, **told)


_BALANCED = (
    names.ENQUEUED,
    names.STARTED,
    names.COMPLETED,
    names.FAILED,
    names.DEAD,
    names.LATE,
    names.REAPED,
)


def _checked(each: Verdicts, now: datetime) -> Checked:
    behind = None if each.since is None else max(timedelta(0), now - each.since)
    return Checked(
        type=each.type,
        waiting=each.waiting,
        overdue=behind,
        matched=each.matched,
        mismatched=each.mismatched,
        unknown=each.unknown,
        last_mismatch_at=each.mismatch_at,
        last_mismatch_job=each.mismatch_job,
    )


def _ticks(sighting: Sighting, fleet: Sequence[WorkerHealth]) -> Iterator[Tick]:
    alive = [worker for worker in fleet if worker.alive]
    beats = [worker.info.beat_at for worker in fleet if worker.info.beat_at is not None]
    moments = {"beat": max(beats)} if beats else {}
    started = [worker.info.started_at for worker in alive if worker.info.started_at is not None]
    for name, within in WITHIN.items():
        at = sighting.ticks.get(name) or moments.get(name)
        # A clock may have been set back.
        age = None if at is None else max(timedelta(0), sighting.now - at)
        there = any(sighting.now - each > within for each in started)
        yield Tick(
            name=name,
            at=at,
            age=age,
            within=within,
            late=there and (age is None or age > within),
        )
