"""What do the signals say that counts and failures do not? Each in words, once, for every surface. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from windlass.ops.finding import Cause, Finding
from windlass.ops.verdict import LATELY
from windlass.ops.words import count, serve_type, span
from windlass.store.samples import POISON, POISON_REPLAYS, Standing

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
