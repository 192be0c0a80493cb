"""Look for what is wrong in what was seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import structs

from windlass.job import Job, JobState, View
from windlass.observe import names
from windlass.ops.overview import Overview
from windlass.ops.verdict import (
    LATELY,
    LATELY_DONE,
    Cause,
    Failures,
    Finding,
    in_a_line,
    verdict,
    worth_a_sample,
)
from windlass.ops.words import count, serve_type, span
from windlass.store.jobs import Filter
from windlass.store.samples import POISON, POISON_REPLAYS, Standing
from windlass.store.store import Store

if TYPE_CHECKING:
    from windlass.ops.overview import Band, WorkerHealth
    from windlass.ops.signals import Checked, Tick, Untaken
    from windlass.store.running import Unread

# A check that is so much behind its time is not made by anybody.
CHECKED_WITHIN = timedelta(minutes=15)
# Somebody is warned of a mismatch for so long.
REMEMBERED = timedelta(days=1)


def of_untaken(untaken: Iterable[Untaken], now: datetime) -> Iterator[Finding]:
    """Jobs that are not let in. Why else nobody takes jobs, the verdict sees by itself."""
    for each in untaken:
        if each.why == "not_promoted":
            yield Finding(
                cause=Cause.NOT_PROMOTED,
                grave=True,
                sentence=f"Nobody lets {count(each.count, 'job')} of {each.type} into the queue, "
                "whose time has come",
                since=now - each.oldest,
                type=each.type,
                mend="windlass doctor",
            )


def of_unread(unread: Iterable[Unread], fleet: Iterable[WorkerHealth]) -> Iterator[Finding]:
    """Jobs of another release that no running worker can read, until they end: mostly after a rollback."""
    alive = [each.info for each in fleet if each.alive]
    stuck: dict[tuple[str, str], list[Unread]] = {}
    for each in unread:
        if each.for_none_of(alive):
            stuck.setdefault((each.type, each.field), []).append(each)
    for (job_type, field), found in sorted(stuck.items()):
        number = sum(each.count for each in found)
        yield Finding(
            cause=Cause.UNREADABLE,
            grave=True,
            sentence=f"No running worker can read {field} in {count(number, 'job')} of {job_type}, which "
            "another release of the application made: deploy a release that can, edit each (windlass edit) "
            f"or bury them (windlass bury --type {job_type} --state unreadable)",
            since=min(each.since for each in found),
            type=job_type,
            mend=f"windlass list --type {job_type} --state unreadable",
        )


def of_bands(bands: Iterable[Band], now: datetime) -> Iterator[Finding]:
    """Priorities that starve."""
    for band in bands:
        if band.starved:
            yield Finding(
                cause=Cause.STARVED,
                # Whose jobs these are is found to have too few workers; this says what else would help.
                grave=False,
                sentence=f"Priority {band.priority} starves behind later jobs of higher priority: "
                f"{band.due:,} due",
                since=now - band.oldest,
                mend="windlass config set low_share 0.1",
            )


def of_checks(checked: Iterable[Checked], now: datetime) -> Iterator[Finding]:
    """Completed jobs that did not do what they should, or of which nobody knows."""
    for each in checked:
        last = each.last_mismatch_at
        if last is not None and now - last <= REMEMBERED:
            made = each.matched + each.mismatched
            yield Finding(
                cause=Cause.MISMATCH,
                # As with deaths: what is over should not hide what is not.
                grave=now - last <= LATELY,
                sentence=f"{each.mismatched:,} of {made:,} verified jobs of {each.type} completed without "
                "doing what they should",
                type=each.type,
                mend=f"windlass show {each.last_mismatch_job}" if each.last_mismatch_job else None,
            )
        if each.overdue is not None and each.overdue > CHECKED_WITHIN:
            yield Finding(
                cause=Cause.UNVERIFIED,
                grave=False,
                sentence=f"Completed jobs of {each.type} wait to be verified ({each.waiting:,}): "
                "no worker with that check is running",
                since=now - each.overdue,
                type=each.type,
                mend=serve_type(each.type),
            )


def of_poison(standing: Iterable[Standing], now: datetime) -> Iterator[Finding]:
    """Jobs that died again after three replays: another one will not help."""
    poison: dict[str, list[Standing]] = {}
    for each in standing:
        if each.view == POISON:
            poison.setdefault(each.type, []).append(each)
    for name, found in sorted(poison.items()):
        number = sum(each.count for each in found)
        died = f"{count(number, 'job')} of {name} {'has' if number == 1 else 'have'} died again"
        yield Finding(
            cause=Cause.REPLAYED,
            grave=False,
            sentence=f"{died} after {POISON_REPLAYS} or more replays: fix the handler or the payload first",
            since=now - max(each.oldest or timedelta(0) for each in found),
            type=name,
            mend=f"windlass dlq list --type {name}",
        )


def of_ticks(ticks: Iterable[Tick]) -> Iterator[Finding]:
    """What every fleet does by itself, and this one has stopped doing."""
    for tick in ticks:
        if tick.late:
            since = "was never seen to succeed" if tick.at is None else "has not succeeded"
            yield Finding(
                cause=Cause.STOPPED,
                grave=True,
                sentence=f"{tick.name.capitalize()} {since}, though a worker is there that should do it "
                f"every {span(tick.within)}",
                since=tick.at,
                mend="windlass doctor",
            )


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
