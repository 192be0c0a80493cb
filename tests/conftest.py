"""How does Hypothesis search, here and in CI? And what does no test leave to the next?"""

import logging
import os

from hypothesis import HealthCheck, settings

# Neither a deadline nor a check of speed: a shared machine stalls now and then, and a stall is no bug.
# Fixtures that last for all examples of a test are meant to.
AT_EASE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
settings.register_profile("home", deadline=None, suppress_health_check=AT_EASE)
# CI tries the same examples each time, so that a change is blamed only for what it did.
settings.register_profile(
    "ci", deadline=None, suppress_health_check=AT_EASE, derandomize=True, print_blob=True
)
settings.load_profile("ci" if os.environ.get("CI") else "home")


def pytest_runtest_teardown() -> None:
    """A command that was run in this process sets how much is logged, which is not for the next test."""
    logging.getLogger("windlass").setLevel(logging.NOTSET)
