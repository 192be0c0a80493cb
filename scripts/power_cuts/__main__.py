"""What is left of a SQLite store when the power fails?

Records a producer and a worker with each SQLite and each way of checkpoints, builds the files as they could
be after a cut at any point, opens them and compares them with what was acknowledged. Exit 1 if anything is
wrong. The recording of a cut that fails is kept, and the cut can be repeated with --replay.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]

from power_cuts.disk import FOLDER, KINDS  # noqa: E402 - found by the line above
from power_cuts.record import LIVES, Setting, record  # noqa: E402 - likewise
from tests.history.result import add_option, count, write_document  # noqa: E402 - likewise

WHEEL = "pysqlite3>=0.6.1,<1"
CHECKPOINTS = {"ours": "ours, under the write lock", "sqlite": "SQLite's own"}
# Planted faults: of what a sync does nothing.
PLANTS = {"log": "jobs.db-wal", "file": "jobs.db", "folder": FOLDER}
SHOWN = 10


class Result(NamedTuple):
    """What came of one cut."""

    number: int
    kind: str
    place: int
    problems: list[str]


def main() -> int:
    """Record, cut, report; 1 if anything was lost or damaged."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cuts", type=count, default=10_000, help="cuts in all (default 10000)")
    parser.add_argument("--seed", type=int, default=1, help="of the cuts; recordings differ from run to run")
    parser.add_argument("--jobs", type=count, default=300, help="jobs in each recording (default 300)")
    parser.add_argument("--lives", type=count, default=len(LIVES), help=f"the first of: {', '.join(LIVES)}")
    parser.add_argument("--own", action="store_true", help="only Python's own SQLite library")
    parser.add_argument("--checkpoints", choices=CHECKPOINTS, help="only this way")
    parser.add_argument("--synchronous", default="full", help="of all connections (default full)")
    parser.add_argument("--planted", type=int, default=50, help="cuts for each planted fault (default 50)")
    parser.add_argument("--keep", type=Path, default=ROOT / ".cache/power-cuts", help="for cuts that fail")
    parser.add_argument("--replay", metavar="SEED:CUT", help="repeat a cut that was kept")
    add_option(parser)
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    if options.replay:
        seed, _, number = options.replay.partition(":")
        kept = options.keep / seed
        if not (seed.isdecimal() and number.isdecimal() and any(kept.glob("*/setting.json"))):
            parser.error(f"--replay must be SEED:CUT of a cut that was kept, got {options.replay!r}")
        return replay(kept, int(seed), int(number))
    return run(options)


def run(options: argparse.Namespace) -> int:
    """All settings, one after the other."""
    kept = options.keep / str(options.seed)
    shutil.rmtree(kept, ignore_errors=True)
    libraries = [""] if options.own else ["", fixed(options.keep)]
    ways = [options.checkpoints] if options.checkpoints else list(CHECKPOINTS)
    settings = [Setting(library, way, options.synchronous) for library in libraries for way in ways]
    rows, results = [], []
    planted: Counter[str] = Counter()
    for first, setting in enumerate(settings):
        folder = kept / str(first)
        folder.mkdir(parents=True)
        row = f"{version(setting):<20} {CHECKPOINTS[setting.checkpoints]:<28}"
        print(f"recording: {row}", flush=True)
        record(folder / "log", setting, options.jobs, options.lives)
        (folder / "setting.json").write_text(json.dumps([setting, len(settings)]), encoding="utf-8")
        numbers = range(first, options.cuts, len(settings))
        found = list(with_bar(check(folder, options.seed, numbers), len(numbers)))
        rows.append((row, found))
        results += found
        for name, ignored in PLANTS.items():
            planted[name] += wrong(check(folder, options.seed, range(options.planted), ignored))
    report(rows, results)
    print(f"\nplanted faults, {options.planted * len(settings)} cuts each")
    for name in PLANTS:
        print(f"{f'syncs of the {name} do nothing':<56} {planted[name]:>10}")
    if options.json is not None:
        write(options.json, rows, results, planted, options.planted * len(settings))
    failures = [each for each in results if each.problems]
    for each in failures[:SHOWN]:
        print(f"  --replay {options.seed}:{each.number} ({each.kind}): {'; '.join(each.problems)[:300]}")
    if not failures:
        shutil.rmtree(kept)
    missed = [name for name in PLANTS if options.planted and not planted[name]]
    print(*(f"the planted fault of the {name} was not found\n" for name in missed), end="")
    return 1 if failures or missed else 0


def wrong(results: Iterable[Result]) -> int:
    """How many cuts have broken a promise."""
    return sum(bool(each.problems) for each in results)


def fixed(folder: Path) -> str:
    """A folder with a SQLite that does not have the bug of decision 002."""
    place = folder / "pysqlite3"
    if not place.exists():
        words = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place), WHEEL]
        if subprocess.run([sys.executable, *words], check=False).returncode:
            raise SystemExit(f"cannot install {WHEEL}, which brings a fixed SQLite; --own goes without")
    return str(place)


def version(setting: Setting) -> str:
    """The version of SQLite that processes of this setting use."""
    text = "from windlass.store.sqlite.library import *; print(version_text(), has_wal_reset_bug())"
    words = [sys.executable, "-c", text]
    done = subprocess.run(words, env=setting.environment, check=True, capture_output=True, text=True)
    number, affected = done.stdout.split()
    return f"{number} ({'affected' if affected == 'True' else 'fixed'})"


def check(folder: Path, seed: int, numbers: range, ignored: str = "", *more: str) -> Iterator[Result]:
    """The cuts of one recording, in a process with its library."""
    fields, _ = json.loads((folder / "setting.json").read_text(encoding="utf-8"))
    words = [sys.executable, "-m", "power_cuts.cuts", str(folder / "log"), str(seed)]
    words += [str(numbers.start), str(numbers.stop), str(numbers.step), ignored, *more]
    environment = Setting(*fields).environment
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        yield from (Result(*json.loads(line)) for line in process.stdout or ())
    if process.returncode:
        raise SystemExit(f"the check failed with {process.returncode}")


def with_bar(results: Iterator[Result], count: int) -> Iterator[Result]:
    """Show how far it has come: in place on a terminal, else now and then."""
    begun, shown, every = time.monotonic(), 0.0, 1.0 if sys.stdout.isatty() else 30.0
    failed = 0
    for done, each in enumerate(results, 1):
        failed += bool(each.problems)
        if time.monotonic() - shown > every or done == count:
            shown = time.monotonic()
            bar = f"[{'#' * (30 * done // count):<30}] {done} of {count} cuts, {failed} violations"
            end = "\r" if sys.stdout.isatty() and done < count else "\n"
            print(f"  {bar}, {shown - begun:.0f} s", end=end, flush=True)
        yield each


def report(rows: Sequence[tuple[str, list[Result]]], results: Sequence[Result]) -> None:
    """Two tables: by setting, and by what became of unsynced writes."""
    print(f"\n{'SQLite':<20} {'checkpoints':<28} {'cuts':>6} {'violations':>10}")
    for row, found in rows:
        print(f"{row} {len(found):>6} {wrong(found):>10}")
    seen = Counter(each.kind for each in results)
    failed = Counter(each.kind for each in results if each.problems)
    print(f"\n{'unsynced writes':<49} {'cuts':>6} {'violations':>10}")
    for kind in KINDS:
        print(f"{kind:<49} {seen[kind]:>6} {failed[kind]:>10}")
    print(f"{'in all':<49} {seen.total():>6} {failed.total():>10}")


def write(
    path: Path,
    rows: Sequence[tuple[str, list[Result]]],
    results: Sequence[Result],
    planted: Counter[str],
    planted_cuts: int,
) -> None:
    """The same tables for `make evidence`, with what was found of the planted faults."""
    by_kind = {kind: [each for each in results if each.kind == kind] for kind in KINDS}
    write_document(
        path,
        name="power-cuts",
        settings=[_counted("setting", " ".join(row.split()), found) for row, found in rows],
        kinds=[_counted("kind", kind, found) for kind, found in by_kind.items()],
        planted=[{"fault": f"syncs of the {name} do nothing", "found": planted[name]} for name in PLANTS],
        planted_cuts=planted_cuts,
    )


def _counted(of: str, name: str, found: Sequence[Result]) -> dict[str, str | int]:
    return {of: name, "cuts": len(found), "violations": wrong(found)}


def replay(kept: Path, seed: int, number: int) -> int:
    """Repeat one cut, and leave its files as they were before they were opened."""
    [settings] = {json.loads(each.read_text(encoding="utf-8"))[1] for each in kept.glob("*/setting.json")}
    place = kept / f"cut-{number}"
    shutil.rmtree(place, ignore_errors=True)
    numbers = range(number, number + 1)
    [result] = check(kept / str(number % settings), seed, numbers, "", str(place))
    print(f"cut {number}, {result.kind}, behind event {result.place}: {len(result.problems)} problems")
    for problem in result.problems:
        print(f"  {problem}")
    print(f"its files: {place}")
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
