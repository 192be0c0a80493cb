"""How long does each retry policy wait, and which policies are refused?"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import InvalidValue
from windlass.policy.retry import KINDS, Kind, Retry

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
POLICIES = st.builds(
    Retry,
    kind=st.sampled_from(KINDS),
    base=PATIENT,
    cap=PATIENT,
    jitter=PATIENT,
    delays=st.lists(PATIENT, min_size=1, max_size=4).map(tuple),
)


@given(POLICIES, st.integers(1, 20), st.floats(0, 1, exclude_max=True))
def test_a_wait_is_never_negative_and_never_beyond_cap_and_jitter(
    policy: Retry, attempt: int, chance: float
) -> None:
    seconds = policy.delay(attempt, lambda: chance)
    if policy.kind == "never":
        assert seconds is None
    else:
        assert seconds is not None
        assert 0 <= seconds <= policy.cap + policy.jitter


@given(POLICIES, st.integers(1, 19), st.floats(0, 1, exclude_max=True))
def test_a_later_attempt_never_waits_less(policy: Retry, attempt: int, chance: float) -> None:
    if policy.kind in {"list", "never"} or (policy.kind == "power" and policy.base < 1):
        return
    sooner = policy.delay(attempt, lambda: chance)
    later = policy.delay(attempt + 1, lambda: chance)
    assert sooner is not None
    assert later is not None
    assert sooner <= later


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
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Retry(**wrong)
    assert refused.value.field == named
    assert named in str(refused.value)
