"""Statements in an order that a seed chooses: the same each time, good code holds, a planted bug is found."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from unittest import mock

import pytest

from tests.interleaving import story
from tests.interleaving.stage import Stage, opened
from tests.servers import postgres
from windlass.store.postgres import session
from windlass.store.postgres.session import Statement

MAJOR = min(postgres.MAJORS)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Sessions that are ended are logged."""
    caplog.set_level(logging.CRITICAL, "windlass")


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A stage on a server of its own."""
    if MAJOR not in postgres.majors():
        postgres.missing(f"PostgreSQL {MAJOR} is not here: {postgres.install(MAJOR)}")
    with opened(MAJOR) as made:
        yield made


def test_the_same_seed_is_the_same_schedule_and_every_promise_holds(stage: Stage) -> None:
    seeds = range(8, 20)
    first = [story.run(stage, seed) for seed in seeds]
    assert [each for each in first if each.broken is not None] == []
    assert [story.run(stage, seed) for seed in seeds] == first
    # They waited for each other, and some were cut off.
    lines = [line for each in first for line in each.lines]
    assert any("waits for" in line for line in lines)
    assert any("goes on" in line for line in lines)
    assert any("was ended before" in line or "was lost" in line for line in lines)


def test_a_batch_without_its_lock_is_found_and_shown_in_a_few_steps() -> None:
    known = session.load()
    text = known["lock_batch"].named.replace(" for update", "")
    assert text != known["lock_batch"].named
    unlocked = known | {"lock_batch": Statement.of(text)}
    with mock.patch.object(session, "load", return_value=unlocked), opened(MAJOR) as stage:
        stories = (story.run(stage, seed) for seed in range(84, 1000))
        found = next(each for each in stories if each.broken is not None)
        short = story.shrink(stage, found, replays=40)
    assert short.broken is not None
    assert short.broken.promise == "batches"
    assert short.size <= found.size
    assert short.size <= 20


def test_a_plan_is_followed_step_by_step(stage: Stage) -> None:
    whole = story.run(stage, 3)
    again = story.run(stage, 3, plan=whole.choices)
    assert again == whole
