"""What is said of schedules?"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from windlass.job import HIGHEST_PRIORITY, MAX_ATTEMPTS, MAX_TENANT, MAX_TYPE
from windlass.schedule import MAX_NAME
from windlass.server.schemas import EMPTY, NAME, Object, Span, WhyForm


class ScheduleForm(WhyForm, frozen=True, kw_only=True):
    """Jobs that shall come by themselves: by a cron expression, or every so often."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME, pattern=NAME, examples=["nightly"])]
    type: Annotated[
        str,
        Meta(min_length=1, max_length=MAX_TYPE, pattern=NAME, examples=["report.build"]),
    ]
    payload: Annotated[Object, Meta(description="Of its jobs.", examples=[{"days": 1}])] = msgspec.field(
        default_factory=lambda: EMPTY
    )
    cron: (
        Annotated[
            str,
            Meta(
                description="Minute, hour, day, month, day of week; or @daily and the like.",
                examples=["0 3 * * *"],
            ),
        ]
        | None
    ) = None
    tz: Annotated[str, Meta(description="The zone of `cron`.", examples=["Europe/Berlin"])] | None = None
    every: Span | None = None
    catch_up: (
        Annotated[
            Literal["none", "last", "all"],
            Meta(description="Fire times that passed while nobody was there: fire none, the last, or all."),
        ]
        | None
    ) = None
    overlap: (
        Annotated[Literal["skip", "queue"], Meta(description="If the run before has not ended.")] | None
    ) = None
    jitter: Span | None = None
    priority: Annotated[int, Meta(ge=0, le=HIGHEST_PRIORITY)] | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] | None = None
    tenant: Annotated[str, Meta(min_length=1, max_length=MAX_TENANT)] | None = None
    replace: Annotated[bool, Meta(description="Put it in the place of one that has this name.")] = False
