"""The proving ground's command line: `python -m bench run | quick | pairs | report | self`."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench import cases, contenders, environments, machine, pairs, quick, report, summary
from bench.client import Failed
from bench.contenders import Contender
from bench.drive.contract import Cannot
from bench.environments import NotInstalled
from bench.places import Missing, Places
from bench.results import LATEST, QUICK, RESULTS, Results
from bench.runner import Runner


def main(argv: list[str]) -> int:
    """Carry out one command and return its exit code."""
    options = _parse(argv)
    try:
        commands: dict[str, Callable[[argparse.Namespace], int]] = {
            "run": _run,
            "quick": _quick,
            "pairs": _pairs,
            "report": _report,
            "self": _self,
        }
        return commands[options.command](options)
    except (
        ValueError,
        Missing,
        FileNotFoundError,
        Failed,
        NotInstalled,
        subprocess.SubprocessError,
    ) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="measure everybody, then write the report")
    run.add_argument("--minutes", type=float, default=40.0, help="it may take so long; sizes shrink to fit")
    run.add_argument("--scale", type=float, help="the sizes themselves, however long it takes; 1 is full")
    run.add_argument("--rounds", type=int, default=3, help="how often each case is measured")
    run.add_argument("--only", metavar="A,B", help=f"contenders: {', '.join(contenders.BY_NAME)}")
    run.add_argument("--cases", metavar="A,B", help=f"cases: {', '.join(cases.BY_NAME)}")
    run.add_argument("--out", type=Path, default=LATEST, help="where the results go")
    run.add_argument("--resume", action="store_true", help="go on with the results that are there")
    run.add_argument("--estimate", action="store_true", help="say how long it would take, and end")
    short = commands.add_parser(
        "quick", help="compare ourselves with the last results, in under five minutes"
    )
    short.add_argument("--save", action="store_true", help="make these the results to compare with")
    turns = commands.add_parser("pairs", help="compare this tree with an earlier commit, turn by turn")
    turns.add_argument("--against", metavar="COMMIT", required=True, help="the commit to compare with")
    turns.add_argument("--pairs", type=int, default=pairs.PAIRS, help="how many pairs of each measure")
    turns.add_argument("--store", choices=("sqlite", "postgres"), help="one store only")
    turns.add_argument("--only", choices=[each.name for each in pairs.MEASURES], help="one measure only")
    commands.add_parser("report", help="write the report anew from the last results")
    alone = commands.add_parser("self", help="`windlass bench` on a file, then on a server of our own")
    alone.add_argument("--scale", type=float, default=1.0, help="more or fewer jobs than usual")
    return parser.parse_args(argv)


def _run(options: argparse.Namespace) -> int:
    which, who = cases.chosen(options.cases), contenders.chosen(options.only)
    is_whole = options.out == LATEST and not (options.cases or options.only)
    spare = quick.SECONDS if is_whole else 0.0
    begun = time.monotonic()
    if not options.estimate:
        who = _install(who)
    deadline = math.inf if options.scale else begun + options.minutes * 60 - spare
    scale = options.scale or cases.scale_for(which, who, options.rounds, deadline - time.monotonic())
    about = time.monotonic() - begun + cases.estimate(which, who, options.rounds, scale) + spare
    print(
        f"bench: {len(which)} cases, {len(who)} contenders, {options.rounds} rounds, scale {scale:.2g}:"
        f" about {about / 60:.0f} minutes",
        flush=True,
    )
    if options.estimate:
        return 0

    def tell(line: str) -> None:
        print(f"[{(time.monotonic() - begun) / 60:5.1f} min of {about / 60:.0f}] {line}", flush=True)

    with Places() as places:
        results = _begin(options, places, scale, {each.store for each in who})

        def keep() -> None:
            results.minutes = (time.monotonic() - begun) / 60
            results.save(options.out)

        Runner(places, results, tell=tell, deadline=deadline).run(which, who, keep)
        if is_whole:
            _keep_shares(quick.measure(places, tell))
    if options.out == LATEST:
        _publish(results)
    print(f"bench: {options.out}", "and bench/report.md" if options.out == LATEST else "")
    return _failures(results)


def _install(who: list[Contender]) -> list[Contender]:
    """Make the environments first, so that their making is not taken for the time of a case.

    Peers whose language is not here are left out, with a line that says so.
    """
    left_out: dict[str, list[str]] = {}
    for each in who:
        try:
            environments.python_for(
                each.pins, each.python, tell=lambda line: print(f"bench: {line}", flush=True)
            )
        except Cannot as reason:
            left_out.setdefault(str(reason), []).append(each.name)
        except NotInstalled:
            # Reported with each case of this contender.
            pass
    for why, names in left_out.items():
        print(f"bench: left out: {', '.join(names)}: {why}", flush=True)
    return [each for each in who if not any(each.name in names for names in left_out.values())]


def _pairs(options: argparse.Namespace) -> int:
    stores: list[contenders.StoreKind] = [options.store] if options.store else ["sqlite", "postgres"]
    with Places() as places:
        return pairs.compare(
            places,
            options.against,
            stores=stores,
            only=options.only,
            count=options.pairs,
            tell=lambda line: print(line, flush=True),
        )


def _keep_shares(found: quick.Shares) -> bool:
    """Make these the shares to compare with, unless others disturbed us too much."""
    missing = sorted(found.pairs.keys() - found.judged.keys())
    if missing:
        print(f"bench: {QUICK.name} stays as it was; disturbed: {', '.join(missing)}", file=sys.stderr)
        return False
    found.save(QUICK)
    return True


def _failures(results: Results) -> int:
    """Name who failed. A peer that fails is in the report; only what is ours makes the run a failure."""
    failed = [run for run in results.runs if run.failed]
    for run in failed:
        print(f"bench: {run.contender} failed in {run.case}: {run.failed}", file=sys.stderr)
    ours = {name for name, each in contenders.BY_NAME.items() if each.is_ours or each.is_raw}
    return 1 if any(run.contender in ours for run in failed) else 0


def _begin(options: argparse.Namespace, places: Places, scale: float, kinds: set[str]) -> Results:
    if options.resume and options.out.exists():
        results = Results.load(options.out)
        results.runs = [run for run in results.runs if not run.failed]
        return results
    return Results(
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=machine.commit(),
        scale=scale,
        rounds=options.rounds,
        machine=machine.machine(),
        servers=machine.servers(places, kinds),
    )


def _quick(options: argparse.Namespace) -> int:
    with Places() as places:
        found = quick.measure(places, lambda line: print(line, flush=True))
        if options.save:
            if not _keep_shares(found):
                return 1
            print(f"bench: {QUICK.relative_to(RESULTS.parent.parent)}")
            return 0
        return quick.judge(places, found, lambda line: print(line, flush=True))


def _report(_: argparse.Namespace) -> int:
    _publish(Results.load(LATEST))
    return 0


def _self(options: argparse.Namespace) -> int:
    """What a user can measure, on both stores: the aims that need no peer beside them."""
    words = [sys.executable, "-m", "windlass", "bench", "--scale", str(options.scale)]
    with Places() as places:
        for title, where in (("SQLite", []), ("PostgreSQL", ["--db", places.postgres().url()])):
            begun = time.monotonic()
            print(f"{title}, {machine.commit()}", flush=True)
            subprocess.run([*words, *where], check=True)
            print(f"in {time.monotonic() - begun:.0f} s\n", flush=True)
    return 0


def _publish(results: Results) -> None:
    report.write(results)
    summary.put(results)


if __name__ == "__main__":
    # What is piped into `head` ends without a traceback.
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main(sys.argv[1:]))
    os._exit(0)
