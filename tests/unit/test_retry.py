"""How long does each retry policy wait, and which policies are refused?"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from windlass.errors import InvalidValue
from windlass.policy import Kind, Retry

MONTH = 30 * 86_400


def waits(policy: Retry, attempts: int = 5, chance: float = 0.0) -> list[float | None]:
    return [policy.delay(attempt, lambda: chance) for attempt in range(1, attempts + 1)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Retry(), [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]),
        (Retry(base=1, cap=300), [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]),
        (Retry(kind="power", base=3), [3, 9, 27, 81, 243]),
        (Retry(kind="linear", base=7), [7, 14, 21, 28]),
        (Retry(kind="fixed", base=7), [7, 7, 7]),
        (Retry(kind="list", delays=(5, 60, 600)), [5, 60, 600, 600, 600]),
        (Retry(kind="never"), [None, None]),
        (Retry(base=0), [0, 0, 0]),
    ],
)
def test_a_policy_waits(policy: Retry, expected: list[float | None]) -> None:
    assert waits(policy, len(expected)) == expected


def test_the_defaults_are_the_promised_ones() -> None:
    assert Retry() == Retry(kind="exponential", base=30, cap=3600, jitter=15)


def test_jitter_is_added_after_the_cap() -> None:
    assert waits(Retry(cap=100, jitter=10), 4, chance=0.5) == [35, 65, 105, 105]


PATIENT = st.floats(0, MONTH)
CAPPED: list[Kind] = ["exponential", "power", "linear"]
CHANCE = st.floats(0, 1, exclude_max=True)
GROWING = st.builds(Retry, kind=st.sampled_from(CAPPED), base=PATIENT, cap=PATIENT, jitter=PATIENT)
LISTED = st.builds(
    Retry, kind=st.just("list"), jitter=PATIENT, delays=st.lists(PATIENT, min_size=1, max_size=4).map(tuple)
)
POLICIES = GROWING | LISTED | st.builds(Retry, kind=st.sampled_from(["fixed", "never"]), base=PATIENT)


@given(POLICIES, st.integers(1, 20), CHANCE)
def test_a_wait_is_never_negative_and_has_a_bound(policy: Retry, attempt: int, chance: float) -> None:
    seconds = policy.delay(attempt, lambda: chance)
    if policy.kind == "never":
        assert seconds is None
    else:
        longest = policy.cap if policy.kind in CAPPED else max(policy.base, *policy.delays, 0)
        assert seconds is not None
        assert 0 <= seconds <= longest + policy.jitter


@given(GROWING, st.integers(1, 19), CHANCE)
def test_a_later_attempt_never_waits_less(policy: Retry, attempt: int, chance: float) -> None:
    assume(policy.kind != "power" or policy.base >= 1)
    sooner, later = (policy.delay(number, lambda: chance) for number in (attempt, attempt + 1))
    assert sooner is not None
    assert later is not None
    assert sooner <= later


def test_what_was_written_out_is_not_cut_by_the_cap() -> None:
    assert waits(Retry(kind="list", delays=(60, 86_400)), 3) == [60, 86_400, 86_400]
    assert waits(Retry(kind="fixed", base=7_200), 2) == [7_200, 7_200]


@pytest.mark.parametrize("kind", ["exponential", "power", "linear"])
def test_an_absurd_attempt_number_waits_for_the_cap(kind: Kind) -> None:
    assert Retry(kind=kind, base=MONTH, cap=50, jitter=0).delay(100_000, lambda: 0) == 50


def test_a_thousand_jobs_that_fail_together_do_not_come_back_together() -> None:
    chance = random.Random(7).random
    seconds = [math.floor(Retry().delay(1, chance) or 0) for _ in range(1000)]
    assert set(seconds) == set(range(30, 45))
    assert max(seconds.count(second) for second in set(seconds)) < 150


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"kind": "sometimes"}, "retry.kind"),
        ({"base": -1}, "retry.base"),
        ({"base": float("nan")}, "retry.base"),
        ({"base": float("inf")}, "retry.base"),
        ({"base": "soon"}, "retry.base"),
        ({"cap": -0.5}, "retry.cap"),
        ({"cap": MONTH + 1}, "retry.cap"),
        ({"jitter": -1}, "retry.jitter"),
        ({"jitter": None}, "retry.jitter"),
        ({"kind": "list"}, "retry.delays"),
        ({"kind": "list", "delays": (1, -1)}, "retry.delays"),
        ({"kind": "list", "delays": (1, float("nan"))}, "retry.delays"),
        ({"kind": "list", "delays": ("soon",)}, "retry.delays"),
        ({"kind": "fixed", "delays": (1, 2)}, "retry.delays"),
        ({"base": True}, "retry.base"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Retry(**wrong)
    assert refused.value.field == named
    assert named in str(refused.value)
