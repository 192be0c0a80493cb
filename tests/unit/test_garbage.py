"""A worker's process searches less often for garbage, unless the application says how often."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from windlass.cli.process import collect_rarely


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    gc.unfreeze()  # Python 3.12 starts with frozen objects of its own
    yield
    gc.unfreeze()
    gc.set_threshold(*before)
    gc.enable()


def test_what_is_loaded_is_not_searched_again() -> None:
    collect_rarely()
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold()[0] == 5_000


def test_what_the_application_has_set_stays() -> None:
    gc.set_threshold(1_234)
    collect_rarely()
    assert (gc.get_freeze_count(), gc.get_threshold()[0]) == (0, 1_234)


def test_what_the_application_has_switched_off_stays_off() -> None:
    gc.disable()
    collect_rarely()
    assert (gc.isenabled(), gc.get_freeze_count()) == (False, 0)
