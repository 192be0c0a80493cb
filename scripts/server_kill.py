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

from tests.crash.storm import RULES, availability, misled, post_while_away, post_while_killed
from tests.history import result
from tests.history.check import check
from tests.history.end import look
from tests.history.record import Reader, Recorder
from tests.server.conftest import shop
from tests.server.process import ServerProcess
from tests.servers import postgres
from windlass import Queue

MAJOR = 15
KILL_EVERY = (2.0, 5.0)
# For how long a client tries again by itself: its default.
PATIENCE = 30.0
LEAST_ANSWERED = 0.9995


def main() -> int:
    """Run on each store; 1 if a promise did not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--posts", type=result.count, default=2_000, help="with kills, on each store (default 2000)"
    )
    parser.add_argument(
        "--outage", type=result.positive, default=15.0, help="seconds without PostgreSQL (default 15)"
    )
    parser.add_argument("--store", choices=["sqlite", "postgres", "both"], default="both")
    result.add_option(parser)
    options = parser.parse_args()
    runs: dict[str, result.Result] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.store != "postgres":
            runs["sqlite"] = kill(f"sqlite:///{folder}/jobs.db", folder, options.posts, servers=1)
        if options.store != "sqlite":
            with postgres.running(MAJOR, durable=True) as server:
                runs["postgres"] = kill(server.new_database(), folder, options.posts, servers=2)
                runs["postgres-away"] = go_away(server, folder, options.outage)
    several = len(runs) > 1
    ends = [run.close(result.file_for(options.json, label, several=several)) for label, run in runs.items()]
    return 0 if all(ends) else 1


def kill(url: str, folder: Path, posts: int, *, servers: int) -> result.Result:
    """Posts while servers are killed."""
    shown = result.Result("server-kill", url)
    shown.versions = result.versions(url)
    with shop(url) as queue:
        queue.publish()
        recorder, begun = Recorder(folder / f"{shown.store}-kills"), time.monotonic()
        kills = post_while_killed(
            url, recorder, posts, servers=servers, pause=KILL_EVERY, spread=0.2, patience=PATIENCE
        )
        print(f"{shown.store}: {kills} kills of {servers} server(s), {time.monotonic() - begun:.0f} s")
        judge(shown, recorder, queue)
    shown.promise("servers were killed", kills, held=kills > 0)
    return shown


def go_away(server: postgres.Server, folder: Path, seconds: float) -> result.Result:
    """Posts while PostgreSQL is away."""
    url = server.new_database()
    shown = result.Result("server-kill-away", url)
    shown.versions = result.versions(url)
    with shop(url) as queue:
        queue.publish()
        house = ServerProcess(url, folder)
        recorder = Recorder(folder / "away")
        try:
            crowd, again = post_while_away(server, house.url, recorder, seconds)
        finally:
            house.stop()
        print(f"postgres away for {seconds:g} s, the first post accepted {again:.1f} s after it was back")
        judge(shown, recorder, queue)
    shown.recovery.append(again)
    wrong = misled(crowd)
    told = wrong or dict(crowd.told)
    shown.promise("a client that asks once gets 201, or 503 and when to come again", told, held=not wrong)
    return shown


def judge(shown: result.Result, recorder: Recorder, queue: Queue) -> None:
    """The history, and how many calls of clients were answered within their own retries."""
    calls = Reader(recorder.path).read()
    check(calls, look(queue.store, shown.url), RULES).add_to(shown)
    answered, made = availability(calls)
    shown.counts |= {"client calls": made, "client calls answered": answered}
    share = answered / made
    least = f"{LEAST_ANSWERED:.2%} of client calls succeed within the SDK's retries"
    shown.promise(least, f"{answered} of {made}, {share:.3%}", held=share >= LEAST_ANSWERED)


if __name__ == "__main__":
    sys.exit(main())
