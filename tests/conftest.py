"""How does Hypothesis search, here and in CI? And what does no test leave to the next?"""

import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import fault_table
from tests.invariants import Watch
from windlass.cli.logs import StderrHandler

# Neither a deadline nor a check of speed: a shared machine stalls now and then, and a stall is no bug.
# Fixtures that last for all examples of a test are meant to.
AT_EASE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
settings.register_profile("home", deadline=None, suppress_health_check=AT_EASE)
# CI tries the same examples each time, so that a change is blamed only for what it did.
settings.register_profile(
    "ci", deadline=None, suppress_health_check=AT_EASE, derandomize=True, print_blob=True
)
# Other versions of Python look for what Python does differently, not for rare values: make test-fast.
settings.register_profile("fast", settings.get_profile("ci"), max_examples=10)
settings.load_profile("ci" if os.environ.get("CI") else "home")


# A shell lets what it starts in the background ignore Ctrl-C, and nohup a closed terminal; what a test starts
# would ignore it, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
OBEYED = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}


# What a test starts keeps nothing that Python compiles: of a file that is written twice within a second the
# first text would be run again. The processes of pytest itself have been started by now.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs on PostgreSQL, by the names of its module and of its parameters."""
    for item in items:
        if "postgres" in item.nodeid:
            item.add_marker(pytest.mark.postgres)


FAULT_TESTS = {(fault_table.TESTS / file, name) for file, name in fault_table.tests_in(fault_table.text())}
WATCH = pytest.StashKey[Watch]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Watch the stores that a fault test opens."""
    if (item.path, getattr(item, "originalname", item.name)) not in FAULT_TESTS:
        return (yield)
    watch = item.stash[WATCH] = Watch()
    with watch.watching():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Check what must hold after a fault, while the stores are still there."""
    result = yield
    if (watch := item.stash.get(WATCH, None)) is not None:
        assert watch.broken() == []
    return result


def pytest_runtest_teardown() -> None:
    """A command that was run in this process says what is logged and where, and what signals do.

    None of that is for the next test.
    """
    log = logging.getLogger("windlass")
    log.setLevel(logging.NOTSET)
    log.propagate = True
    if any(isinstance(each, StderrHandler) for each in log.handlers):
        log.handlers[:] = [logging.NullHandler()]
    for number, handler in OBEYED.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
