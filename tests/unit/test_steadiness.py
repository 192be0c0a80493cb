"""Can a busy machine make a test fail? Then it tests the machine. See tests/README.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MODULES = [path for path in sorted(TESTS.rglob("*.py")) if path != Path(__file__)]
RACES = {
    "a time that was measured, against a number": r"(monotonic|perf_counter|time)\(\) - \w+ <=? *[\d.]",
    "a wait of its own length": r"\bwithin=[\d.]+",
    "a limit for one test": r"mark\.timeout\((?!0\))",
    "a patience of its own": r"^_?(PATIENCE|LONGEST|LONG) *= *[\d.]",
    "a wait that may well be too short": r"assert \w[\w.]*\.(wait|acquire|join|result)\((timeout=)?[\d.]+\)",
}
ALLOWED = {
    # This is where it is defined.
    ("waiting.py", "a patience of its own"),
    # A driver that is to run out of time.
    ("surface/test_bench.py", "a wait of its own length"),
}


@pytest.mark.parametrize("race", RACES)
def test_no_test_races_with_the_clock(race: str) -> None:
    pattern = re.compile(RACES[race], re.MULTILINE)
    found = [
        f"{name}: {hit[0]}"
        for path in MODULES
        if ((name := path.relative_to(TESTS).as_posix()), race) not in ALLOWED
        for hit in pattern.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
