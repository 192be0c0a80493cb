"""The simulator: the same seed is the same run, good code holds, and a planted bug is found and shrunk."""

from __future__ import annotations

import logging

import pytest

from windlass.testing.simulation import story
from windlass.upkeep import membership


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """A simulated fleet logs as much as a real one."""
    caplog.set_level(logging.CRITICAL, "windlass")


@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_same_seed_is_the_same_run_byte_for_byte(seed: int) -> None:
    first, second = story.run(seed), story.run(seed)
    assert first.broken is None
    assert first.lines == second.lines
    assert first.dump == second.dump


@pytest.mark.parametrize(
    "seed", [11, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 17))]
)
def test_every_promise_holds_in_a_world_of_faults(seed: int) -> None:
    played = story.run(seed)
    assert played.broken is None, f"seed {seed}: {played.broken}"
    assert played.verbs > 100


@pytest.mark.slow
def test_a_planted_bug_is_found_and_shrunk_to_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "DEAD_AFTER", 1.0)
    found = next(one for seed in range(1, 20) if (one := story.run(seed, steps=300)).broken is not None)
    assert found.broken is not None
    assert found.broken.promise == "living"
    short = story.shrink(found)
    assert short.broken is not None
    assert short.broken.promise == "living"
    assert len(short.steps) <= 15
    # The story names the statements that each verb ran.
    assert any("fleet.declare_dead: declare_dead" in line for line in short.lines)


def test_a_plan_is_replayed_step_by_step() -> None:
    whole = story.run(3, steps=200)
    again = story.run(3, plan=whole.steps)
    assert again.steps == whole.steps
    assert again.dump == whole.dump
