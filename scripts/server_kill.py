#!/usr/bin/env python3
"""Is an accepted job ever lost, or made twice, while servers are killed and PostgreSQL goes away?

Thousands of posts with keys, by clients that try again, to servers that are killed at random: one on SQLite,
two on one PostgreSQL. Then PostgreSQL is stopped for 15 s under load: who tries again loses nothing, and who
does not is told 503 and when to come again.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.crash.storm import misled, missing_or_twice, post_while_away, post_while_killed
from tests.server.conftest import shop
from tests.server.process import ServerProcess
from tests.servers import postgres

MAJOR = 15
KILL_EVERY = (2.0, 5.0)


def main() -> int:
    """Run on each store; 1 if a promise did not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--posts", type=int, default=2_000, help="with kills, on each store (default 2000)")
    parser.add_argument("--outage", type=float, default=15.0, help="seconds without PostgreSQL (default 15)")
    parser.add_argument("--store", choices=["sqlite", "postgres", "both"], default="both")
    options = parser.parse_args()
    broken: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.store != "postgres":
            broken += kill(f"sqlite:///{folder}/jobs.db", folder, options.posts, servers=1)
        if options.store != "sqlite":
            with postgres.running(MAJOR, durable=True) as server:
                broken += kill(server.new_database(), folder, options.posts, servers=2)
                broken += go_away(server, folder, options.outage)
    for each in broken:
        print(f"BROKEN: {each}")
    return 1 if broken else 0


def kill(url: str, folder: Path, posts: int, *, servers: int) -> list[str]:
    """Posts while servers are killed."""
    place = url.partition(":")[0]
    with shop(url) as queue:
        queue.publish()
        begun = time.monotonic()
        accepted, kills = post_while_killed(url, folder, posts, servers=servers, pause=KILL_EVERY, spread=0.2)
        broken = missing_or_twice(queue, accepted)
    seconds = time.monotonic() - begun
    print(f"{place}: {len(accepted)} posts accepted, {kills} kills of {servers} server(s), {seconds:.0f} s")
    broken += [] if kills else ["no server was killed"]
    return [f"{place}: {each}" for each in broken]


def go_away(server: postgres.Server, folder: Path, seconds: float) -> list[str]:
    """Posts while PostgreSQL is away."""
    url = server.new_database()
    with shop(url) as queue:
        queue.publish()
        house = ServerProcess(url, folder)
        try:
            crowd, again = post_while_away(server, house.url, seconds)
        finally:
            house.stop()
        broken = missing_or_twice(queue, crowd.accepted) + misled(crowd)
    print(
        f"postgres away for {seconds:g} s: {len(crowd.accepted)} accepted, the first one {again:.1f} s after "
        f"it was back; who asked once was told {dict(crowd.told)}"
    )
    return [f"postgres away: {each}" for each in broken]


if __name__ == "__main__":
    sys.exit(main())
