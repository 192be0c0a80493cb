"""Is this the job that the test expects, and what is there if not?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windlass.job import Job

_MOST_SHOWN = 20
_LONGEST_SHOWN = 200


def contains(payload: Any, expected: Any) -> bool:
    """Whether every field that is expected is there; objects are compared in depth, the rest as it is."""
    if isinstance(expected, Mapping) and isinstance(payload, Mapping):
        return all(name in payload and contains(payload[name], value) for name, value in expected.items())
    return bool(payload == expected)


def plain(value: Any) -> Any:
    """What a test expects, as JSON would carry it: a date as its text, a dataclass as an object."""
    return msgspec.json.decode(msgspec.json.encode(value))


def told(jobs: Sequence[tuple[Job, Mapping[str, Any]]]) -> str:
    """The jobs that are there, for whoever reads a failed test."""
    if not jobs:
        return "nothing was enqueued"
    lines = [f"  {job.type} {_short(payload)} ({job.state})" for job, payload in jobs[:_MOST_SHOWN]]
    if len(jobs) > _MOST_SHOWN:
        lines.append(f"  ... and {len(jobs) - _MOST_SHOWN} more")
    return "\n".join(["these jobs were enqueued:", *lines])


def _short(payload: Mapping[str, Any]) -> str:
    text = msgspec.json.encode(payload).decode()
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"
