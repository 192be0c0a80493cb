"""When does a cron expression fire next?

cronsim reads expressions and walks plain local times; what the clocks do meanwhile is added here (decision
010 says why). As cron has always done it, there are two kinds of expressions:

    names minute and hour     follows the wall clock: each local time once, at its first occurrence; a local
                              time that is skipped fires at the moment of the skip
    has * for either          follows real time: fires whenever the clocks show a match, so twice in an hour
                              that comes twice, and not in one that never comes
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo

from cronsim import CronSim, CronSimError

from windlass.errors import must_be
from windlass.schedule.zones import change_between, first_at, local, offset, zone_of

_FIELDS = 5
_SECOND = timedelta(seconds=1)
_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_ALLOWED = (
    "five fields (minute, hour, day of month, month, day of week) such as 0 3 * * *, "
    f"or one of {', '.join(_ALIASES)}"
)


def read_cron(text: object) -> str:
    """An expression in its plain form of five fields; InvalidValue if it is none, or never fires."""
    if not isinstance(text, str):
        raise must_be("cron", text, _ALLOWED)
    fields = _ALIASES.get(text.strip().lower(), text).split()
    if len(fields) != _FIELDS:
        raise must_be("cron", text, _ALLOWED)
    expression = " ".join(fields)
    try:
        found = next(CronSim(expression, _ANY_TIME), None)
    except CronSimError as error:
        raise must_be("cron", text, f"{_ALLOWED} ({str(error).lower()})") from None
    if found is None:
        raise must_be("cron", text, "an expression that fires at all: there is no such date")
    return expression


def next_after(expression: str, zone_name: str, moment: datetime) -> datetime | None:
    """The first fire time after a moment, in UTC; None if there is none before the end of the calendar."""
    zone = zone_of(zone_name)
    fire_times = _by_wall_clock if _names_minute_and_hour(expression) else _in_real_time
    try:
        return next((each for each in fire_times(expression, zone, moment) if each > moment), None)
    except OverflowError:
        return None


def _names_minute_and_hour(expression: str) -> bool:
    minute, hour, *_ = expression.split()
    return not minute.startswith("*") and not hour.startswith("*")


def _by_wall_clock(expression: str, zone: tzinfo, moment: datetime) -> Iterator[datetime]:
    # In the second of two equal hours local times lie before the moment once more: the caller drops them.
    for shown in CronSim(expression, local(moment, zone)):
        yield first_at(shown, zone)


def _in_real_time(expression: str, zone: tzinfo, moment: datetime) -> Iterator[datetime]:
    """As long as the clocks run on unchanged local time is real time; at a change it starts over."""
    while True:
        standing = offset(moment, zone)
        found = next(CronSim(expression, local(moment, zone)), None)
        if found is None:
            return
        fires = found.replace(tzinfo=UTC) - standing
        change = change_between(moment, fires, zone)
        if change is None:
            yield fires
            moment = fires
            continue
        # The moment of the change itself may be a match by the new time.
        shown = local(change, zone)
        if next(CronSim(expression, shown - _SECOND), None) == shown:
            yield change
        moment = change


_ANY_TIME = datetime(2024, 1, 1)  # noqa: DTZ001 - a local time, as cron expressions speak of it
