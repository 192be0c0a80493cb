"""Does Windlass survive a bad day? Real processes on both stores, one line for each promise."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import pkgutil
import sys
import tempfile
import time
from pathlib import Path

# The package itself, and the database servers of the tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bad_day
from bad_day.stage import Scenario, Stage, StageBroken
from tests.history.result import add_option, write_rows
from tests.servers import postgres

ROOT = Path(__file__).resolve().parents[2]
STORES = ("sqlite", "postgres")


def main() -> int:
    """Play the scenarios; 1 if a promise was broken."""
    scenarios = found()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=[each.name for each in scenarios], help="only this one"
    )
    parser.add_argument("--store", choices=STORES, help="only on this store")
    parser.add_argument("--src", type=Path, default=ROOT / "src", help="the source tree to run")
    parser.add_argument("--list", action="store_true", help="list the scenarios and exit")
    add_option(parser)
    options = parser.parse_args()
    if options.list:
        for each in scenarios:
            print(f"{each.point:>4}  {each.name:<24} {each.story}")
        return 0
    chosen = [each for each in scenarios if not options.only or each.name in options.only]
    rows = [
        play(scenario, kind, options.src.resolve())
        for scenario in chosen
        for kind in scenario.stores
        if options.store in (None, kind)
    ]
    print()
    for row in rows:
        print(row[1])
    broken = sum(not held for held, _ in rows)
    print(f"{len(rows) - broken} held, {broken} broken")
    write_rows(options.json, "bad-day", rows)
    return 1 if broken else 0


def found() -> list[Scenario]:
    """The scenarios of all modules of this package, in the order of their points."""
    scenarios: list[Scenario] = []
    for module in pkgutil.iter_modules(bad_day.__path__):
        if module.name not in ("__main__", "stage"):
            scenarios += importlib.import_module(f"bad_day.{module.name}").SCENARIOS
    return sorted(scenarios, key=lambda each: (int("".join(filter(str.isdigit, each.point)) or 0), each.name))


def play(scenario: Scenario, kind: str, src: Path) -> tuple[bool, str]:
    """One scenario on one store: whether every promise held, and the line that says so."""
    print(f"{scenario.point} {scenario.name} on {kind}: {scenario.story}", flush=True)
    begun = time.monotonic()
    with contextlib.ExitStack() as closing:
        # Short, for the sake of sockets in it.
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="badday_")))
        if kind == "sqlite":
            url = f"sqlite:///{folder}/jobs.db"
        else:
            url = closing.enter_context(postgres.fresh(max(postgres.majors())))
        stage = Stage(folder, kind, url, src)
        closing.callback(stage.close)
        try:
            scenario.play(stage)
        except StageBroken as error:
            stage.promise("the scenario can be played", held=False, seen=error)
    broken = [each for each in stage.promises if not each.held]
    held = not broken and bool(stage.promises)
    verdict = (
        f"all {len(stage.promises)} held"
        if held
        else f"BROKEN: {broken[0].what}"
        if broken
        else "nothing checked"
    )
    return (
        held,
        f"  {scenario.point:>4} {scenario.name:<24} {kind:<9} {time.monotonic() - begun:5.0f} s  {verdict}",
    )


if __name__ == "__main__":
    sys.exit(main())
