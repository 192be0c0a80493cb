"""Does each fault that a fleet must live through have the tests that the table in tests/README.md names?"""

from __future__ import annotations

import re

import pytest

from tests import fault_table

MAKEFILE = fault_table.TESTS.parent / "Makefile"
FAULTS = sorted([*(f"F-{number:02}" for number in range(1, 51)), "F-06b", "F-06c"])
# What their tests will need is not there yet. No other fault may be without tests.
LATER = {
    **dict.fromkeys(("F-16", "F-17", "F-18", "F-32", "F-33"), "comes with Redis"),
    "F-20": "comes with the canary",
}
ROWS = fault_table.rows()
NAMED = dict(ROWS)


def test_the_table_has_every_fault_once_and_in_order() -> None:
    assert [fault for fault, _ in ROWS] == FAULTS
    assert len(FAULTS) == 52


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_fault_names_exists(fault: str) -> None:
    row = NAMED[fault]
    tests, targets = fault_table.tests_in(row), fault_table.targets_in(row)
    if fault in LATER:
        assert row.strip() == LATER[fault]
    else:
        assert tests
    for file, name in tests:
        text = (fault_table.TESTS / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"{file} has no {name}"
    for target in targets:
        assert re.search(rf"^{target}:", MAKEFILE.read_text(encoding="utf-8"), re.MULTILINE), target
    # Nothing but tests and targets is named: a misspelled one would be read as neither.
    assert row.count("`") == 2 * (len(tests) + len(targets))
