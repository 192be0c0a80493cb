"""Can what a handler returned be kept as its result?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.errors import FatalError
from windlass.job import MAX_RESULT
from windlass.outcome import Raised, Returned, clean
from windlass.payload.models import dumped

_LONGEST_REASON = 500


class ResultNotKept(FatalError):
    """The work ran, but what it returned cannot be kept; running it again would only do the work twice."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the work ran, but its result cannot be kept: {clean(why, _LONGEST_REASON)}")


def returned(value: Any) -> Returned | Raised:
    """What a handler's return value amounts to."""
    if value is None:
        return _NOTHING
    try:
        data = _encode(value)
        # The encoder writes NaN as null, and a NUL as an escape that no database takes.
        if b"null" in data or b"\\u0000" in data:
            _check_storable(msgspec.to_builtins(value, enc_hook=dumped), "result")
    except ResultNotKept as error:
        return Raised(error)
    except Exception as error:  # noqa: BLE001 # wall: encoding runs the returned object's own code
        return Raised(ResultNotKept(f"{type(error).__name__}: {error}"))
    if len(data) > MAX_RESULT:
        size = f"it has {len(data)} bytes as JSON, {MAX_RESULT} are allowed"
        return Raised(ResultNotKept(f"{size}; keep large data elsewhere and return its name"))
    return Returned(data)


def encoded(value: Any) -> bytes | None:
    """The same value as JSON; raises what a return of it would have failed with."""
    kept = returned(value)
    if isinstance(kept, Raised):
        raise kept.exception
    return kept.value


_NOTHING = Returned(None)
_encode = msgspec.json.Encoder(enc_hook=dumped).encode


def _check_storable(value: object, path: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ResultNotKept(f"{path} is {value}, which JSON does not have")
    if isinstance(value, str) and "\0" in value:
        raise ResultNotKept(f"{path} has a NUL character")
    if isinstance(value, Mapping):
        for name, item in value.items():
            _check_storable(name, f"a key of {path}")
            _check_storable(item, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_storable(item, f"{path}[{index}]")
