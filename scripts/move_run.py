#!/usr/bin/env python3
"""Does a killed move lose anything? Fills a SQLite store, moves it to a new server, kills it half-way."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.crash.mixture import fill
from tests.history import result
from tests.servers import postgres
from windlass import connect


def moving(source: str, target: str) -> subprocess.Popen[str]:
    """A move in a process of its own."""
    words = [sys.executable, "-m", "windlass", "db", "move", "--db", source, "--to", target, "--json"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def arrived(target: str) -> int:
    """How many jobs are in the target by now."""
    with contextlib.suppress(psycopg.Error), psycopg.connect(target) as connection:
        found = connection.execute(
            "select (select count(*) from windlass.jobs) + count(*) from windlass.archive"
        )
        return int(next(iter(found))[0])
    return 0


def kill_at(process: subprocess.Popen[str], target: str, rows: int) -> int:
    """Kill a move when so many rows have arrived."""
    while process.poll() is None and arrived(target) < rows:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    return arrived(target)


def counts(url: str) -> dict[str, int]:
    """How many jobs stand where."""
    with contextlib.closing(connect.open(url)) as opened:
        found: dict[str, int] = {}
        for each in opened.store.counts().counts:
            name = f"{each.state.value} {each.view or ''}".strip()
            found[name] = found.get(name, 0) + each.count
        return found


def main() -> int:
    """Fill, move, kill, move, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--major", type=int, default=max(postgres.majors()))
    result.add_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, postgres.running(options.major, durable=True) as server:
        source, target = f"sqlite:///{folder}/jobs.db", server.new_database()
        began = time.monotonic()
        with contextlib.closing(connect.open(source)) as opened:
            fill(opened.store, options.jobs)
        print(f"filled in {time.monotonic() - began:.0f} s: {counts(source)}")
        left = kill_at(moving(source, target), target, options.jobs // 2)
        print(f"killed with {left:,} jobs in PostgreSQL {options.major}")
        began = time.monotonic()
        process = moving(source, target)
        out, err = process.communicate()
        print(err.strip())
        if process.returncode:
            return process.returncode
        took = time.monotonic() - began
        moved = json.loads(out)
        print(f"resumed: {moved['copied']:,} rows copied and all compared in {took:.1f} s")
        for table, found in moved["tables"].items():
            print(f"  {table:<10}{found['rows']:>9,} rows, both {found['checksum']}")
        shown = result.Result("move-run", target)
        shown.injected, shown.counts = {"kills": 1}, {"jobs": options.jobs, "arrived at the kill": left}
        there, here = counts(target), counts(source)
        shown.promise("the counts by state agree", there, held=there == here)
        said = subprocess.run(
            [sys.executable, "-m", "windlass", "run", "--db", source, "--", "true"],
            check=False,
            capture_output=True,
            text=True,
        )
        shown.promise("the source refuses new jobs", said.stderr.strip(), held=said.returncode != 0)
        return 0 if shown.close(options.json) else 1


if __name__ == "__main__":
    sys.exit(main())
