"""What do the signals say that counts and failures do not? Each in words, once, for every surface. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from windlass.ops.finding import Cause, Finding
from windlass.ops.verdict import LATELY
from windlass.ops.words import count, span

if TYPE_CHECKING:
    from windlass.ops.overview import Band
    from windlass.ops.signals import Checked, Tick, Untaken

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
                mend=f"windlass worker start --types {each.type}",
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
