"""Where do the crash tests' processes live and end?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash.processes import Site
from tests.servers import postgres


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.crash)


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A store, a log of executions, and processes that are gone when the test is.

    The store is a SQLite file; a test that is marked `processes.on_both` runs on PostgreSQL, too.
    """
    with ExitStack() as stack:
        on_postgres = getattr(request, "param", "sqlite") != "sqlite"
        url = stack.enter_context(postgres.prepared(15)) if on_postgres else None
        yield stack.enter_context(Site(tmp_path, url))
