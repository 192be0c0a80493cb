"""Does each fault that a fleet must live through have the tests that the table in tests/README.md names?"""

from __future__ import annotations

import pytest

from tests import fault_table

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
    assert fault_table.misnamed_in(row) == []
    if fault in LATER:
        assert row.strip() == LATER[fault]
    else:
        assert fault_table.tests_in(row)
