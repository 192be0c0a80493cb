"""Does every model hold within small bounds, and is every broken twin refuted?"""

from __future__ import annotations

import pytest

from proofs import run

MODELS = run.models()
TWINS = [(model, twin) for model in MODELS.values() for twin in model.twins]


@pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
def test_a_model_keeps_its_promises(model: run.Model) -> None:
    found = run.check(model, model.quick)
    assert found.refuted is None, found.output
    assert found.distinct > 1000, "the bounds leave nothing to check"


@pytest.mark.parametrize(("model", "twin"), TWINS, ids=[f"{model.name}-{twin.off}" for model, twin in TWINS])
def test_a_broken_twin_is_refuted(model: run.Model, twin: run.Twin) -> None:
    found = run.check(model, {**model.quick, **twin.bounds}, twin)
    assert found.refuted in {twin.refutes, run.LIVENESS}, found.output


def test_every_switch_has_a_twin() -> None:
    for model in MODELS.values():
        assert {twin.off for twin in model.twins} == set(model.switches)
        assert {twin.refutes for twin in model.twins} <= {*model.invariants, *model.properties}
