"""What does pytest offer once Windlass is installed?

Loaded with every run of pytest, also by those who test no jobs: so it stands beside the package, which takes
longer to import than pytest itself, and imports it when a fixture is used.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from windlass.queue import Queue
    from windlass.testing.kit import Kit

_OPTION = "windlass_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    """One line in the configuration: where the application's queue is."""
    parser.addini(_OPTION, "The application's queue, as module:name, for the fixture windlass_kit.")


@pytest.fixture
def windlass_app(pytestconfig: pytest.Config) -> Queue:
    """The application's queue, as the option of the same name says; else a new one. Yours to override."""
    from windlass.queue import Queue  # noqa: PLC0415 - see above

    app = pytestconfig.getini(_OPTION)
    if not app:
        return Queue()
    try:
        found = pkgutil.resolve_name(app)
    except (ValueError, ImportError, AttributeError) as error:
        raise pytest.UsageError(f"{_OPTION} must be a module:queue that can be imported: {error}") from None
    if not isinstance(found, Queue):
        raise pytest.UsageError(f"{_OPTION} must name a Queue, and {app} is a {type(found).__name__}")
    return found


@pytest.fixture
def windlass_kit(windlass_app: Queue) -> Iterator[Kit]:
    """The application's queue on an empty store of this test's own, with everything to look and run."""
    from windlass.testing.kit import override  # noqa: PLC0415 - see above

    with override(windlass_app) as kit:
        yield kit
