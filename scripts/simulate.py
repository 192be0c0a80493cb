"""Seeds for a while, and the story of the first that breaks a promise."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coverage import Coverage

ROOT = Path(__file__).resolve().parents[1]
# What is measured with --coverage: the modules that hold the store's verbs, those that the verbs are made of,
# SQLite's own hot path, and the decision. Not measured is how SQLite is opened, locked and written to, which
# the power cuts and the tests of files are about, and PostgreSQL.
VERBS = (
    *(
        "access",
        "catalogue",
        "chains",
        "explain",
        "fleet",
        "flow",
        "history",
        "jobs",
        "keys",
        "lanes",
        "limits",
    ),
    *("oncall", "operations", "rows", "running", "samples", "schedules", "upkeep", "sqlite/hot"),
)
LEAST = 90.0
STEPS = 1000


def main() -> int:
    """Play seeds; 1 if one of them broke a promise, or too little was covered."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite", help="which database")
    parser.add_argument("--seed", type=int, help="play only this one")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        help="how long to play, in seconds of one core (PostgreSQL: in seconds)",
    )
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of one seed, before the calm")
    parser.add_argument("--faults", help="which faults may strike, such as kill,freeze; all if left out")
    parser.add_argument("--coverage", action="store_true", help="show which branches of the verbs were taken")
    options = parser.parse_args()
    for name in ("seconds", "steps"):
        if not getattr(options, name) > 0:
            parser.error(f"--{name} must be above 0, got {getattr(options, name)}")
    if options.store == "postgres" and (options.faults or options.coverage or options.steps != STEPS):
        parser.error("--faults, --coverage and --steps are of --store sqlite")
    if options.store == "postgres":
        return interleave(options.seed, options.first, options.seconds)
    measured = _measure() if options.coverage else None
    failed = _play(parser, options)
    return _report(measured) if measured is not None and not failed else failed


def _play(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    # Only now: what is imported before is not measured.
    from windlass.testing.simulation.story import FAULTS, run, shrink  # noqa: PLC0415

    faults = FAULTS if options.faults is None else frozenset(filter(None, options.faults.split(",")))
    if unknown := faults - FAULTS:
        parser.error(f"--faults must be of {', '.join(sorted(FAULTS))}, got {min(unknown)}")
    logging.disable(logging.CRITICAL)
    began, verbs, seeds = time.process_time(), 0, 0
    seed = options.first if options.seed is None else options.seed
    while True:
        story = run(seed, steps=options.steps, faults=faults)
        verbs, seeds, took = verbs + story.verbs, seeds + 1, time.process_time() - began
        if story.broken is not None:
            print(f"seed {seed} after {took:.0f} s: {story.broken}; looking for a short story", flush=True)
            short = shrink(story, faults=faults)
            print(*short.lines, sep="\n")
            print(f"seed {seed}: {short.broken}; {len(short.steps)} steps")
            return 1
        if options.seed is not None or took > options.seconds:
            break
        seed += 1
    print(
        f"{seeds} seeds, {verbs} verbs, {verbs / took * 3600:,.0f} in an hour of one core: every promise held"
    )
    return 0


def _measure() -> Coverage:
    from coverage import Coverage  # noqa: PLC0415 - only where it is asked for

    store = ROOT / "src/windlass/store"
    files = [*(str(store / f"{name}.py") for name in VERBS), str(store.parent / "outcome.py")]
    measured = Coverage(branch=True, data_file=None, config_file=False, include=files)
    measured.exclude("if TYPE_CHECKING:")
    measured.exclude("assert_never")
    measured.start()
    return measured


def _report(measured: Coverage) -> int:
    measured.stop()
    print("Branches of the store's verbs, of what they are made of, of SQLite's hot path, and of decide():")
    covered = measured.report(show_missing=True)
    print(f"{covered:.1f} % covered, at least {LEAST:.0f} % are expected")
    return 0 if covered >= LEAST else 1


def interleave(only: int | None, first: int, seconds: float) -> int:
    """The same on PostgreSQL: actors in sessions of their own, one statement at a time."""
    sys.path.insert(0, str(ROOT))
    from tests.interleaving import stage, story  # noqa: PLC0415 - found only by the line above
    from tests.servers.postgres import majors  # noqa: PLC0415 - as above

    logging.disable(logging.CRITICAL)
    seed, steps, seeds = first if only is None else only, 0, 0
    with stage.opened(min(majors())) as theatre:
        began = time.monotonic()
        while True:
            played = story.run(theatre, seed)
            steps, seeds, took = steps + played.size, seeds + 1, time.monotonic() - began
            if played.broken is not None:
                print(
                    f"seed {seed} after {took:.0f} s: {played.broken}; looking for a short story", flush=True
                )
                short = story.shrink(theatre, played)
                print(*short.lines, sep="\n")
                print(f"seed {seed}: {short.broken}; {short.size} steps")
                return 1
            if only is not None or took > seconds:
                break
            seed += 1
    print(f"{seeds} schedules, {seeds / took * 3600:,.0f} an hour; {steps} statements stepped, ", end="")
    print(f"{steps / took * 3600:,.0f} an hour: every promise held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
