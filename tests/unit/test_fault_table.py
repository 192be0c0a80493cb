"""Does each fault that a fleet must live through have the tests that the table in tests/README.md names?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# What a fleet must live through: see the table.
FLEET = {
    *("F-01", "F-02", "F-03", "F-04", "F-05", "F-06", "F-06b", "F-06c", "F-11", "F-25", "F-26", "F-27"),
    *("F-28", "F-29", "F-30", "F-31", "F-34", "F-39", "F-40", "F-42", "F-43"),
}
ROW = re.compile(r"^\| (F-\d+[a-z]?) \|[^|]*\|([^|]*)\|$", re.MULTILINE)
ROWS = dict(ROW.findall((TESTS / "README.md").read_text()))


def test_the_table_has_every_fault() -> None:
    assert set(ROWS) == FLEET


@pytest.mark.parametrize("fault", sorted(FLEET))
def test_the_tests_of_a_fault_exist(fault: str) -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", ROWS[fault])
    assert named
    for file, name in named:
        assert f"def {name}(" in (TESTS / file).read_text()
