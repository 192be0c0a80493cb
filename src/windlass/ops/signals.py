"""Which signals cannot lie about the jobs? Gathered here, once; metrics, dashboard and doctor show them.

A depth of 0 may hide jobs that nobody takes, a low age a starved priority, steady completions work that is
done twice, and "completed" an outcome that never came. Each of these is a field of `Signals`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import structs

from windlass.errors import StoreError
from windlass.job import JobState, View
from windlass.ops.overview import SILENT_AFTER, Band, Overview, TypeStatus, WorkerHealth
from windlass.ops.verdict import LATELY, Cause, Finding, finding
from windlass.ops.words import count, serve_type, span
from windlass.store.oncall import Sighting
from windlass.store.running import Unread
from windlass.store.samples import PENDING, POISON, POISON_REPLAYS, Sample, Standing
from windlass.store.store import Store
from windlass.upkeep import maintenance

# Where jobs stand is looked at by one process every few seconds; older than this is looked at anew.
LOOKED = timedelta(seconds=15)
STALE = timedelta(minutes=1)
WINDOW = timedelta(hours=1)
# So long may a job be due before somebody should have taken it.
TAKEN_WITHIN = timedelta(seconds=60)
# A check that is so much behind its time is not made by anybody.
CHECKED_WITHIN = timedelta(minutes=15)
# Somebody is warned of a mismatch for so long.
REMEMBERED = timedelta(days=1)
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
    need is read. Where jobs stand is then left out unless somebody has looked lately; poison is counted now.
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
    return judge((sample if lately else Sample()).with_poison(store.poison()), sighting, {}, seen, fleet)


def judge(
    sample: Sample,
    sighting: Sighting,
    happened: Mapping[tuple[str, str], int],
    seen: Overview,
    fleet: Sequence[WorkerHealth],
) -> Signals:
    """What the facts say. Pure."""
    now, bands = sighting.now, tuple(seen.bands)
    untaken = tuple(_untaken(sample.standing, sighting, seen.types, fleet))
    checked = tuple(
        Checked(
            **{name: getattr(each, name) for name in ("type", "waiting", "matched", "mismatched", "unknown")},
            overdue=None if each.since is None else max(timedelta(0), now - each.since),
            last_mismatch_at=each.mismatch_at,
            last_mismatch_job=each.mismatch_job,
        )
        for each in sighting.verdicts
    )
    ticks = tuple(_ticks(sighting, fleet))
    return Signals(
        now=now,
        counted=sample.age or timedelta(0),
        lanes=tuple(
            structs.replace(each, oldest=each.oldest if each.view == View.DUE else None)
            for each in sample.standing
            if each.view in PENDING
        ),
        bands=bands,
        untaken=untaken,
        window=WINDOW,
        balances=tuple(_balances(happened)),
        checked=checked,
        ticks=ticks,
        findings=(
            *_late_ticks(ticks),
            *_not_promoted(untaken, now),
            *_unreadable(sighting.unread, fleet),
            *_of_checks(checked, now),
            *_starved(bands, now),
            *_poison(sample.standing, now),
        ),
    )


def _untaken(
    depths: Sequence[Standing], sighting: Sighting, types: Sequence[TypeStatus], fleet: Sequence[WorkerHealth]
) -> Iterator[Untaken]:
    """Types of which jobs are due for long and none runs; one that is merely behind has some that run."""
    running = {each.type for each in depths if each.view in (JobState.PROCESSING, View.STUCK)}
    waiting: dict[str, tuple[int, timedelta]] = {}
    for each in depths:
        oldest = each.oldest or timedelta(0)
        if each.view == View.DUE and oldest >= TAKEN_WITHIN and each.type not in running:
            number, longest = waiting.get(each.type, (0, oldest))
            waiting[each.type] = number + each.count, max(oldest, longest)
    for late in sighting.stalled:
        # Other than a lane these are seen at this very moment.
        waiting.setdefault(late.type, (late.count, sighting.now - late.since))
    known = {each.name: each for each in types}
    stalled = {each.type for each in sighting.stalled}
    for name, (number, oldest) in sorted(waiting.items()):
        why = _why(name, known.get(name), fleet) or ("not_promoted" if name in stalled else "untaken")
        yield Untaken(type=name, count=number, oldest=oldest, why=why)


def _why(name: str, status: TypeStatus | None, fleet: Sequence[WorkerHealth]) -> str:
    """What keeps workers from the jobs of a type; empty: nothing that shows."""
    if not any(worker.alive and worker.info.serves(name) for worker in fleet):
        return "no_worker"
    if status is None:
        return ""
    if status.paused is not None:
        return "paused"
    if status.breaker is not None and status.breaker.open:
        return "breaker"
    return "" if status.too_new is None else "version"


def _balances(happened: Mapping[tuple[str, str], int]) -> Iterator[Balance]:
    for name in sorted({job_type for job_type, _ in happened if job_type}):
        shown = {which: happened.get((name, which), 0) for which in Balance.__struct_fields__[1:]}
        if any(shown.values()):
            yield Balance(type=name, **shown)


def _ticks(sighting: Sighting, fleet: Sequence[WorkerHealth]) -> Iterator[Tick]:
    beats = [worker.info.beat_at for worker in fleet if worker.info.beat_at is not None]
    moments = {"beat": max(beats)} if beats else {}
    started = [worker.info.started_at for worker in fleet if worker.alive]
    for name, within in WITHIN.items():
        at = sighting.ticks.get(name) or moments.get(name)
        # A clock may have been set back.
        age = None if at is None else max(timedelta(0), sighting.now - at)
        there = any(each is not None and sighting.now - each > within for each in started)
        late = there and (age is None or age > within)
        yield Tick(name=name, at=at, age=age, within=within, late=late)


def _not_promoted(untaken: Iterable[Untaken], now: datetime) -> Iterator[Finding]:
    """Jobs that are not let in. Why else nobody takes jobs, the verdict sees by itself."""
    for each in untaken:
        if each.why == "not_promoted":
            jobs = f"{count(each.count, 'job')} of {each.type}"
            sentence = f"Nobody lets {jobs} into the queue, whose time has come"
            since = now - each.oldest
            yield finding(Cause.NOT_PROMOTED, sentence, "windlass doctor", since, of=each.type)


def _unreadable(unread: Iterable[Unread], fleet: Iterable[WorkerHealth]) -> Iterator[Finding]:
    """Jobs of another release that no running worker can read, until they end: mostly after a rollback."""
    alive = [each.info for each in fleet if each.alive]
    stuck: dict[tuple[str, str], list[Unread]] = {}
    for each in unread:
        if each.for_none_of(alive):
            stuck.setdefault((each.type, each.field), []).append(each)
    for (job_type, field), found in sorted(stuck.items()):
        number = sum(each.count for each in found)
        sentence = (
            f"No running worker can read {field} in {count(number, 'job')} of {job_type}, which "
            "another release of the application made: deploy a release that can, edit each (windlass edit) "
            f"or bury them (windlass bury --type {job_type} --state unreadable)"
        )
        fix = f"windlass list --type {job_type} --state unreadable"
        yield finding(Cause.UNREADABLE, sentence, fix, min(each.since for each in found), of=job_type)


def _starved(bands: Iterable[Band], now: datetime) -> Iterator[Finding]:
    """Priorities that starve."""
    for band in bands:
        if band.starved:
            behind = f"Priority {band.priority} starves behind later jobs of higher priority"
            sentence, fix = f"{behind}: {band.due:,} due", "windlass config set low_share 0.1"
            # Whose jobs these are is found to have too few workers; this says what else would help.
            yield finding(Cause.STARVED, sentence, fix, now - band.oldest, grave=False)


def _of_checks(checked: Iterable[Checked], now: datetime) -> Iterator[Finding]:
    """Completed jobs that did not do what they should, or of which nobody knows."""
    for each in checked:
        last = each.last_mismatch_at
        if last is not None and now - last <= REMEMBERED:
            verified = f"{each.mismatched:,} of {each.matched + each.mismatched:,} verified jobs"
            sentence = f"{verified} of {each.type} completed without doing what they should"
            fix = f"windlass show {each.last_mismatch_job}" if each.last_mismatch_job else None
            # As with deaths: what is over should not hide what is not.
            yield finding(Cause.MISMATCH, sentence, fix, of=each.type, grave=now - last <= LATELY)
        if each.overdue is not None and each.overdue > CHECKED_WITHIN:
            waiting = f"Completed jobs of {each.type} wait to be verified ({each.waiting:,})"
            sentence = f"{waiting}: no worker with that check is running"
            since, fix = now - each.overdue, serve_type(each.type)
            yield finding(Cause.UNVERIFIED, sentence, fix, since, of=each.type, grave=False)


def _poison(standing: Iterable[Standing], now: datetime) -> Iterator[Finding]:
    """Jobs that died again after three replays: another one will not help."""
    poison: dict[str, list[Standing]] = {}
    for each in standing:
        if each.view == POISON:
            poison.setdefault(each.type, []).append(each)
    for name, found in sorted(poison.items()):
        number = sum(each.count for each in found)
        died = f"{count(number, 'job')} of {name} {'has' if number == 1 else 'have'} died again"
        sentence = f"{died} after {POISON_REPLAYS} or more replays: fix the handler or the payload first"
        since = now - max(each.oldest or timedelta(0) for each in found)
        fix = f"windlass dlq list --type {name}"
        yield finding(Cause.REPLAYED, sentence, fix, since, of=name, grave=False)


def _late_ticks(ticks: Iterable[Tick]) -> Iterator[Finding]:
    """What every fleet does by itself, and this one has stopped doing."""
    for tick in ticks:
        if tick.late:
            since = "was never seen to succeed" if tick.at is None else "has not succeeded"
            there = f"though a worker is there that should do it every {span(tick.within)}"
            sentence = f"{tick.name.capitalize()} {since}, {there}"
            yield finding(Cause.STOPPED, sentence, "windlass doctor", tick.at)
