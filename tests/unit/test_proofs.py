"""Does every model hold within small bounds, and is every broken twin refuted?"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

import windlass
from proofs import lives, run
from tests.unit.scene import THEN, running
from windlass.job import Attempt, Error, Job, JobState, Reason

MODELS = run.models()
TWINS = [(model, twin) for model in MODELS.values() for twin in model.twins]


@pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
def test_a_model_keeps_its_promises(model: run.Model) -> None:
    found = run.check(model, model.quick)
    assert found.refuted is None, found.output
    assert found.distinct > 1000, "the bounds leave nothing to check"


@pytest.mark.parametrize(
    ("model", "twin"), TWINS, ids=[f"{model.name}-{'-'.join(twin.off)}" for model, twin in TWINS]
)
def test_a_broken_twin_is_refuted(model: run.Model, twin: run.Twin) -> None:
    found = run.check(model, {**model.quick, **twin.bounds}, twin)
    assert found.refuted in {twin.refutes, run.LIVENESS}, found.output


def test_every_switch_has_a_twin() -> None:
    for model in MODELS.values():
        assert {switch for twin in model.twins for switch in twin.off} == set(model.switches)
        assert {twin.refutes for twin in model.twins} <= {*model.invariants, *model.properties}


def test_the_table_names_actions_and_code_that_exist() -> None:
    text = (run.HERE / "README.md").read_text().partition("## From the model to the code")[2]
    source = Path(windlass.__file__).parent
    sections = "".join(path.read_text() for path in source.rglob("*.sql"))
    model, absent, seen = "", set[str](), set[str]()

    def look(names: str, before: str, after: str, where: str) -> None:
        for name in re.findall(r"\w+", names):
            if not re.search(rf"{before}{name}{after}", where, re.MULTILINE):
                absent.add(f"{model}: {name}")

    for line in re.findall(r"^\| .* \| `.*", text, re.MULTILINE):
        _, name, actions, code, _ = (cell.strip() for cell in line.split("|"))
        model = name.strip("`") or model
        seen.add(model)
        look(actions, "^", r"\b.*==", (run.HERE / f"{model}.tla").read_text())
        for path, names in re.findall(r"`([\w/]+\.(?:py|sql))(?:: ([\w, ]+))?`", code):
            look(names, r"(?:def|class) ", r"\b", (source / path).read_text())
        look(" ".join(re.findall(r"`([a-z_]+)`", code)), r"^-- \w+: ", r"\b", sections)
    assert absent == set()
    assert seen == set(MODELS)


# --- the lives of real jobs ---------------------------------------------------------------------


def lived(state: JobState, attempts: int, *records: tuple[int, int, str]) -> Job:
    """A job of five attempts with these records: number, claim, outcome (lost: its worker died)."""
    history = tuple(
        Attempt(
            number,
            claim,
            "w",
            THEN,
            THEN,
            outcome.removeprefix("lost "),
            error=Error(Reason.WORKER_LOST) if outcome.startswith("lost ") else None,
        )
        for number, claim, outcome in records
    )
    return msgspec.structs.replace(running("j"), state=state, attempts=attempts, history=history)


LOST = tuple((number, number, "lost retry") for number in (1, 2, 3, 4))
LEGAL = {
    "at once": lived(JobState.COMPLETED, 1, (1, 1, "completed")),
    "a worker died": lived(JobState.COMPLETED, 2, (1, 1, "lost retry"), (2, 2, "completed")),
    "given back in between": lived(JobState.COMPLETED, 2, (1, 2, "retry"), (2, 5, "completed")),
    "interrupted": lived(JobState.COMPLETED, 1, (1, 1, "released"), (1, 2, "completed")),
    "all workers died": lived(JobState.DEAD, 5, *LOST, (5, 5, "lost dead")),
    "waits": lived(JobState.PENDING, 1, (1, 1, "retry")),
}
ILLEGAL = {
    "ran once more after its last attempt": lived(JobState.PENDING, 5, *LOST, (5, 5, "lost retry")),
    "an attempt left no record": lived(JobState.COMPLETED, 2, (2, 2, "completed")),
    "two wrote about one claim": lived(JobState.COMPLETED, 2, (1, 1, "lost retry"), (2, 1, "completed")),
    "ended twice": lived(JobState.COMPLETED, 2, (1, 1, "completed"), (2, 2, "completed")),
    "ended, and waits again": lived(JobState.PENDING, 1, (1, 1, "completed")),
    "lost before its last attempt, and dead": lived(JobState.DEAD, 2, (1, 1, "retry"), (2, 2, "lost dead")),
    "completed without a record": lived(JobState.COMPLETED, 1),
}


def test_lives_that_jobs_can_have_are_behaviours_of_the_lease_model() -> None:
    assert [name for name, job in LEGAL.items() if lives.strange([job])] == []


def test_a_planted_illegal_step_is_refused() -> None:
    assert [name for name, job in ILLEGAL.items() if not lives.strange([job])] == []
