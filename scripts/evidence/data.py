"""The results that are committed, as values. A file with a field too many or too few is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class BadResult(Exception):
    """A result file that does not have what its run writes."""


class Head(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What every result has."""

    name: str
    date: str
    commit: str
    machine: dict[str, str]
    # Of its make target; `--json=FILE` aside.
    arguments: list[str] = []
    # The load average of the 15 minutes up to its end; of two cores, 2 is all that there is.
    load: float | None = None


class Promise(msgspec.Struct, forbid_unknown_fields=True):
    """A promise, and whether it held."""

    promise: str
    held: bool
    detail: str


class Run(Head, forbid_unknown_fields=True, kw_only=True):
    """A run of real processes under faults, judged by its history."""

    store: str
    versions: dict[str, str]
    seed: int | None
    injected: dict[str, int]
    counts: dict[str, float]
    promises: list[Promise]
    recovery_seconds: list[float]

    @property
    def held(self) -> int:
        """How many promises held."""
        return sum(each.held for each in self.promises)


class Row(msgspec.Struct, forbid_unknown_fields=True):
    """Cuts of one setting, or of one fate of unsynced writes."""

    cuts: int
    violations: int
    setting: str = ""
    kind: str = ""


class Planted(msgspec.Struct, forbid_unknown_fields=True):
    """A planted fault, and how many cuts found it."""

    fault: str
    found: int


class PowerCuts(Head, forbid_unknown_fields=True, kw_only=True):
    """Cuts of the power on SQLite."""

    settings: list[Row]
    kinds: list[Row]
    planted: list[Planted]
    planted_cuts: int


class Model(msgspec.Struct, forbid_unknown_fields=True):
    """A model or a broken twin, and whether it came out as it should."""

    name: str
    about: str
    held: bool
    states: int
    distinct: int
    steps: int
    seconds: float
    refuted: str


class Proofs(Head, forbid_unknown_fields=True, kw_only=True):
    """What TLC found."""

    models: list[Model]


class Simulated(Head, forbid_unknown_fields=True, kw_only=True):
    """What the simulator printed at its end."""

    store: str
    seconds: float
    exit_code: int
    said: list[str]


class Mutant(msgspec.Struct):
    """A planted bug; other fields than these are the simulator's own affair."""

    found: bool
    seconds: float
    promise: str = ""
    steps: int = 0
    seed: int | None = None
    store: str = "sqlite"


class Aim(msgspec.Struct, forbid_unknown_fields=True):
    """An aim of the requirements, and what was measured."""

    id: str
    what: str
    aim: str
    measured: str
    met: bool


class Soak(Run, forbid_unknown_fields=True, kw_only=True):
    """An hour of load."""

    seconds: float
    scale: float
    plan: dict[str, Any]
    calls: dict[str, dict[str, float]]
    aims: list[Aim]
    marks: dict[str, list[float]]
    samples: dict[str, list[float | None]]
    latency: dict[str, dict[str, list[float]]]
    # The share of the machine that other programs took meanwhile.
    others: float


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """One scenario or attack on one store, in the words of its run."""

    held: bool
    line: str


class Lines(Head, forbid_unknown_fields=True, kw_only=True):
    """A run that is a list of scenarios."""

    rows: list[Line]


# Which files there may be, and what is in them.
KNOWN: dict[str, type[Head]] = {
    r"kill-run-(sqlite|postgresql)": Run,
    r"kill-commit-(sqlite|postgresql)": Run,
    r"server-kill-(sqlite|postgres|postgres-away)": Run,
    r"power-cuts": PowerCuts,
    r"proofs": Proofs,
    r"simulate-(sqlite|postgres)": Simulated,
    r"soak-(sqlite|postgresql)": Soak,
    r"siege|bad-day": Lines,
}


def read(path: Path, kind: type[T]) -> T:
    """One file as a value; BadResult names the file and the field."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise BadResult(f"{path.name}: {error}; let its run write it again") from None


def read_all(folder: Path) -> dict[str, Head]:
    """Every result of a folder by its file's name; a file that no run writes is refused."""
    found: dict[str, Head] = {}
    for path in sorted(folder.glob("*.json")):
        kinds = [kind for pattern, kind in KNOWN.items() if re.fullmatch(pattern, path.stem)]
        if not kinds:
            raise BadResult(f"{path.name}: no run writes a file of this name")
        found[path.stem] = read(path, kinds[0])
    return found


def read_mutants(path: Path) -> dict[str, Mutant]:
    """What became of the planted bugs; none if it was not measured."""
    return read(path, dict[str, Mutant]) if path.exists() else {}
