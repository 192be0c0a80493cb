from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from socket import socket
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

from windlass.context import Context
from windlass.errors import InvalidPayload, InvalidValue
from windlass.payload import Signature

if TYPE_CHECKING:
    from fractions import Fraction


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(StrEnum):
    SMALL = "small"


@dataclass
class Address:
    street: str
    number: int = 1
    notes: Any = None
    tags: list[str] = field(default_factory=list)


class Options(TypedDict, total=False):
    loud: bool


class Point(msgspec.Struct):
    x: float
    y: float


class Pair(NamedTuple):
    left: int
    right: int


class Even(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise KeyError(self.number)


def of(function: Callable[..., Any]) -> Signature:
    return Signature(function, "t")


def takes(annotation: Any, default: Any = ...) -> Signature:
    def handler(it: Any) -> None: ...

    handler.__annotations__ = {"it": annotation}
    if default is not ...:
        handler.__defaults__ = (default,)
    return Signature(handler, "t")


# --- what is taken ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 2**70),
        (float, 1.5),
        (str, "ü"),
        (bool, True),
        (None, None),
        (bytes, b"\xff"),
        (Decimal, Decimal("1.10")),
        (UUID, UUID(int=7)),
        (datetime, datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC)),
        (datetime, datetime(2026, 1, 1)),  # noqa: DTZ001 - a time without a zone stays one
        (date, date(2026, 1, 1)),
        (time, time(12, 30)),
        (timedelta, timedelta(days=-1, microseconds=3)),
        (Colour, Colour.RED),
        (Size, Size.SMALL),
        (Literal["a", 1], 1),
        (list[int], [1, 2]),
        (set[str], {"a"}),
        (frozenset[int], frozenset({1})),
        (tuple[int, str], (1, "a")),
        (dict[str, list[int]], {"a": [1]}),
        (dict[int, str], {1: "a", -2: "b"}),
        (dict[UUID, int], {UUID(int=1): 1}),
        (dict[Colour, int], {Colour.RED: 1}),
        (int | str | None, None),
        (Address, Address("x", 2, {"a": [1]}, ["y"])),
        (Options, {"loud": True}),
        (Point, Point(1.0, 2.0)),
        (Pair, Pair(1, 2)),
        (list[Address | None], [Address("x"), None]),
        (Annotated[int, msgspec.Meta(ge=1, le=5)], 5),
        (Any, {"a": [1, "x", None, 1.5, True]}),
    ],
)
def test_what_is_sent_arrives_as_what_it_was(annotation: Any, value: Any) -> None:
    signature = takes(annotation)
    arrived = signature.decode(signature.encode({"it": value}))["it"]
    assert arrived == value
    assert type(arrived) is type(value)


def test_the_order_of_a_set_does_not_make_another_payload() -> None:
    signature = takes(set[str])
    assert signature.encode({"it": {"c", "a", "b"}}) == b'{"it":["a","b","c"]}'


def test_the_order_of_keys_that_are_no_texts_does_not_make_another_payload() -> None:
    signature = takes(dict[int, int])
    assert signature.encode({"it": {2: 0, 10: 0}}) == signature.encode({"it": {10: 0, 2: 0}})


def test_arguments_are_bound_as_in_a_call() -> None:
    def handler(to: str, subject: str, *, body: str = "", copies: int = 1) -> None: ...

    signature = of(handler)
    assert signature.bind("a", subject="b", copies=2) == {"to": "a", "subject": "b", "copies": 2}


def test_a_default_is_left_to_the_handler_that_will_run() -> None:
    signature = takes(list[int], [1, 2])
    assert signature.encode(signature.bind()) == b"{}"
    assert signature.decode(b"{}") == {}


def test_a_missing_annotation_means_any_json() -> None:
    def handler(it) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
        ...

    signature = of(handler)
    assert signature.decode(signature.encode({"it": [{"a": None}]})) == {"it": [{"a": None}]}


def test_the_context_is_no_part_of_the_payload() -> None:
    def handler(account: int, ctx: Context, dry: bool = False) -> None: ...  # noqa: FBT001, FBT002

    signature = of(handler)
    assert signature.context == "ctx"
    assert signature.bind(7, True) == {"account": 7, "dry": True}  # noqa: FBT003
    assert set(signature.schema["properties"]) == {"account", "dry"}


def test_an_optional_context_is_a_context() -> None:
    def handler(ctx: Context | None = None) -> None: ...

    assert of(handler).context == "ctx"


def test_a_decorated_function_is_read_through_its_decorator() -> None:
    def handler(it: int) -> None: ...

    @functools.wraps(handler)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        handler(*args, **kwargs)

    assert of(wrapper).schema["properties"] == {"it": {"type": "integer"}}


def test_annotations_may_name_what_stands_around_the_function() -> None:
    @dataclass
    class Local:
        number: int

    def handler(it: Local) -> None: ...

    with pytest.raises(InvalidValue, match="'Local' is not defined"):
        Signature(handler, "t")
    assert Signature(handler, "t", locals()).decode(b'{"it":{"number":1}}') == {"it": Local(1)}


def test_the_return_annotation_is_not_looked_at() -> None:
    def handler(it: int) -> Fraction: ...  # type: ignore[empty-body]

    assert of(handler).decode(b'{"it":1}') == {"it": 1}


# --- the schema ---------------------------------------------------------------------------------


def test_the_schema_names_types_defaults_and_what_is_required() -> None:
    def handler(to: str, when: datetime, where: Address, size: Size = Size.SMALL) -> None: ...

    schema = of(handler).schema
    definitions = schema.pop("$defs")
    assert schema == {
        "type": "object",
        "properties": {
            "to": {"type": "string"},
            "when": {"type": "string", "anyOf": [{"format": "date-time"}, {"format": "date-time-local"}]},
            "where": {"$ref": "#/$defs/Address"},
            "size": {"$ref": "#/$defs/Size", "default": "small"},
        },
        "required": ["to", "when", "where"],
        "additionalProperties": False,
    }
    assert definitions["Size"]["enum"] == ["small"]
    assert definitions["Address"]["required"] == ["street"]


def test_a_default_that_json_cannot_show_is_left_out_of_the_schema() -> None:
    assert takes(Any, object()).schema["properties"] == {"it": {}}


# --- what is refused when it is registered ------------------------------------------------------


def positional(it: int, /) -> None: ...


def variadic(*it: int) -> None: ...


def keywords(**it: int) -> None: ...


def sockets(it: socket) -> None: ...


def deep_sockets(it: list[dict[str, socket]]) -> None: ...


def unknown(it: Fraction) -> None: ...


def ambiguous(it: str | datetime) -> None: ...


def odd_keys(it: dict[float, int]) -> None: ...


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (positional, "a plain parameter, not positional-only"),
        (variadic, "not variadic positional"),
        (keywords, "not variadic keyword"),
        (sockets, r"annotated with types that JSON can carry .*socket"),
        (deep_sockets, r"annotated with types that JSON can carry .*socket"),
        (unknown, r"name 'Fraction' is not defined; is it imported for type checkers only\?"),
        (ambiguous, "more than one str-like type"),
        (odd_keys, "keys must be str, int, UUID, date"),
    ],
)
def test_a_parameter_that_cannot_be_sent_is_refused_by_name(function: Any, complaint: str) -> None:
    with pytest.raises(InvalidValue, match=rf"^parameter it of handler t must be .*{complaint}"):
        of(function)


def test_two_contexts_are_refused() -> None:
    def handler(one: Context, two: Context) -> None: ...

    with pytest.raises(InvalidValue, match=r"handler t must be .* at most one Context, got \['one', 'two'\]"):
        of(handler)


# --- what is refused when it is sent ------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ((), "missing a required argument: 'to'; it takes (to: str, count: int = 1)"),
        (("a", 1, 2), "too many positional arguments; it takes (to: str, count: int = 1)"),
    ],
)
def test_a_wrong_call_is_told_what_the_handler_takes(args: tuple[Any, ...], complaint: str) -> None:
    def handler(to: str, count: int = 1) -> None: ...

    with pytest.raises(InvalidPayload) as caught:
        of(handler).bind(*args)
    assert str(caught.value) == f"t: {complaint}"


@pytest.mark.parametrize(
    ("annotation", "value", "complaint"),
    [
        (int, "1", 'payload.it must be an integer, got "1"'),
        (int, True, "payload.it must be an integer, got true"),
        (int, 1.0, "payload.it must be an integer, got 1.0"),
        (str, None, "payload.it must be a string, got null"),
        (float, float("nan"), "payload.it must be a finite number, got nan"),
        (float | None, float("nan"), "payload.it must be a finite number, got nan"),
        (Any, float("inf"), "payload.it must be a finite number, got inf"),
        (Address, Address(5), "payload.it.street must be a string, got 5"),  # type: ignore[arg-type]
        (Address, Address("x", 1, {1, 2}), "payload.it.notes must be plain JSON or annotated as set"),
        (Any, Address("x"), "payload.it must be plain JSON or annotated as Address"),
        (Any, Colour.RED, "payload.it must be plain JSON or annotated as Colour"),
        (Any, [Point(1, 2)], r"payload.it\[0\] must be plain JSON or annotated as Point"),
        (dict[str, Any], {"a": timedelta(1)}, "payload.it.a must be plain JSON or annotated as timedelta"),
        (dict[str, Any], {"a": {3: 4}}, "a key of payload.it.a must be text"),
        (dict[int, int], {"x": 1}, "a key of payload.it must be text that matches"),
        (Colour, "green", 'payload.it must be one of "blue", "red", got "green"'),
        (list[int], [1, "2"], r'payload.it\[1\] must be an integer, got "2"'),
        (Annotated[int, msgspec.Meta(le=5)], 6, "payload.it must be at most 5, got 6"),
        (str, "x" * 70_000, "payload must be at most 65536 bytes"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused_by_place_value_and_what_is_allowed(
    annotation: Any, value: Any, complaint: str
) -> None:
    signature = takes(annotation)
    with pytest.raises(InvalidPayload, match=f"^t: {complaint}"):
        signature.encode({"it": value})


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b"{}", "payload.it is missing; it must be an integer"),
        (b'{"it":1,"extra":2}', "payload.extra is unknown; the fields of payload are: it"),
        (b"[]", r"payload must be an object, got \[\]"),
        (b"{", "payload must be valid JSON"),
        (b'{"it":"\xff"}', "payload must be valid JSON"),
    ],
)
def test_a_stored_payload_that_does_not_fit_is_refused(payload: bytes, complaint: str) -> None:
    with pytest.raises(InvalidPayload, match=f"^t: {complaint}"):
        takes(int).decode(payload)


def test_an_error_in_the_payloads_own_class_is_a_payload_that_does_not_fit() -> None:
    with pytest.raises(InvalidPayload, match="payload does not fit: 3"):
        takes(Even).decode(b'{"it":{"number":3}}')


def test_only_an_object_of_arguments_is_encoded() -> None:
    with pytest.raises(InvalidPayload, match="payload must be a JSON object"):
        takes(int).encode([1])  # type: ignore[arg-type]


def test_a_generator_is_not_quietly_used_up() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(InvalidPayload, match="generator cannot be sent as JSON"):
        takes(list[int]).encode({"it": numbers()})
