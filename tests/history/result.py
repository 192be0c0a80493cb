"""What did a run show? Promises, counts and recovery times: printed, and written for `make evidence`."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sqlite3
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from bench.machine import commit, machine

SHARES = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
_SHOWN = 5
# A list of numbers, which is written in one line.
_NUMBERS = re.compile(r"\[\s+(?:(?:null|[-+.\de]+),\s+)*(?:null|[-+.\de]+)\s+\]")


class Promise(NamedTuple):
    """A promise, and whether it held."""

    promise: str
    held: bool
    detail: str = ""

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"  {'held  ' if self.held else 'BROKEN'}  {self.promise}{detail}"


def write_result(
    path: Path,
    *,
    name: str,
    store: str,
    injected: Mapping[str, int],
    counts: Mapping[str, float],
    promises: Iterable[Promise],
    recovery_seconds: Iterable[float] = (),
    seed: int | None = None,
    versions: Mapping[str, str] | None = None,
) -> None:
    """Write one run's result as a JSON object, which `make evidence` reads.

    `name` is the make target, such as "kill-run"; `store` is "sqlite" or "postgresql". `injected` counts
    faults, `counts` is what came of them.
    """
    write_document(
        path,
        name=name,
        store=store,
        versions=dict(versions or {}),
        seed=seed,
        injected=dict(injected),
        counts=dict(counts),
        promises=[each._asdict() for each in promises],
        recovery_seconds=sorted(round(each, 4) for each in recovery_seconds),
    )


def write_document(path: Path, *, name: str, **fields: Any) -> None:
    """Write what a make target found, with its date, commit, machine and arguments: `--json=FILE` aside."""
    found = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        # Of the last 15 minutes: how busy the machine was, with this run and with whatever else.
        "load": round(os.getloadavg()[2], 1),
        "arguments": [each for each in sys.argv[1:] if not each.startswith("--json=")],
    }
    document = {"name": name} | found | fields
    path.parent.mkdir(parents=True, exist_ok=True)
    text = _NUMBERS.sub(lambda numbers: " ".join(numbers[0].split()), json.dumps(document, indent=1))
    path.write_text(f"{text}\n", encoding="utf-8")


def write_rows(path: Path | None, name: str, rows: Iterable[tuple[bool, str]]) -> None:
    """Write a run that is a list of lines, each of which held or did not; without a file nothing."""
    if path is not None:
        shown = [{"held": held, "line": " ".join(line.split())} for held, line in rows]
        write_document(path, name=name, rows=shown)


class Result:
    """One run on one store: scripts add to it, and it is printed and written at the end."""

    def __init__(self, name: str, url: str, *, seed: int | None = None) -> None:
        self.name = name
        self.url = url
        self.store = "sqlite" if url.startswith("sqlite") else "postgresql"
        self.seed = seed
        self.injected: dict[str, int] = {}
        self.counts: dict[str, float] = {}
        self.promises: list[Promise] = []
        self.recovery: list[float] = []
        self.versions: dict[str, str] = {}

    def promise(self, promise: str, detail: object = "", *, held: bool) -> None:
        """Note whether a promise held, and print it."""
        self.add(Promise(promise, held, str(detail)))

    def add(self, *promises: Promise) -> None:
        """Take over what a checker found."""
        for each in promises:
            self.promises.append(each)
            print(each, flush=True)

    @property
    def held(self) -> bool:
        """Whether every promise held; a run that promised nothing has shown nothing."""
        return bool(self.promises) and all(each.held for each in self.promises)

    def close(self, path: Path | None = None) -> bool:
        """Print the end of the run and write it to a file if there is one; whether every promise held."""
        for what, counts in (("injected", self.injected), ("counts", self.counts)):
            if counts:
                print(f"{what:<10} {', '.join(f'{value:g} {name}' for name, value in counts.items())}")
        if self.recovery:
            print(f"recovery   {spread(self.recovery)}")
        print("every promise held" if self.held else "A PROMISE WAS BROKEN", flush=True)
        if path is not None:
            self._write(path)
        return self.held

    def _write(self, path: Path) -> None:
        write_result(
            path,
            name=self.name,
            store=self.store,
            injected=self.injected,
            counts=self.counts,
            promises=self.promises,
            recovery_seconds=self.recovery,
            seed=self.seed,
            versions=self.versions or versions(self.url),
        )


def count(text: str) -> int:
    """The value of an option that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, got {text!r}")
    return int(text)


def positive(text: str) -> float:
    """The value of an option that measures something."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return value


def add_option(parser: argparse.ArgumentParser) -> None:
    """The option by which every run says where its result goes."""
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the result there; of several runs each has its store in the file's name",
    )


def file_for(path: Path | None, label: str, *, several: bool) -> Path | None:
    """The file of one of several runs: result.json becomes result-sqlite.json."""
    if path is None or not several:
        return path
    return path.with_stem(f"{path.stem}-{label}")


def versions(url: str) -> dict[str, str]:
    """The database's own version; of a server that is gone nothing is known."""
    if url.startswith("sqlite"):
        return {"SQLite": sqlite3.sqlite_version}
    import psycopg  # noqa: PLC0415 - an extra

    try:
        with psycopg.connect(url, connect_timeout=5) as session:
            row = session.execute("show server_version").fetchone()
    except psycopg.Error:
        return {}
    return {"PostgreSQL": str(row[0]).split()[0]} if row else {}


def at(values: Sequence[float], share: float) -> float:
    """The value that this share of the sorted values does not exceed."""
    return values[min(len(values) - 1, int(share * len(values)))]


def distribution(values: Iterable[float]) -> dict[str, float]:
    """Minimum, quantiles and maximum of some seconds."""
    found = sorted(values)
    return {name: at(found, share) for name, share in SHARES.items()} if found else {}


def spread(values: Sequence[float]) -> str:
    """The same in words."""
    found = ", ".join(f"{name} {value:.2f}" for name, value in distribution(values).items())
    return f"{found} s ({len(values)})"


def few(things: Iterable[Any]) -> str:
    """The first few, and how many there are."""
    found = list(things)
    shown = ", ".join(str(thing) for thing in found[:_SHOWN])
    return f"{shown} ... ({len(found)})" if len(found) > _SHOWN else shown
