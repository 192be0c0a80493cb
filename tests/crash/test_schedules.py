"""Does a fire time survive the death of whoever fires it? A short form of scripts/schedule_run.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.schedulers import NIGHTS, run
from tests.servers import postgres


@pytest.fixture(params=["sqlite", max(postgres.MAJORS)], ids=str)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
    else:
        with postgres.fresh(request.param) as fresh:
            yield fresh


def test_each_fire_time_of_both_nights_fires_once_though_schedulers_are_killed(
    url: str, tmp_path: Path
) -> None:
    autumn, spring = NIGHTS[1], NIGHTS[4]
    # What is right about the times is right on every store; that kills lose none is tried on both.
    nights = (autumn, spring) if url.startswith("sqlite") else (autumn,)
    verdict = run(url, tmp_path, nights=nights, schedulers=3, seed=7)
    assert verdict.problems == []
    assert verdict.kills_within >= 1
    assert verdict.fire_times > 70 * len(nights)
