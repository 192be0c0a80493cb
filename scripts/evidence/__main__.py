"""Write docs/evidence.md from the results in docs/evidence, and draw its plots.

With `--simulate SECONDS` the simulator runs first, and what it prints at its end is kept as data.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]

import mutants  # noqa: E402 - found by the line above

from evidence import data, page  # noqa: E402 - likewise
from tests.history.result import write_document  # noqa: E402 - likewise

DOCS = ROOT / "docs"
MUTANTS = ROOT / "bench" / "mutants.json"
# The last lines of the simulator are its summary, or the story of a broken promise.
_KEPT = 60


def main() -> int:
    """Read, write, and say what was written; 2 if a result is not what its run writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--simulate", type=float, metavar="SECONDS", help="run the simulator first")
    parser.add_argument("--store", default="sqlite", help="of the simulator (default sqlite)")
    parser.add_argument("more", nargs="*", help="further arguments of the simulator, after --")
    options = parser.parse_args()
    if options.simulate:
        simulate(options.simulate, options.store, options.more)
    try:
        for path in page.write(DOCS, results()):
            print(path.relative_to(ROOT))
    except data.BadResult as error:
        print(f"evidence: {error}", file=sys.stderr)
        return 2
    return 0


def results() -> page.Results:
    """What is committed."""
    planted = [mutant.name for mutant in mutants.MUTANTS]
    return page.Results(data.read_all(DOCS / page.FOLDER), data.read_mutants(MUTANTS), planted)


def simulate(seconds: float, store: str, more: list[str]) -> None:
    """Play seeds for a while, and keep what is printed."""
    words = [sys.executable, str(ROOT / "scripts" / "simulate.py"), "--seconds", str(seconds)]
    words += [*(["--store", store] if store != "sqlite" else []), *more]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, sep="", end="")
    write_document(
        DOCS / page.FOLDER / f"simulate-{store}.json",
        name="simulate",
        store=store,
        seconds=seconds,
        exit_code=done.returncode,
        said=done.stdout.strip().splitlines()[-_KEPT:],
    )


if __name__ == "__main__":
    sys.exit(main())
