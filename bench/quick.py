"""Has anything become slower? Our figures as shares of the database's own, measured turn by turn.

A share hardly depends on the machine, because both sides meet the same minute. It does depend on what others
do there: a drain of ours uses both cores, the database's own cycle one. Therefore pairs during which others
took much of the machine do not count, and a share with too few that do is not judged. What seems to have
fallen is measured once more before anybody is told.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from bench import load, machine
from bench.contenders import BY_NAME
from bench.places import Places
from bench.results import QUICK, Results
from bench.runner import Runner

# About how long all of it takes.
SECONDS = 200.0
FALLEN = 0.85
# What others may take of the machine while a pair is measured, and how many such pairs it takes to judge.
_OTHERS = 0.15
_FEWEST = 5
_WITHIN = 60.0
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Share:
    """One share: what we do and what the database itself does for the same."""

    name: str
    store: str
    verb: str
    arguments: dict[str, Any]
    # How often, turn by turn: an odd number, and more of what is short.
    pairs: int


SHARES = (
    Share("enqueue one by one, PostgreSQL", "postgres", "enqueue_one", {"seconds": 0.3}, pairs=21),
    Share("enqueue by 10 producers, PostgreSQL", "postgres", "enqueue_producers", {"seconds": 0.3}, pairs=21),
    Share("enqueue in bulk, PostgreSQL", "postgres", "bulk", {"count": 10_000}, pairs=15),
    Share("drain, PostgreSQL", "postgres", "drain", {"count": 12_000}, pairs=7),
    Share("enqueue one by one, SQLite", "sqlite", "enqueue_one", {"seconds": 0.3}, pairs=21),
    Share("enqueue in bulk, SQLite", "sqlite", "bulk", {"count": 10_000}, pairs=15),
    Share("drain, SQLite", "sqlite", "drain", {"count": 8_000}, pairs=7),
)


class Shares(msgspec.Struct, kw_only=True):
    """What was found: every pair that nobody disturbed, and how many were disturbed."""

    made: str
    commit: str
    machine: dict[str, str]
    pairs: dict[str, list[float]] = {}
    disturbed: dict[str, int] = {}

    def is_judged(self, name: str) -> bool:
        """Whether enough pairs of a share count."""
        return len(self.pairs[name]) >= _FEWEST

    @property
    def judged(self) -> dict[str, list[float]]:
        """The shares of which enough pairs count."""
        return {name: pairs for name, pairs in self.pairs.items() if self.is_judged(name)}

    def save(self, path: Path) -> None:
        """Write it down."""
        path.parent.mkdir(parents=True, exist_ok=True)
        rounded = {name: [round(each, 4) for each in pairs] for name, pairs in self.pairs.items()}
        text = msgspec.json.encode(msgspec.structs.replace(self, pairs=rounded))
        path.write_bytes(msgspec.json.format(text, indent=1) + b"\n")


@dataclass(frozen=True, slots=True)
class Change:
    """A share then and now."""

    name: str
    then: float
    now: float
    # What a quarter of the pairs lies above.
    high: float

    @property
    def ratio(self) -> float:
        """Now as a share of then."""
        return self.now / self.then

    @property
    def is_fallen(self) -> bool:
        """Whether it has lost more than is allowed; pairs that lie far apart are noise, and prove nothing."""
        return self.ratio < FALLEN and self.high < self.then


def changes(then: dict[str, list[float]], now: dict[str, list[float]]) -> list[Change]:
    """Every share that was measured both times."""
    return [
        Change(name, statistics.median(then[name]), statistics.median(pairs), _upper_quartile(pairs))
        for name, pairs in now.items()
        if name in then
    ]


def _upper_quartile(pairs: list[float]) -> float:
    return statistics.quantiles(pairs, n=4, method="inclusive")[2] if len(pairs) > 1 else pairs[0]


def measure(places: Places, tell: Tell, only: set[str] | None = None) -> Shares:
    """Measure all shares, or some."""
    found = Shares(made=_now(), commit=machine.commit(), machine=machine.machine())
    for share in SHARES:
        if only is None or share.name in only:
            pairs = _pairs(places, share)
            quiet = [ratio for ratio, others in pairs if others <= _OTHERS]
            found.pairs[share.name], found.disturbed[share.name] = quiet, len(pairs) - len(quiet)
            each = " ".join(f"{ratio:.2f}{'' if others <= _OTHERS else '*'}" for ratio, others in pairs)
            median = f"{statistics.median(quiet):6.2f}" if quiet else f"{'-':>6}"
            tell(f"{share.name:<38}{median}   {each}")
    if any(found.disturbed.values()):
        tell("* does not count: others took more of the machine than that")
    return found


def judge(places: Places, found: Shares, tell: Tell) -> int:
    """Compare with the committed shares; what seems fallen is measured again, and counts if it fell twice."""
    if not QUICK.exists():
        raise FileNotFoundError(f"{QUICK.name} is not there; make it with: make bench-quick ARGS=--save")
    then = msgspec.json.decode(QUICK.read_bytes(), type=Shares)
    suspects = {each.name for each in changes(then.pairs, found.judged) if each.is_fallen}
    if suspects:
        tell("once more, to be sure:")
        again = measure(places, tell, suspects)
        # What cannot be judged now fell only once.
        found.pairs.update({name: _better(found.pairs[name], again.pairs[name]) for name in again.judged})
        for name in suspects - again.judged.keys():
            found.pairs[name] = []
    told = changes(then.pairs, found.judged)
    tell(f"\nshares of what the database itself does, then: {then.commit}, {then.made[:10]}")
    tell(f"{'':<38}{'then':>6}{'now':>7}{'ratio':>7}")
    for each in told:
        fallen = "   FALLEN by more than 15 %" if each.is_fallen else ""
        tell(f"{each.name:<38}{each.then:>6.2f}{each.now:>7.2f}{each.ratio:>7.2f}{fallen}")
    for name in found.pairs.keys() - found.judged.keys():
        tell(f"{name:<38}not judged: the machine was not quiet for long enough")
    return 1 if any(each.is_fallen for each in told) else 0


def _better(one: list[float], other: list[float]) -> list[float]:
    return max(one, other, key=statistics.median)


def _pairs(places: Places, share: Share) -> list[tuple[float, float]]:
    """Ours and the database's, turn by turn, and what others took meanwhile; one more before it counts."""
    runner = Runner(places, _scratch(), tell=lambda _: None, deadline=0.0)
    ours, raw = BY_NAME[f"windlass-{share.store}"], BY_NAME[f"raw-{share.store}"]
    found = []
    with runner.driver(ours) as (mine, _), runner.driver(raw) as (its, _):
        for number in range(share.pairs + 1):
            # Now the one first, now the other: whatever a turn leaves behind meets both.
            turns = (mine, its) if number % 2 else (its, mine)
            with load.others() as others:
                rates = {
                    id(one): one.ask(share.verb, within=_WITHIN, **share.arguments)["rate"] for one in turns
                }
            if number:
                found.append((rates[id(mine)] / rates[id(its)], others.share))
    return found


def _scratch() -> Results:
    return Results(made="", commit="", scale=1.0, rounds=1, machine={}, servers={})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
