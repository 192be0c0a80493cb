"""What does the catalogue hold while two releases of an application are live?"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.conformance.scene import MAIL
from windlass.clock import ManualClock
from windlass.errors import InvalidPayload
from windlass.job import Shape, TypeInfo
from windlass.payload import validate_for
from windlass.store.store import Store

NARROW = {"type": "object", "properties": {"to": {"type": "string"}}, "additionalProperties": False}
WIDE = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "copy": {"type": "string"}},
    "additionalProperties": False,
}
OLD = TypeInfo(name=MAIL, schema=NARROW, options={"timeout": 30})
NEW = TypeInfo(name=MAIL, schema=WIDE, options={"timeout": 60, "encrypt": ["copy"]})
PAYLOAD = b'{"to":"ann","copy":"bob"}'
MINUTE = 60.0


@pytest.fixture
def rolling(store: Store, clock: ManualClock) -> Store:
    """The old release is there, and the new one comes."""
    store.register([OLD], "1.0")
    clock.advance(MINUTE)
    store.register([NEW], "2.0")
    clock.advance(MINUTE)
    return store


def test_the_newest_release_holds_and_the_others_are_known(rolling: Store) -> None:
    known = rolling.types()[MAIL]
    assert (known.schema, known.options) == (NEW.schema, NEW.options)
    assert known.others == (Shape(schema=NARROW),)


def test_an_old_process_that_restarts_puts_nothing_back(
    rolling: Store, other: Store, clock: ManualClock
) -> None:
    before = rolling.types()[MAIL]
    other.register([OLD], "1.0")
    clock.advance(MINUTE)
    other.register([OLD], "1.0")
    assert rolling.types()[MAIL] == before


def test_a_payload_is_good_if_any_live_release_takes_it(store: Store, clock: ManualClock) -> None:
    store.register([TypeInfo(name=MAIL, schema_version=1, schema=NARROW)])
    clock.advance(MINUTE)
    later = {
        "type": "object",
        "properties": {"whom": {}},
        "required": ["whom"],
        "additionalProperties": False,
    }
    store.register([TypeInfo(name=MAIL, schema_version=2, schema=later)])
    known = store.types()[MAIL]
    assert validate_for(known, b'{"whom":"ann"}').schema_version == 2
    assert validate_for(known, b'{"to":"ann"}').schema_version == 1
    with pytest.raises(InvalidPayload, match=r"payload\.whom is missing"):
        validate_for(known, b'{"x":1}')


@pytest.mark.parametrize(("kept", "minutes"), [(None, 10), ("30m", 30)])
def test_a_release_goes_when_none_of_its_processes_is_seen(
    rolling: Store, clock: ManualClock, kept: str | None, minutes: int
) -> None:
    if kept is not None:
        rolling.set_setting("keep_schemas", kept)
    # Rolled back: the new release was last seen a minute ago.
    for _ in range(minutes - 1):
        rolling.register([OLD])
        validate_for(rolling.types()[MAIL], PAYLOAD)
        clock.advance(MINUTE)
    clock.advance(MINUTE)
    rolling.register([OLD])
    known = rolling.types()[MAIL]
    assert (known.schema, known.options, known.others) == (OLD.schema, OLD.options, ())


def test_a_release_that_is_seen_stays(rolling: Store, clock: ManualClock) -> None:
    for _ in range(30):
        rolling.register([NEW])
        rolling.register([OLD])
        clock.advance(MINUTE)
    assert rolling.types()[MAIL].others == (Shape(schema=NARROW),)


def test_where_nobody_is_seen_nothing_goes(rolling: Store, clock: ManualClock) -> None:
    before = rolling.types()
    clock.advance(timedelta(days=3).total_seconds())
    assert rolling.types() == before


def test_a_field_is_secret_if_any_live_release_says_so(rolling: Store, clock: ManualClock) -> None:
    # Of a higher version, so it holds; it does not encrypt.
    rolling.register([TypeInfo(name=MAIL, schema_version=2, schema=WIDE)])
    assert rolling.types()[MAIL].schema_version == 2
    assert rolling.types()[MAIL].options["encrypt"] == ["copy"]


def test_every_schema_that_a_type_has_had_is_remembered(rolling: Store, clock: ManualClock) -> None:
    clock.advance(timedelta(days=400).total_seconds())
    rolling.register([TypeInfo(name=MAIL, schema={"v": 3})])
    assert [shape.schema for shape in rolling.shapes(MAIL) if shape.schema in (NARROW, WIDE)] != []
    assert len(rolling.shapes(MAIL)) == 3
