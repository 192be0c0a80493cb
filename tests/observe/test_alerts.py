"""Does each alert fire with its fault, and clear when that is fixed?

Judged three times: by the alert's predicate on what was scraped, by a real Prometheus with the alert's
expression on the same scrapes, and by the predicate on the store's history, as `windlass alerts` and the
server do.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.observe.faults import COUNTED, FAULTS, PROBED
from tests.observe.judge import Judged
from tests.observe.scene import Stage, staged
from windlass.errors import StoreError
from windlass.observe import gather
from windlass.observe.alerts import ALERTS, BY_NAME, Alert
from windlass.observe.firing import StoreMeasures, first_noticed, holding, judge


def test_every_alert_has_its_fault() -> None:
    assert set(FAULTS) == set(BY_NAME)
    assert len(BY_NAME) == len(ALERTS)
    assert set(FAULTS) > COUNTED


def fires_here(stage: Stage, alert: Alert) -> bool:
    """Whether it holds by the store's own history, as `windlass alerts` and the server judge."""
    try:
        source = StoreMeasures(stage.store, gather.read_facts(stage.store))
    except StoreError:
        source = StoreMeasures(None, None)
    return any(name == alert.name for name, _ in holding(source))


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_an_alert_fires_with_its_fault_and_clears_when_it_is_mended(name: str, tmp_path: Path) -> None:
    alert, (fault, fix) = BY_NAME[name], FAULTS[name]
    with staged(tmp_path) as stage:
        judged = Judged(alert, stage.scrapes)
        stage.look()
        stage.clock.advance(30)
        stage.look()
        assert not judged.holds()
        fault(stage)
        if name not in OWN_LOOK:
            stage.look()
        assert judged.holds()
        assert fires_here(stage, alert) is (name not in PROBED)
        fix(stage)
        stage.look()
        assert not judged.holds()
        assert not fires_here(stage, alert)
    judged.compare(tmp_path)


# A look would fix it, or is not possible.
OWN_LOOK = {"WindlassNobodyLooks", "WindlassStoreAway"}


def test_a_condition_that_has_not_held_for_long_enough_does_not_fire_yet(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        now = stage.store.now()
        deep = first_noticed(("WindlassQueueDeep", '{"type":"mail"}'), 10_001, now)
        assert not judge(deep, now + timedelta(minutes=4, seconds=59)).fires
        assert judge(deep, now + timedelta(minutes=5)).fires
        assert judge(deep, now).summary == "mail: more than 10,000 jobs are due"
