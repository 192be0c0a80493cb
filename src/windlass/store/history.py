"""What happened, counted by minute, hour and day; and the alerts that fire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from windlass.clock import span, to_micros
from windlass.store import rows
from windlass.store.engine import Tx

# What the store itself counts, and how much waits; observe/names.py has all the names.
ENQUEUED = "enqueued"
DEAD = "dead"
REPLAYED = "replayed"
# Later acknowledgements: the receiver of the work says that it arrived.
CONFIRMED = "confirmed"
DEPTH = "depth"
# Of the depth, what is due.
DUE = "due"
OLDEST = "oldest"
# Of attempts by the release that ran them; each is a name of its own, with the release in it.
RELEASE = "release."
ATTEMPTS = "attempts"
FAILED = "failed"
# In microseconds.
RAN = "ran"
# How long its attempts ran, in buckets: so many, as observe/names.py has bounds.
RUN = "run"
RUN_BUCKETS = 16
# Restarts by the worker that died: its host, and which of the supervisor's workers it was.
RESTARTS = "restarts"
# What is not shown apart: types, tenants.
OTHER = "other"
# What happened, by type (empty: not of one type) and name.
Happened = Mapping[tuple[str, str], int]


class Step(StrEnum):
    """How finely the past is looked at."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"


# How long each is kept.
KEPT: dict[Step, timedelta] = {
    Step.MINUTE: timedelta(days=2),
    Step.HOUR: timedelta(days=60),
    Step.DAY: timedelta(days=800),
}
LENGTH: dict[Step, timedelta] = {
    Step.MINUTE: timedelta(minutes=1),
    Step.HOUR: timedelta(hours=1),
    Step.DAY: timedelta(days=1),
}


class Flush(msgspec.Struct, frozen=True):
    """Who tells what happened, and for the how many-th time: the same number again is the same flush."""

    teller: str
    number: int
    # Of which releases it tells.
    releases: frozenset[str] = frozenset()


class Release(msgspec.Struct, frozen=True):
    """A release of the application, and when it was first heard of."""

    version: str
    first_at: datetime


def of_release(version: str, name: str) -> str:
    """The name under which something is counted of one release."""
    return f"{RELEASE}{version}.{name}"


def counted_of_release(version: str) -> tuple[str, ...]:
    """All names under which anything is counted of one release: attempts, failures, run time, buckets."""
    buckets = (f"{RUN}.{number}" for number in range(RUN_BUCKETS))
    return tuple(of_release(version, name) for name in (ATTEMPTS, FAILED, RAN, *buckets))


class Past(msgspec.Struct, frozen=True):
    """How often something happened within one step."""

    at: datetime
    type: str
    name: str
    value: int


class Noticed(msgspec.Struct, frozen=True, kw_only=True):
    """An alert whose condition holds: since when, and whether somebody has been told."""

    name: str
    # As JSON, sorted by name.
    labels: str
    since: datetime
    seen_at: datetime
    value: float
    told: bool = False


# Not an alert: its row says when somebody last looked at them all.
LOOKED = ""


def add(tx: Tx, happened: Happened, statement: str = "add_history") -> None:
    """Count what happened, now; with `note_history`, keep how much of something there is."""
    if happened:
        told = rows.json_text([(*of, value) for of, value in sorted(happened.items())])
        tx.change(statement, rows=told, **{step.value: _begin(step, tx.now) for step in Step})


def tell(tx: Tx, happened: Happened, flush: Flush) -> None:
    """Count what happened; a flush counts once, however often it is sent."""
    if not tx.change("note_flush", teller=flush.teller, number=flush.number, now=tx.now):
        return
    for version in sorted(flush.releases):
        tx.change("note_release", version=version, now=tx.now)
    add(tx, happened)


def totals(tx: Tx) -> dict[tuple[str, str], int]:
    """Everything that was ever counted."""
    return {(row["type"], row["name"]): row["value"] for row in tx.rows("totals")}


def history(
    tx: Tx, step: Step, since: datetime, before: datetime, *, types: Sequence[str] | None = None
) -> list[Past]:
    """What happened in each step, oldest first; of what was measured the sums alone.

    Of all types and of what belongs to none, or of these types only.
    """
    bounds = _bounds(step, since, before)
    which, named = (
        ("history", {}) if types is None else ("history_of_types", {"types": rows.json_text(types)})
    )
    return [rows.read(Past, row) for row in tx.rows(which, **bounds, **named)]


def history_of_others(
    tx: Tx, step: Step, since: datetime, before: datetime, *, types: Sequence[str]
) -> list[Past]:
    """What happened to jobs of all types but these, added up, as of one type `other`."""
    found = tx.rows("history_of_others", types=rows.json_text(types), **_bounds(step, since, before))
    return [rows.read(Past, row, type=OTHER) for row in found]


def _bounds(step: Step, since: datetime, before: datetime) -> dict[str, str | int]:
    return {"step": step.value, "since": _begin(step, to_micros(since)), "before": to_micros(before)}


def releases(tx: Tx) -> list[Release]:
    """The releases that are counted apart, the newest first."""
    return [rows.read(Release, row) for row in tx.rows("releases")]


def increases(tx: Tx, since: Sequence[timedelta]) -> dict[timedelta, dict[tuple[str, str], int]]:
    """What happened in the last so many minutes, the present one included."""
    found: dict[timedelta, dict[tuple[str, str], int]] = {}
    for ago in since:
        first = _begin(Step.MINUTE, tx.now - span(ago))
        counted = tx.rows("increase", since=first, hour=-_begin(Step.HOUR, -first))
        found[ago] = {(row["type"], row["name"]): row["value"] for row in counted}
    return found


def gauge_at(tx: Tx, name: str, ago: timedelta) -> dict[str, int]:
    """How much waited so long ago, by type: of the minutes around then the first in which somebody looked."""
    since = _begin(Step.MINUTE, tx.now - span(ago))
    before = since + _AROUND * span(LENGTH[Step.MINUTE])
    found = tx.rows("gauges_at", since=since, before=before, name=name)
    first = found[0]["at"] if found else None
    return {row["type"]: row["value"] for row in found if row["at"] == first}


def gauges(tx: Tx, name: str, since: timedelta) -> dict[str, list[int]]:
    """How much waited in each of the last minutes, by type; each value is looked up, no history is read."""
    minute = span(LENGTH[Step.MINUTE])
    first = _begin(Step.MINUTE, tx.now - span(since))
    minutes = list(range(first, tx.now + 1, minute))
    found: dict[str, list[int]] = {}
    for row in tx.rows("gauges", minutes=rows.json_text(minutes), name=name):
        found.setdefault(row["type"], []).append(row["value"])
    return found


def bounds(now: int) -> dict[str, int]:
    """Before which times steps, and what was told, are kept no longer."""
    steps = {f"{step.value}s": now - span(kept) for step, kept in KEPT.items()}
    return {**steps, "told": now - span(_REPEATED_WITHIN)}


def prune(tx: Tx) -> None:
    """Forget the oldest releases, if there are more than anybody shows, and restarts of hosts long gone."""
    tx.change("prune_restarts", since=tx.now - span(_RESTARTS_KEPT))
    known = releases(tx)
    if len(known) > _MOST_RELEASES:
        # Those that ran last stay, whenever they came: an old one that runs on is not counted anew.
        last = {row["name"]: row["at"] for row in tx.rows("last_runs", since=tx.now - span(_RUNS_ON))}
        known.sort(key=lambda each: -last.get(of_release(each.version, ATTEMPTS), 0))
        for release in known[_MOST_RELEASES:]:
            for name in counted_of_release(release.version):
                tx.change("forget_counted", name=name)
            tx.change("forget_release", version=release.version)


def _begin(step: Step, micros: int) -> int:
    length = span(LENGTH[step])
    return micros // length * length


_AROUND = 2
_RESTARTS_KEPT = timedelta(days=30)
# Whoever waits longer than this for the answer to a flush may count it twice.
_REPEATED_WITHIN = timedelta(days=1)
# Every release of the last years would make a scrape slow.
_MOST_RELEASES = 10
# A release that ran anything within this time is not forgotten before others.
_RUNS_ON = timedelta(days=1)


# Not an alert: the row of one who is about to tell somebody, with the alert's name and labels as its labels.
_TELLING = "telling"
# Longer than all tries to reach a webhook.
_CLAIMED_FOR = timedelta(minutes=1)


def noticed(tx: Tx) -> list[Noticed]:
    """Alerts whose condition held when last looked, or whose end was not sent yet."""
    return [rows.read(Noticed, row) for row in tx.rows("alerts", telling=_TELLING)]


def notice(tx: Tx, holding: Mapping[tuple[str, str], float]) -> list[Noticed]:
    """Keep which alerts hold now, by name and labels, with their values.

    Answers all that hold, and those that hold no more but whose end was not sent yet.
    """
    tx.change("forget_claims", telling=_TELLING, before=tx.now - span(_CLAIMED_FOR))
    held = {(LOOKED, ""): 0.0, **holding}
    for name, labels in sorted(held):
        tx.change("note_alert", name=name, labels=labels, value=held[name, labels], now=tx.now)
    for each in noticed(tx):
        if (each.name, each.labels) not in held and not each.told:
            tx.change("forget_alert", name=each.name, labels=each.labels)
    return noticed(tx)


def may_tell(tx: Tx, name: str, labels: str, *, fires: bool) -> bool:
    """Claim the right to send an alert, or its end.

    True for one of those who ask, who then says `told`; if it does not within a minute, others may.
    """
    claim = {"telling": _TELLING, "of": _claim(name, labels), "now": tx.now}
    return bool(tx.change("claim_alert", name=name, labels=labels, told=int(fires), **claim))


def told(tx: Tx, name: str, labels: str, *, fires: bool | None) -> None:
    """Keep that an alert was sent, or its end; None: nobody could be reached, others may try."""
    if fires is not None:
        tx.change("tell_alert", name=name, labels=labels, told=int(fires))
    tx.change("forget_alert", name=_TELLING, labels=_claim(name, labels))


def _claim(name: str, labels: str) -> str:
    return f"{name} {labels}"
