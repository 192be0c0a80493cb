"""Do an application's own models travel in payloads?"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import pydantic
import pytest

from windlass import InvalidPayload, Queue
from windlass.testing import override


class Line(pydantic.BaseModel):
    sku: str
    count: int = pydantic.Field(ge=1)


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    number: int = pydantic.Field(alias="no")
    at: datetime
    lines: list[Line]
    parent: Order | None = None


class Point(msgspec.Struct):
    x: int


@dataclass
class Address:
    city: str
    at: Point | None = None


ORDER = Order(no=7, at=datetime(2026, 1, 1, tzinfo=UTC), lines=[Line(sku="a", count=2)])


def test_a_pydantic_model_arrives_as_what_it_was() -> None:
    queue = Queue("sqlite:///:memory:")
    seen: list[object] = []

    @queue.job
    def ship(order: Order, to: Address, others: list[Line] | None = None) -> Line:
        seen.extend((order, to, others))
        return order.lines[0]

    with override(queue) as kit:
        assert kit.run(ship.draft(ORDER, Address("Paris", Point(1)), [Line(sku="b", count=1)])) == {
            "sku": "a",
            "count": 2,
        }
        kit.assert_enqueued(ship, payload_contains={"order": {"no": 7}, "to": {"city": "Paris"}})
    assert seen == [ORDER, Address("Paris", Point(1)), [Line(sku="b", count=1)]]


def test_its_own_rules_hold_when_it_is_enqueued_and_before_it_runs() -> None:
    queue = Queue("sqlite:///:memory:")

    @queue.job
    def ship(line: Line) -> None: ...

    with override(queue) as kit:
        with pytest.raises(InvalidPayload, match=r"payload.line.count must be at least 1"):
            queue.enqueue("ship", {"line": {"sku": "a", "count": 0}})
        kit.drain()
        draft = msgspec.structs.replace(ship.draft(Line(sku="a", count=1)), payload=b'{"line":{"count":0}}')
        queue.store.enqueue([draft])
        [job] = kit.try_drain()
        assert job.error is not None
        assert job.error.reason == "invalid_payload"


def test_a_producer_without_the_model_is_judged_by_its_schema() -> None:
    queue = Queue("sqlite:///:memory:")

    @queue.job
    def ship(order: Order) -> None: ...

    schema = ship.handler.signature.schema
    assert schema["properties"]["order"] == {"$ref": "#/$defs/Order"}
    assert {"Order", "Line"} <= set(schema["$defs"])
    with override(queue) as kit:
        kit.drain()
        stranger = Queue("sqlite:///:memory:")
        stranger.store.register(list(queue.store.types().values()))
        with pytest.raises(InvalidPayload, match=r"payload.order.lines\[0\].sku is missing"):
            stranger.enqueue("ship", {"order": {"no": 1, "at": "2026-01-01T00:00:00Z", "lines": [{}]}})
        stranger.close()
