"""Can a busy machine, or another test, make a test fail? Then it tests those. See tests/README.md."""

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
    "a wait for a result that is not PATIENCE": r"(?<!Event\(\))\.(wait|result)\((timeout=)?\d{2,}\)",
    "an answer within five seconds": r"httpx2\.(get|post|put|delete|request)\(|httpx2\.Client\((?!.*timeout)",
    "a search that must be quick": r"suppress_health_check=|settings\(.*deadline=",
    "an answer that is taken to come in one piece": r"(?<!:= )\b\w+\.recv\([\d_]{2,}\)",
    "a process that may be gone by the next word": r"pid_exists\([^)]*\) (or|and) |if psutil\.pid_exists",
}
MEDDLING = {
    "sessions of other tests' databases": r"pg_stat_activity where (?!datname|pid\b|\{)",
    "modules that others have imported": r"(\bdel |delitem\()sys\.modules",
    "a variable that stays": r"os\.environ\[[^]]+\] *=|os\.(putenv|chdir)\(",
    "what Python does for everybody": r"warnings\.(simplefilter|filterwarnings)|logging\.disable|\btzset\(",
}
ALLOWED = {
    # This is where it is defined.
    ("waiting.py", "a patience of its own"),
    # A driver that is to run out of time.
    ("surface/test_bench.py", "a wait of its own length"),
    # For all of them; and for a search of minutes.
    ("conftest.py", "a search that must be quick"),
    ("conformance/test_model.py", "a search that must be quick"),
    # Only what was loaded from a test's own folder, and what a test sees to that nobody imports.
    ("surface/conftest.py", "modules that others have imported"),
    ("worker/test_tracing.py", "modules that others have imported"),
    # For all that tests start; and in a process that is about to be a shell.
    ("conftest.py", "a variable that stays"),
    ("surface/test_completion.py", "a variable that stays"),
}


@pytest.mark.parametrize("race", RACES)
def test_no_test_races_with_the_clock(race: str) -> None:
    assert found(race, RACES[race]) == []


@pytest.mark.parametrize("meddling", MEDDLING)
def test_no_test_meddles_with_others(meddling: str) -> None:
    assert found(meddling, MEDDLING[meddling]) == []


def found(what: str, pattern: str) -> list[str]:
    """Where tests do it that are not allowed to."""
    sought = re.compile(pattern, re.MULTILINE)
    return [
        f"{name}: {hit[0]}"
        for path in MODULES
        if ((name := path.relative_to(TESTS).as_posix()), what) not in ALLOWED
        for hit in sought.finditer(path.read_text(encoding="utf-8"))
    ]
