"""Seeds for a while, and the story of the first that breaks a promise."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path

from windlass.testing.simulation.story import FAULTS, STEPS, run, shrink


def main() -> int:
    """Play seeds; 1 if one of them broke a promise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite", help="which database")
    parser.add_argument("--seed", type=int, help="play only this one")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to play")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of one seed, before the calm")
    parser.add_argument("--faults", default=",".join(sorted(FAULTS)), help="which faults may strike")
    options = parser.parse_args()
    if options.store == "postgres":
        return interleave(options.seed, options.first, options.seconds)
    faults = frozenset(filter(None, options.faults.split(",")))
    if unknown := faults - FAULTS:
        parser.error(f"--faults must be of {', '.join(sorted(FAULTS))}, got {min(unknown)}")
    logging.disable(logging.CRITICAL)
    began, verbs, seeds = time.monotonic(), 0, 0
    seed = options.first if options.seed is None else options.seed
    while True:
        story = run(seed, steps=options.steps, faults=faults)
        verbs, seeds, took = verbs + story.verbs, seeds + 1, time.monotonic() - began
        if story.broken is not None:
            print(f"seed {seed} after {took:.0f} s: {story.broken}; looking for a short story", flush=True)
            short = shrink(story, faults=faults)
            print(*short.lines, sep="\n")
            print(f"seed {seed}: {short.broken}; {len(short.steps)} steps")
            return 1
        if options.seed is not None or took > options.seconds:
            break
        seed += 1
    print(f"{seeds} seeds, {verbs} verbs, {verbs / took * 3600:,.0f} an hour: every promise held")
    return 0


def interleave(only: int | None, first: int, seconds: float) -> int:
    """The same on PostgreSQL: actors in sessions of their own, one statement at a time."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
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
