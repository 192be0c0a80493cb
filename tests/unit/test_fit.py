"""Does the quick check say yes only where the judge does?"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import InvalidPayload
from windlass.payload import Signature, quick, validate


class Place(msgspec.Struct):
    """Something nested."""

    street: str
    number: int = 1


def plain(to: str, n: int, share: float = 0.5, *, urgent: bool = False) -> None: ...


def lists(names: list[str], flags: list[bool], any_list: list[Any]) -> None: ...


def maybe(to: str | None, n: int | str, kind: Literal["a", "b"] = "a") -> None: ...


def nested(place: Place, others: list[Place], rest: dict[str, int], free: Any = None) -> None: ...


HANDLERS = (plain, lists, maybe, nested)
FIELDS = [
    "to",
    "n",
    "share",
    "urgent",
    "names",
    "flags",
    "any_list",
    "kind",
    "place",
    "others",
    "rest",
    "free",
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(-1, 1)
    | st.sampled_from(["", "a", "b", "street"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["street", "number", "$encrypted", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
PAYLOADS = st.dictionaries(st.sampled_from([*FIELDS, "$ref", "other"]), VALUES, max_size=5)


@given(st.sampled_from(HANDLERS), PAYLOADS)
def test_what_fits_quickly_is_what_the_judge_lets_pass(handler: Any, payload: dict[str, Any]) -> None:
    schema = Signature(handler, "it").schema
    if quick(schema)(payload):
        validate(schema, msgspec.json.encode(payload), "it")


@pytest.mark.parametrize(
    ("handler", "payload"),
    [
        (plain, {"to": "a", "n": 1}),
        (plain, {"to": "a", "n": 1, "share": 1, "urgent": True}),
        (lists, {"names": ["a"], "flags": [], "any_list": [1, "a", None]}),
        (maybe, {"to": None, "n": "1", "kind": "b"}),
        (nested, {"place": {"street": "a"}, "others": [], "rest": {"x": 1}, "free": {"x": [1]}}),
    ],
)
def test_what_is_usual_fits_quickly(handler: Any, payload: dict[str, Any]) -> None:
    assert quick(Signature(handler, "it").schema)(payload)


@pytest.mark.parametrize(
    "payload",
    [{"to": 1, "n": 1}, {"n": 1}, {"to": "a", "n": 1.0}, {"to": "a", "n": True}, {"to": "a", "n": 1, "x": 1}],
)
def test_what_does_not_fit_is_left_to_the_judge(payload: dict[str, Any]) -> None:
    schema = Signature(plain, "it").schema
    assert not quick(schema)(payload)
    with pytest.raises(InvalidPayload):
        validate(schema, msgspec.json.encode(payload), "it")
