"""What holds jobs back, and who said so? The part of the seam that operators and workers share."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

import msgspec

from windlass.policy.limit import Limit


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A type that nobody claims from."""

    type: str
    by: str
    why: str
    at: datetime


class Switches(msgspec.Struct, frozen=True, kw_only=True):
    """All that holds jobs back at one moment, besides limits."""

    pauses: Mapping[str, Pause] = {}


class Restriction(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the way of one type's jobs: limits by name, and the key that it shares with others."""

    limits: Mapping[str, Limit]
    key: str = ""


class Flow(Protocol):
    """Holding jobs back. Workers see every change with their next look."""

    def switches(self) -> Switches:
        """What is held back now."""

    def pause(self, job_type: str, *, by: str = "", why: str = "") -> Pause:
        """Claim no jobs of a type until it is resumed; if it is paused already, that pause stands."""

    def adopt(self, restricted: Mapping[str, Restriction]) -> None:
        """Let running jobs that were claimed before a limit was known count under it."""

    def resume(self, job_type: str) -> bool:
        """Claim them again; False if the type was not paused."""
