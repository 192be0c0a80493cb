#!/usr/bin/env python3
"""Four schedulers, killed and restarted at random, over the nights in which clocks change: once each?"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.crash.schedulers import NIGHTS, run
from tests.servers import postgres


@contextlib.contextmanager
def places(folder: Path, only: str) -> Iterator[dict[str, str]]:
    """A file, and a database of every PostgreSQL that is here; or only those with this in their names."""
    with contextlib.ExitStack() as servers:
        found = {"SQLite": f"sqlite:///{folder}/jobs.db"} if only in "SQLite" else {}
        for major in (each for each in postgres.majors() if only in f"PostgreSQL {each}"):
            server = servers.enter_context(postgres.running(major, durable=True))
            found[f"PostgreSQL {major}"] = server.new_database()
        yield found


def main() -> int:
    """Run on each store, and say what was lost or came twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedulers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="STORE", help="SQLite, or 'PostgreSQL 18'")
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as name, places(Path(name), options.only) as found:
        for place, url in found.items():
            folder = Path(tempfile.mkdtemp(dir=name))
            began = time.monotonic()
            verdict = run(url, folder, schedulers=options.schedulers, seed=options.seed)
            took = time.monotonic() - began
            print(
                f"{place}: {verdict.fire_times} fire times over {len(NIGHTS)} nights in 3 zones, "
                f"{verdict.kills} schedulers killed, {verdict.kills_within} within a look, {took:.0f} s: "
                + ("each fired exactly once" if not verdict.problems else f"{len(verdict.problems)} WRONG")
            )
            for problem in verdict.problems[:20]:
                print(f"  {problem}")
            wrong += len(verdict.problems)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
