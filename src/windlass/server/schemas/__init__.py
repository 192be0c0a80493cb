"""What a request may say and what comes back. The same types decode requests and write the contract."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from windlass.checks import read_moment
from windlass.duration import parse_duration

# In the `extra` of a type: reads a value of it, or raises InvalidValue for a field of that name.
CHECK = "check"
Object = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "object", "additionalProperties": True})]
Anything = Annotated[msgspec.Raw, Meta(extra_json_schema={"description": "Any JSON value."})]
Span = Annotated[
    float | str,
    Meta(
        description='A duration: seconds, or words such as "30s", "10m", "1h30m", "7d".',
        extra={CHECK: parse_duration},
    ),
]
# Read by us, so that a date alone will do, as on the command line.
Moment = Annotated[
    str,
    Meta(
        description="A time in ISO 8601, such as 2030-01-31T09:00:00Z; without a zone it is UTC.",
        examples=["2030-01-31T09:00:00Z"],
        extra={CHECK: read_moment},
    ),
]
# The end of a pattern: nothing follows, not even the line break that `$` alone overlooks here.
END = r"$(?!\n)"
# How types and schedules are named.
NAME = "^[a-z][a-z0-9_.-]*" + END
# Raw JSON that was not sent.
NOTHING = msgspec.Raw()
EMPTY = msgspec.Raw(b"{}")


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request may say; anything else is refused."""


class NoForm(Form, frozen=True, kw_only=True):
    """Nothing: no body, or an empty object."""


class WhyForm(Form, frozen=True, kw_only=True):
    """Why it is done, for the records."""

    why: Annotated[str, Meta(max_length=1000)] = ""
