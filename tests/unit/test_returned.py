"""Whether a handler's return value can be kept."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import pytest

from windlass.errors import FatalError
from windlass.job import MAX_RESULT, Keep
from windlass.outcome import Raised, Returned
from windlass.worker.run import returned


@dataclass
class Point:
    x: int
    y: float


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None),
        (3, b"3"),
        ("ü", '"ü"'.encode()),
        ({"a": [1, None, True]}, b'{"a":[1,null,true]}'),
        (Point(1, 2.5), b'{"x":1,"y":2.5}'),
        (dt.date(2026, 1, 2), b'"2026-01-02"'),
        ("null", b'"null"'),
        ("\\u0000", b'"\\\\u0000"'),
        ("x" * (MAX_RESULT - 2), b'"' + b"x" * (MAX_RESULT - 2) + b'"'),
    ],
)
@pytest.mark.parametrize("keep", [True, "required"])
def test_what_json_can_say_is_kept(value: Any, kept: bytes | None, keep: Keep) -> None:
    assert returned(value, keep) == Returned(kept)


def test_a_type_that_keeps_no_results_does_not_even_encode_them() -> None:
    assert returned(Grumpy(), keep=False) == Returned(None)


class Grumpy:
    """Its own code raises when it is encoded."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise RuntimeError("not today")


UNKEPT = pytest.mark.parametrize(
    ("value", "why"),
    [
        (float("nan"), "result is nan"),
        ({"a": [1.0, float("inf")]}, "result.a[1] is inf"),
        (Point(1, float("-inf")), "result.y is -inf"),
        ("a\0b", "result has a NUL character"),
        ({"a\0": 1}, "a key of result has a NUL character"),
        (object(), "TypeError"),
        (Grumpy(), "Error"),
        ("\ud800", "UnicodeEncodeError"),
        ("x" * MAX_RESULT, f"it has {MAX_RESULT + 2} bytes as JSON, {MAX_RESULT} are allowed"),
    ],
)


@UNKEPT
def test_what_cannot_be_kept_leaves_the_work_done_and_says_why(value: Any, why: str) -> None:
    result = returned(value, keep=True)
    assert isinstance(result, Returned)
    assert result.value is None
    assert result.missing is not None
    assert why in result.missing


@UNKEPT
def test_a_type_that_requires_its_result_fails_without_it(value: Any, why: str) -> None:
    result = returned(value, "required")
    assert isinstance(result, Raised)
    assert isinstance(result.exception, FatalError), "another attempt would only do the work twice"
    assert str(result.exception).startswith("the work ran, but its result cannot be kept: ")
    assert why in str(result.exception)


def test_a_list_that_holds_itself_is_refused_and_not_followed_for_ever() -> None:
    endless: list[Any] = []
    endless.append(endless)
    result = returned(endless, "required")
    assert isinstance(result, Raised)
    assert "RecursionError" in str(result.exception)
