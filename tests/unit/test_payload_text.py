import re
from collections import UserDict
from datetime import UTC, datetime
from typing import Any

import pytest

from windlass.errors import InvalidPayload, InvalidValue
from windlass.job import MAX_PAYLOAD
from windlass.payload import pack, parse


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


# --- JSON from outside --------------------------------------------------------------------------


def test_an_object_is_taken_as_it_is() -> None:
    assert parse('{"a": [1, 2.5, "ü", null, true], "b": {}}') == {"a": [1, 2.5, "ü", None, True], "b": {}}


def test_bytes_are_read_as_utf8() -> None:
    assert parse('{"a": "ü"}'.encode()) == {"a": "ü"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "valid JSON (line 1 column 1"),
        ("{", "valid JSON (line 1 column 2"),
        ('{"a": 1} x', "valid JSON (line 1 column 10"),
        ("[]", "a JSON object"),
        ("5", "a JSON object"),
        ("null", "a JSON object"),
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ('{"x": {"a": 1, "a": 2}}', "duplicate key 'a'"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": 1e999}', "out of range"),
        ('{"a": ' + "1" * 5_000 + "}", "valid JSON"),
        (r'{"a": "x\u0000"}', "field.a must be text without a NUL"),
        (r'{"a\u0000": 1}', "a key of field must be text without a NUL"),
        (r'{"a": ["\ud800"]}', "field.a[0] must be text without lone surrogates"),
        (r'{"\udfff": 1}', "a key of field must be text without lone surrogates"),
        ('{"a":' * 150 + "1" + "}" * 150, "nested at most 100 deep"),
        ('{"a":' * 100_000, "nested at most 100 deep"),
        (b'{"a": "\xff"}', "JSON in UTF-8"),
    ],
)
def test_anything_else_is_refused_with_the_field_named(text: str | bytes, complaint: str) -> None:
    with pytest.raises(InvalidValue, match=re.escape(complaint)) as caught:
        parse(text, "field")
    assert "field" in caught.value.field


def test_a_surrogate_pair_is_one_good_character() -> None:
    assert parse(r'{"a": "\ud83d\ude00"}') == {"a": "\N{GRINNING FACE}"}


# --- plain JSON to bytes ------------------------------------------------------------------------


def test_a_packed_payload_is_compact_json() -> None:
    assert pack({"a": [1, "ü"], "b": None}, "t") == '{"a":[1,"ü"],"b":null}'.encode()


def test_the_same_payload_is_always_the_same_bytes() -> None:
    one = {"b": {"y": 1, "x": 2}, "a": 3}
    other = {"a": 3, "b": {"x": 2, "y": 1}}
    assert pack(one, "t") == pack(other, "t") == b'{"a":3,"b":{"x":2,"y":1}}'


def test_subclasses_of_plain_types_are_packed_as_plain() -> None:
    class Safe(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "wrong"

    assert pack(UserDict({"a": Safe("x"), "b": UserDict({})}), "t") == b'{"a":"x","b":{}}'


def test_a_payload_of_exactly_the_limit_is_packed_and_one_byte_more_is_not() -> None:
    room = MAX_PAYLOAD - len('{"a":""}')
    assert len(pack({"a": "x" * room}, "t")) == MAX_PAYLOAD
    with pytest.raises(InvalidPayload, match=r"^t: payload must be at most 65536 bytes .*got 65537 bytes"):
        pack({"a": "x" * (room + 1)}, "t")


def test_nesting_is_bounded() -> None:
    assert pack(nested(100), "t")
    with pytest.raises(InvalidPayload, match="nested at most 100 deep"):
        pack(nested(150), "t")
    with pytest.raises(InvalidPayload, match="nested at most 100 deep"):
        pack(nested(100_000), "t")


def test_a_payload_that_holds_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["me"] = loop
    with pytest.raises(InvalidPayload, match="nested at most"):
        pack(loop, "t")


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (float("nan"), "payload.a must be a finite number, got nan"),
        ([{"b": float("inf")}], r"payload.a\[0\].b must be a finite number, got inf"),
        ("x\0", "payload.a must be text without a NUL"),
        ({"x\0": 1}, "a key of payload.a must be text without a NUL"),
        ("\ud800", "payload.a must be text without lone surrogates"),
        ({1: 2}, "a key of payload.a must be text"),
        ({1, 2}, "payload.a must be plain JSON or annotated as set"),
        ([b"x"], r"payload.a\[0\] must be plain JSON or annotated as bytes"),
        (datetime(2026, 1, 1, tzinfo=UTC), "payload.a must be plain JSON or annotated as datetime"),
        (object(), "payload.a must be JSON .object cannot be sent"),
    ],
)
def test_what_json_would_change_or_stores_refuse_is_refused_by_place(value: object, complaint: str) -> None:
    with pytest.raises(InvalidPayload, match=f"^t: {complaint}"):
        pack({"a": value}, "t")


def test_a_name_that_nobody_could_print_is_told_so_that_one_can() -> None:
    with pytest.raises(InvalidPayload) as refused:
        pack({"a\ud83d": 1}, "t")
    told = "t: a key of payload must be text without lone surrogates, got 'a\\ud83d'"
    assert str(refused.value).encode().decode() == told


def test_the_text_of_an_escaped_nul_is_no_nul() -> None:
    assert pack({"a": "\\u0000"}, "t") == rb'{"a":"\\u0000"}'


def test_only_an_object_is_a_payload() -> None:
    with pytest.raises(InvalidPayload, match=r"^t: payload must be a JSON object, got \[\]"):
        pack([], "t")  # type: ignore[arg-type]
