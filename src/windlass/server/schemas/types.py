"""What is said of types: their settings, and what holds their jobs back?"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from windlass.ops import TypeStatus
from windlass.server.schemas import WhyForm
from windlass.store.flow import BreakerState

# A setting's value: text as on the command line; a number may go without quotes.
SettingText = str | Annotated[int, Meta(ge=0, le=1_000_000_000)]


class SettingsForm(WhyForm, frozen=True, kw_only=True):
    """Settings by name; null forgets what was set. All or none of them are stored."""

    settings: Annotated[dict[str, SettingText | None], Meta(examples=[{"keep_ended": "14d"}])]


class TypeForm(WhyForm, frozen=True, kw_only=True):
    """What an operator sets for one type; null forgets what was set, and what is left out stays."""

    settings: Annotated[
        dict[str, SettingText | None],
        Meta(examples=[{"concurrency": 2, "rate": "100/m", "timeout": "10m", "retry.base": None}]),
    ]


class BreakerForm(WhyForm, frozen=True, kw_only=True):
    """What a circuit breaker shall be; `auto`: outcomes decide."""

    state: Annotated[BreakerState, Meta(examples=["open"])]


class SettingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A run-time setting; `stored`: an operator has set it."""

    name: str
    value: Any
    stored: bool


class SettingsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every run-time setting with its effective value."""

    settings: list[SettingDocument]


class ResumedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A type whose jobs start again; not `resumed`: it was not paused."""

    type: str
    resumed: bool


class TypesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every type that is registered or has jobs."""

    types: list[TypeStatus]
