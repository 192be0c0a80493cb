"""Where do the crash tests' processes live and end?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.processes import Site


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.crash)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A store, a log of executions, and processes that are gone when the test is."""
    with Site(tmp_path) as made:
        yield made
