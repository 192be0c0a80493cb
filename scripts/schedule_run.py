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
from tests.history import result
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
    result.add_option(parser)
    options = parser.parse_args()
    held = True
    with tempfile.TemporaryDirectory() as name, places(Path(name), options.only) as found:
        for place, url in found.items():
            folder = Path(tempfile.mkdtemp(dir=name))
            began = time.monotonic()
            verdict = run(url, folder, schedulers=options.schedulers, seed=options.seed)
            print(f"{place}: {len(NIGHTS)} nights in 3 zones, {time.monotonic() - began:.0f} s")
            shown = result.Result("schedule-run", url, seed=options.seed)
            shown.injected = {"kills": verdict.kills, "kills within a look": verdict.kills_within}
            shown.counts = {"fire times": verdict.fire_times}
            wrong = result.few(verdict.problems)
            shown.promise("each fire time fired exactly once", wrong, held=not verdict.problems)
            label = place.lower().replace(" ", "-")
            held &= shown.close(result.file_for(options.json, label, several=len(found) > 1))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
