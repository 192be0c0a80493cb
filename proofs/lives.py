"""Are the lives of real jobs, as their records show them, behaviours of the lease model?

TLC writes every state that the model reaches. From the histories in them comes the set of steps that a life
may take: from one recorded attempt to the next, and from the last one to where the job is. `kill_run.py` asks
for the steps of every job that it has seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from proofs import run
from windlass.job import Job, Reason

# One worker is enough, since the reaper may take its lease at any time. Of three attempts any can follow any.
_BOUNDS = {"Jobs": "{j1}", "Workers": "{w1}", "Interruptions": 2, "GivenBack": 0, "Crashes": 0}
_ATTEMPTS = (1, 3)
_ROW = re.compile(r"/\\ (live|archive) = (.*?)(?=^/\\|\Z)", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r'(\w+) \|-> "?([\w ]+)"?')
_LOST = {Reason.WORKER_LOST, Reason.LEASE_EXPIRED}


class Record(NamedTuple):
    """An attempt as it is recorded: how often the job was claimed by then, its number, and how it ended."""

    claim: int
    number: int
    outcome: str


class Life(NamedTuple):
    """What is known of a job when no one runs it: where it is, its attempts and their records."""

    state: str
    attempts: int
    most: int
    records: tuple[Record, ...]


class Step(NamedTuple):
    """From one record to the next, or from the last one to where the job is."""

    before: str
    after: str
    # How the attempt's number goes on, whether it is the job's last one, and whether the claim is later.
    rises: int
    last: bool
    later: bool


def strange(jobs: Iterable[Job]) -> dict[str, Step]:
    """The jobs whose records cannot come from the lease model, each with the step that the model lacks."""
    allowed = model_steps()
    found: dict[str, Step] = {}
    for job in jobs:
        for step in steps(_recorded(job)):
            if step not in allowed:
                found.setdefault(job.id, step)
    return found


@cache
def model_steps() -> frozenset[Step]:
    """Every step of every life in the lease model."""
    model, lives = run.models()["Lease"], set[Life]()
    for most in _ATTEMPTS:
        text = run.states(model, {**_BOUNDS, "MaxAttempts": most})
        lives |= {life for state in text.split("State ") for life in _modelled(state, most)}
    return frozenset(step for life in lives for step in steps(life))


def steps(life: Life) -> Iterator[Step]:
    """The steps of one life."""
    before = Record(0, 0, "begun")
    for each in life.records:
        later = each.claim > before.claim
        rises = each.number - before.number
        yield Step(before.outcome, each.outcome, rises, each.number == life.most, later)
        before = each
    yield Step(
        before.outcome,
        f"is {life.state}",
        life.attempts - before.number,
        before.number == life.most,
        later=True,
    )


def _modelled(state: str, most: int) -> Iterator[Life]:
    """The job's life in a state of the model, from the one of the two tables that has it."""
    for _, row in _ROW.findall(state):
        head, _, tail = " ".join(row.split()).partition("history |-> ")
        history, _, rest = tail.partition(">>")
        fields = dict(_FIELD.findall(head + rest))
        if fields.get("state") not in {None, "gone", "processing"}:
            records = [dict(_FIELD.findall(each)) for each in re.findall(r"\[(.*?)\]", history)]
            known = tuple(
                Record(int(each["claim"]), int(each["number"]), each["outcome"]) for each in records
            )
            yield Life(fields["state"], int(fields["attempts"]), most, known)


def _recorded(job: Job) -> Life:
    records = []
    for each in job.history:
        lost = each.error is not None and each.error.reason in _LOST
        records.append(Record(each.claim, each.number, f"lost {each.outcome}" if lost else each.outcome))
    return Life(job.state.value, job.attempts, job.max_attempts, tuple(records))
