"""How does Hypothesis search, here and in CI, and what is left for `make test-postgres`?"""

import os

import pytest
from hypothesis import settings

# No deadline: a shared machine stalls now and then, and a stall is no bug.
settings.register_profile("home", deadline=None)
# CI tries the same examples each time, so that a change is blamed only for what it did.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "home")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The PostgreSQL store is a preview: its tests start servers of three majors and run on request."""
    if os.environ.get("WINDLASS_TEST_POSTGRES"):
        return
    left_out = [item for item in items if "postgres" in item.nodeid.lower()]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
