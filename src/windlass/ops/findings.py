"""What do the signals say that counts and failures do not? Findings for the verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from windlass.ops.overview import Band
from windlass.ops.signals import CHECKED_WITHIN, REMEMBERED, Checked, Signals, Tick, Untaken
from windlass.ops.verdict import LATELY, Cause, Finding


def findings(signals: Signals) -> Iterator[Finding]:
    """What stopped, what is not let in, what was not done, and who waits behind everybody."""
    yield from _of_ticks(signals.ticks)
    yield from _of_untaken(signals, signals.untaken)
    yield from _of_checks(signals, signals.checked)
    yield from _of_bands(signals, signals.bands)


def _of_ticks(ticks: Iterable[Tick]) -> Iterator[Finding]:
    for tick in ticks:
        if tick.late:
            since = "was never seen to succeed" if tick.at is None else "has not succeeded in time"
            yield Finding(
                cause=Cause.STOPPED,
                grave=True,
                sentence=f"{tick.name} {since}, though a worker is there to do it",
                since=tick.at,
                mend="windlass doctor",
            )


def _of_untaken(signals: Signals, untaken: Iterable[Untaken]) -> Iterator[Finding]:
    for each in untaken:
        # Why else nobody takes them, the verdict sees by itself.
        if each.why == "not_promoted":
            jobs = "1 job" if each.count == 1 else f"{each.count:,} jobs"
            yield Finding(
                cause=Cause.NOT_PROMOTED,
                grave=True,
                sentence=f"Nobody lets {jobs} of {each.type} into the queue, whose time has come",
                since=signals.now - each.oldest,
                type=each.type,
                mend="windlass doctor",
            )


def _of_checks(signals: Signals, checked: Iterable[Checked]) -> Iterator[Finding]:
    for each in checked:
        last = each.last_mismatch_at
        if last is not None and signals.now - last <= REMEMBERED:
            made = each.matched + each.mismatched
            yield Finding(
                cause=Cause.MISMATCH,
                # As with deaths: what is over should not hide what is not.
                grave=signals.now - last <= LATELY,
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
                since=signals.now - each.overdue,
                type=each.type,
            )


def _of_bands(signals: Signals, bands: Iterable[Band]) -> Iterator[Finding]:
    for band in bands:
        if band.starved:
            yield Finding(
                cause=Cause.STARVED,
                # Whose jobs these are is found to have too few workers; this says what else would help.
                grave=False,
                sentence=f"Priority {band.priority} starves behind later jobs of higher priority: "
                f"{band.due:,} due",
                since=signals.now - band.oldest,
                mend="windlass config set low_share 0.1",
            )
