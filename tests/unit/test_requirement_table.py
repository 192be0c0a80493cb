"""Does each requirement have the tests that the table in tests/requirements.md names?"""

from __future__ import annotations

import re

import pytest

from tests import fault_table

# The areas in the order of the page, each with the number of its last requirement.
AREAS = {
    area: int(last)
    for area, last in re.findall(
        r"(\w+) (\d+)",
        """
        JOB 18  ENQ 27  IDEM 13  STORE 25  RET 7  CLAIM 24  LEASE 17  EXEC 20  RETRY 13  DLQ 16  SCHED 7
        PRIO 6  CONC 12  BRK 9  BP 10  CANC 5  WORK 13  SHUT 9  API 22  SDK 5  CLI 12  CFG 10  DASH 10
        OBS 14  SEC 13  OPS 7  DEPLOY 11  PERF 12  QUAL 7  X 32  M 39  A 24  R 37  E 18
        """,
    )
}
# Those that came later, each behind the one that it belongs to.
BESIDE = {
    "X-1": ["X-1b"],
    "X-10": ["X-10b", "X-10c", "X-10d"],
    "X-12": ["X-12b"],
    "X-13": ["X-13b"],
    "X-15": ["X-15b"],
}
ALL = 583
STATUSES = ("replaced: ", "not built: ", "later: ", "untested: ")
ROWS = fault_table.rows(fault_table.REQUIREMENTS)
NAMED = dict(ROWS)


def test_the_table_has_every_requirement_once_and_in_order() -> None:
    ids: list[str] = []
    for area, last in AREAS.items():
        for number in range(1, last + 1):
            ids += [f"{area}-{number}", *BESIDE.get(f"{area}-{number}", [])]
    assert [row for row, _ in ROWS] == ids
    assert len(ids) + len(fault_table.rows()) == ALL


@pytest.mark.parametrize("row", NAMED)
def test_what_a_row_names_exists(row: str) -> None:
    cell = NAMED[row]
    assert fault_table.misnamed_in(cell) == []
    assert fault_table.named_in(cell) or cell.strip().startswith(STATUSES)


def test_the_list_of_what_is_not_shown_is_that_of_the_tables() -> None:
    # Rows of two columns: a list, not a table of tests.
    page = fault_table.text(fault_table.REQUIREMENTS)
    listed = re.findall(r"^\| ([A-Z]+-\d+[a-z]?) \|[^|]*\|$", page, re.MULTILINE)
    assert listed == [row for row, cell in NAMED.items() if "untested: " in cell or "not shown: " in cell]
