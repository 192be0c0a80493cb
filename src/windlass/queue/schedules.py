"""What may code say about work that comes by itself?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from windlass.errors import InvalidPayload, UnknownType, must_be
from windlass.queue.options import choose
from windlass.registry import SHELL, Handler, Registry
from windlass.schedule import NewSchedule, TimingOptions, read_timing
from windlass.schedule.timing import check_name

if TYPE_CHECKING:
    from windlass.queue.jobtype import Enqueueable

TIMING = frozenset(TimingOptions.__annotations__)


class ScheduleOptions(TimingOptions, total=False):
    """What may be said about a schedule: its times, and what holds for its jobs."""

    priority: int | None
    max_attempts: int | None
    tenant: str


def of_handler(handler: Handler, timing: TimingOptions) -> NewSchedule:
    """The schedule that a decorator gives its function, under the type's own name."""
    checked = read_timing(timing)
    try:
        payload = handler.signature.encode({})
    except InvalidPayload:
        field, value = ("cron", checked.cron) if checked.cron else ("every", timing.get("every"))
        allowed = (
            "given to a function that can be called without arguments; "
            "queue.schedule(name, function, payload, ...) says with which"
        )
        raise must_be(field, value, allowed) from None
    return NewSchedule(
        name=handler.name, timing=checked, type=handler.name, payload=payload, schema_version=handler.version
    )


def make_schedule(
    registry: Registry,
    name: str,
    of: str | Enqueueable[...],
    payload: Mapping[str, Any],
    options: ScheduleOptions,
) -> NewSchedule:
    """A schedule from what the code says, all of it checked."""
    handler = _handler(registry, of)
    secret = sorted(set(handler.encrypt) & set(payload))
    if secret:
        allowed = "a payload without encrypted fields: a schedule keeps it in the clear"
        raise must_be(f"payload.{secret[0]}", "(hidden)", allowed)
    rest: dict[str, Any] = {key: value for key, value in options.items() if key not in TIMING}
    timing: Any = {key: value for key, value in options.items() if key in TIMING}
    unknown = set(rest) - set(ScheduleOptions.__annotations__)
    if unknown:
        raise must_be("schedule option", min(unknown), "one of " + ", ".join(ScheduleOptions.__annotations__))
    choice = choose({key: value for key, value in rest.items() if value is not None})
    return NewSchedule(
        name=check_name(name),
        timing=read_timing(timing),
        type=handler.name,
        payload=handler.signature.encode(payload),
        schema_version=handler.version,
        priority=choice.priority,
        max_attempts=choice.max_attempts,
        tenant=choice.tenant,
    )


def _handler(registry: Registry, of: str | Enqueueable[...]) -> Handler:
    name = of if isinstance(of, str) else of.handler.name
    handler = registry.get(name)
    if name == SHELL:
        raise must_be("type", name, "a function of this queue; `windlass schedule add` takes commands")
    if handler is None:
        raise UnknownType(name, registry.names())
    return handler
