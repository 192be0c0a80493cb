#!/usr/bin/env python3
"""Does the server answer as its contract says, whatever is made up from that contract?

schemathesis makes requests of every kind from /openapi.json, also in sequences that hand ids on, and sends
them to a server on each store, with a key that may do everything. It finds any 500, and any answer that the
contract does not tell of.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.conformance.conftest import NEW  # found only by the line above
from tests.server.conftest import serving, shop
from tests.server.contract import words

CASES = 2_000
# So many are made for each operation; sequences come on top.
EXAMPLES = 20


def main() -> int:
    """Run on each store; 1 if something was found, or too little was tried."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=CASES, help=f"at least, on each store (default {CASES})")
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="for each operation")
    parser.add_argument("--store", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    engines = ["sqlite", next(name for name in NEW if name != "sqlite")]
    chosen = [name for name in engines if options.store == "both" or name.startswith(options.store)]
    return max([run(engine, options.cases, options.examples, options.seed) for engine in chosen])


def run(engine: str, cases: int, examples: int, seed: int | None) -> int:
    """One store."""
    with (
        NEW[engine]() as url,
        shop(url) as queue,
        serving(queue) as house,
        tempfile.TemporaryDirectory() as name,
    ):
        key = house.key("root", "admin", rate=1_000_000.0)
        line = words(house.url, key, examples) + ([] if seed is None else ["--seed", str(seed)])
        done = subprocess.run(line, cwd=Path(name), capture_output=True, text=True, check=False)
    tried = sum(int(each.replace(",", "")) for each in re.findall(r"([\d,]+) generated", done.stdout))
    print(f"{engine}: {tried} cases")
    if done.returncode or tried < cases:
        print(done.stdout[-20_000:], done.stderr[-5_000:])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
