"""The schema in the catalogue must judge as the handler's decoder does.

Known differences, all in what a class does beyond its annotations: an Enum's `_missing_`, a `__post_init__`
that raises, the tag of a tagged Struct that stands outside of a union (the schema wants it, the decoder can
do without), and length bounds on bytes (the schema counts base64 letters, so in steps of three bytes).
"""

from __future__ import annotations

import dataclasses
import inspect
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from types import NoneType
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import InvalidPayload
from windlass.payload import Signature, validate

T = TypeVar("T")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    name: str
    born: datetime | None = None


class Row(msgspec.Struct, array_like=True):
    number: int
    when: time
    note: str = ""


class Tree(msgspec.Struct):
    value: int
    branches: list[Tree] = []


class Renamed(msgspec.Struct, rename="camel"):
    first_day: date
    price: Decimal = Decimal(0)


@dataclasses.dataclass
class Address:
    street: str
    moved_in: datetime
    numbers: set[int] = dataclasses.field(default_factory=set)


class Pair(NamedTuple):
    left: int
    right: timedelta = timedelta(0)


class Some(TypedDict, total=False):
    loud: bool
    at: time


@dataclasses.dataclass
class Box(Generic[T]):
    part: T


class Crate(msgspec.Struct, Generic[T], forbid_unknown_fields=True):
    part: T


# --- annotations, each with values that fit it --------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
WORDS = TEXTS | st.sampled_from(
    [
        *("a", "red", "1", "-0", "01", "1.5", "NaN", "aGk=", "P1DT2H", "-PT1.5S", "2026-01-31", "2026-02-30"),
        *("2026-01-31T12:00:00", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123456789+05:30"),
        *("12:00:00", "12:00:00-01:00", "00000000-0000-0000-0000-000000000007", "0" * 31 + "7"),
    ]
)
MOMENTS = st.datetimes(timezones=st.just(UTC))
LOCAL_MOMENTS = st.datetimes()
HOURS = st.times() | st.times(timezones=st.just(UTC))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
AMOUNTS = st.decimals(allow_nan=False, allow_infinity=False)
CATS = st.builds(Cat, st.integers())
DOGS = st.builds(Dog, TEXTS, st.none() | MOMENTS | LOCAL_MOMENTS)
TREES = st.recursive(
    st.builds(Tree, st.integers()), lambda inner: st.builds(Tree, st.integers(), st.lists(inner, max_size=2))
)

Typed = tuple[Any, st.SearchStrategy[Any]]
SINGLES: list[Typed] = [
    (int, st.integers()),
    (float, NUMBERS),
    (str, TEXTS),
    (bool, st.booleans()),
    (NoneType, st.none()),
    (datetime, MOMENTS | LOCAL_MOMENTS),
    (Annotated[datetime, msgspec.Meta(tz=True)], MOMENTS),
    (Annotated[datetime, msgspec.Meta(tz=False)], LOCAL_MOMENTS),
    (date, st.dates()),
    (time, HOURS),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Decimal, AMOUNTS),
    (bytes, st.binary()),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Literal["a", 1] | None, st.sampled_from(["a", 1, None])),
    (Annotated[int, msgspec.Meta(ge=-3, lt=8)], st.integers(-3, 7)),
    (Annotated[float, msgspec.Meta(gt=0, le=2.5)], st.floats(0, 2.5, exclude_min=True)),
    (Annotated[int, msgspec.Meta(multiple_of=3)], st.integers(-9, 9).map(lambda number: number * 3)),
    (Annotated[str, msgspec.Meta(min_length=1, max_length=3)], st.text("abc", min_size=1, max_size=3)),
    (Annotated[str, msgspec.Meta(pattern="^[a-z]*$")], st.text("abc")),
    (int | str | None, st.integers() | TEXTS | st.none()),
    (int | float, st.integers() | NUMBERS),
    (bool | int, st.booleans() | st.integers()),
    (Decimal | None, AMOUNTS | st.none()),
    (datetime | int, MOMENTS | LOCAL_MOMENTS | st.integers()),
    (time | list[int] | None, HOURS | st.lists(st.integers()) | st.none()),
    (dict[str, Decimal] | list[date], st.dictionaries(TEXTS, AMOUNTS) | st.lists(st.dates())),
    (Colour | None, st.sampled_from(Colour) | st.none()),
    (Cat | Dog, CATS | DOGS),
    (Cat | Dog | None, CATS | DOGS | st.none()),
    (Dog | int | list[int] | None, DOGS | st.integers() | st.lists(st.integers()) | st.none()),
    (Row, st.builds(Row, st.integers(), HOURS, TEXTS)),
    (Tree, TREES),
    (Renamed, st.builds(Renamed, st.dates(), AMOUNTS)),
    (Address, st.builds(Address, TEXTS, MOMENTS, st.sets(st.integers()))),
    (Pair, st.builds(Pair, st.integers(), st.timedeltas())),
    (Some, st.fixed_dictionaries({}, optional={"loud": st.booleans(), "at": HOURS})),
    (set[int], st.sets(st.integers())),
    (dict[int, int], st.dictionaries(st.integers(), st.integers())),
    (dict[UUID, int], st.dictionaries(st.uuids(), st.integers())),
    (dict[date, int], st.dictionaries(st.dates(), st.integers())),
    (dict[Colour, int], st.dictionaries(st.sampled_from(Colour), st.integers())),
    (dict[Literal["a", "b"], str], st.dictionaries(st.sampled_from(["a", "b"]), TEXTS)),
    (dict[Annotated[str, msgspec.Meta(min_length=2)], bool], st.just({"ab": True})),
    (Annotated[list[int], msgspec.Meta(min_length=1, max_length=2)], st.just([1]) | st.just([1, 2])),
    (Annotated[dict[str, int], msgspec.Meta(min_length=1, max_length=2)], st.just({"a": 1})),
]


def composed(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    return st.one_of(
        inner.map(lambda part: (_list[part[0]], st.lists(part[1], max_size=3))),
        inner.map(lambda part: (_dict[str, part[0]], st.dictionaries(TEXTS, part[1], max_size=3))),
        inner.map(lambda part: (_tuple[part[0], ...], st.lists(part[1], max_size=3).map(tuple))),
        st.tuples(inner, inner).map(
            lambda parts: (_tuple[parts[0][0], parts[1][0]], st.tuples(parts[0][1], parts[1][1]))
        ),
        inner.map(lambda part: (_box[part[0]], st.builds(Box, part[1]))),
        inner.map(lambda part: (_crate[part[0]], st.builds(Crate, part[1]))),
    )


# To mypy a type made at run time is no type.
_list: Any = list
_dict: Any = dict
_tuple: Any = tuple
_box: Any = Box
_crate: Any = Crate

typed = st.recursive(st.sampled_from(SINGLES), composed, max_leaves=3)

# --- documents, fitting or not ------------------------------------------------------------------

documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.just(2**70)
    | st.sampled_from([0.5, 1.0, -2.0])
    | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=4,
)


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """The same document with something replaced, left out or added, anywhere in it."""
    deeper = draw(st.integers(0, 3)) > 0
    if isinstance(document, dict) and document and deeper:
        name = draw(st.sampled_from(sorted(document)))
        rest = {other: value for other, value in document.items() if other != name}
        return {**rest, name: draw(changed(document[name]))} if draw(st.integers(0, 4)) else rest
    if isinstance(document, list) and document and deeper:
        index = draw(st.integers(0, len(document) - 1))
        kept = [draw(changed(document[index]))] if draw(st.integers(0, 4)) else []
        return [*document[:index], *kept, *document[index + 1 :]]
    if isinstance(document, dict) and deeper:
        return {**document, draw(WORDS): draw(documents)}
    if isinstance(document, list) and deeper:
        return [*document, draw(documents)]
    return draw(SIMILAR.get(type(document), documents) if deeper else documents)


SIMILAR: dict[type, st.SearchStrategy[Any]] = {
    str: WORDS,
    int: st.integers(-9, 9),
    float: st.floats(-9, 9),
    bool: st.booleans(),
}


# --- the agreement ------------------------------------------------------------------------------


def taking(annotation: Any) -> Signature:
    def handler(**it: Any) -> None: ...

    parameter = inspect.Parameter("it", inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
    handler.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    return Signature(handler, "t")


def judge(signature: Signature, payload: bytes) -> tuple[bool, bool]:
    """What the decoder says, and what the schema says."""
    verdicts = []
    for check in (lambda: signature.decode(payload), lambda: validate(signature.schema, payload, "t")):
        try:
            check()
        except InvalidPayload:
            verdicts.append(False)
        else:
            verdicts.append(True)
    return verdicts[0], verdicts[1]


@given(kind=typed, data=st.data())
def test_what_was_enqueued_fits_the_schema_and_arrives(kind: Typed, data: st.DataObject) -> None:
    signature = taking(kind[0])
    value = data.draw(kind[1])
    payload = signature.encode({"it": value})
    validate(signature.schema, payload, "t")
    assert signature.decode(payload)["it"] == value


@given(kind=typed, data=st.data())
def test_decoder_and_schema_agree_on_a_good_document_that_was_changed(
    kind: Typed, data: st.DataObject
) -> None:
    signature = taking(kind[0])
    good = msgspec.json.decode(signature.encode({"it": data.draw(kind[1])}))
    by_decoder, by_schema = judge(signature, msgspec.json.encode({"it": data.draw(changed(good["it"]))}))
    assert by_decoder == by_schema


@given(kind=typed | st.just((Any, st.none())), document=documents)
def test_decoder_and_schema_agree_on_any_document(kind: Typed, document: Any) -> None:
    by_decoder, by_schema = judge(taking(kind[0]), msgspec.json.encode({"it": document}))
    assert by_decoder == by_schema


# --- what a refusal says ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "document", "complaint"),
    [
        (int, "5", 'payload.it must be an integer, got "5"'),
        (int, True, "payload.it must be an integer, got true"),
        (float, None, "payload.it must be a number, got null"),
        (int | str | None, [], "payload.it must be an integer or a string or null, got []"),
        (Literal["a", 1] | None, "b", 'payload.it must be one of 1, "a" or null, got "b"'),
        (Colour, "green", 'payload.it must be one of "blue", "red", got "green"'),
        (date, "soon", 'payload.it must be a date such as 2026-01-31, got "soon"'),
        (
            datetime | None,
            "soon",
            "payload.it must be a time such as 2026-01-31T12:00:00Z or a local time such as",
        ),
        (UUID, "7", 'payload.it must be a UUID, got "7"'),
        (timedelta, "7", 'payload.it must be a duration such as P1DT2H, got "7"'),
        (bytes, "?", 'payload.it must be base64, got "?"'),
        (Decimal, "x", 'payload.it must be a decimal number, as text or number, got "x"'),
        (list[int], [1, None], "payload.it[1] must be an integer, got null"),
        (tuple[int, str], [1], "payload.it must have at least 2 items, got 1"),
        (tuple[int, str], [1, "a", 2], "payload.it must have at most 2 items, got 3"),
        (dict[str, int], {"a": "b"}, 'payload.it.a must be an integer, got "b"'),
        (dict[UUID, int], {"a": 1}, 'a key of payload.it must be a UUID, got "a"'),
        (Address, {"street": 5}, "payload.it.moved_in is missing; it must be a time such as"),
        (
            Tree,
            {"value": 1, "branches": [{"value": "x"}]},
            'payload.it.branches[0].value must be an integer, got "x"',
        ),
        (Cat | Dog, {"type": "Dog", "name": 5}, "payload.it.name must be a string, got 5"),
        (Cat | Dog, {"type": "Cow"}, 'payload.it.type must be one of "Cat", "Dog", got "Cow"'),
        (Cat | Dog, {"lives": 9}, "payload.it.type is missing; it says which kind of object this is"),
        (Cat | Dog | None, 5, "payload.it must be an object or null, got 5"),
        (Dog | int | None, {"type": "Dog"}, "payload.it.name is missing; it must be a string"),
        (
            Dog,
            {"type": "Dog", "name": "x", "age": 5},
            "payload.it.age is unknown; the fields of payload.it are: type",
        ),
        (Annotated[int, msgspec.Meta(ge=1)], 0, "payload.it must be at least 1, got 0"),
        (Annotated[int, msgspec.Meta(gt=1)], 1, "payload.it must be above 1, got 1"),
        (Annotated[int, msgspec.Meta(lt=1)], 1, "payload.it must be below 1, got 1"),
        (Annotated[int, msgspec.Meta(multiple_of=3)], 4, "payload.it must be a multiple of 3, got 4"),
        (Annotated[str, msgspec.Meta(pattern="^a")], "b", 'payload.it must be text that matches ^a, got "b"'),
        (str, ["x" * 500], "payload.it must be a string, got " + '["' + "x" * 78 + "…"),
    ],
)
def test_a_refusal_names_the_field_its_value_and_what_is_allowed(
    annotation: Any, document: Any, complaint: str
) -> None:
    with pytest.raises(InvalidPayload) as caught:
        validate(taking(annotation).schema, msgspec.json.encode({"it": document}), "t")
    assert str(caught.value).startswith(f"t: {complaint}")


@pytest.mark.parametrize("payload", [b"", b"{", b'{"it": NaN}', b'{"it": "\xff"}', b"[" * 10_000])
def test_what_is_no_json_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidPayload, match="t: payload must be valid JSON"):
        validate(taking(int).schema, payload, "t")


def test_a_schema_still_judges_after_it_was_stored() -> None:
    schema = msgspec.json.decode(msgspec.json.encode(taking(Address).schema))
    validate(schema, b'{"it":{"street":"x","moved_in":"2026-01-31T12:00:00"}}', "t")
    with pytest.raises(InvalidPayload, match=r"payload.it.numbers\[0\] must be an integer"):
        validate(schema, b'{"it":{"street":"x","moved_in":"2026-01-31T12:00:00","numbers":["a"]}}', "t")
