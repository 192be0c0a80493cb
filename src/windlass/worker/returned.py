"""Can what a handler returned be kept as its result?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.errors import FatalError
from windlass.job import MAX_RESULT, Keep
from windlass.outcome import Raised, Returned, clean, describe
from windlass.payload.schema import dumped

_LONGEST_REASON = 500


class ResultNotKept(FatalError):
    """The work ran, but what it returned cannot be kept; running it again would only do the work twice."""

    def __init__(self, why: str) -> None:
        self.why = clean(why, _LONGEST_REASON)
        super().__init__(f"the work ran, but its result cannot be kept: {self.why}")


def returned(value: Any, keep: Keep) -> Returned | Raised:
    """What a handler's return value amounts to.

    The work is done: a value that cannot be kept does not undo that, unless the type asks for its result.
    """
    if value is None or keep is False:
        return _NOTHING
    try:
        data = _encode(value)
        # The encoder writes NaN as null, and a NUL as an escape that no database takes.
        if b"null" in data or b"\\u0000" in data:
            _check_storable(msgspec.to_builtins(value, enc_hook=dumped), "result")
    except ResultNotKept as error:
        return _not_kept(error, keep)
    except BaseException as error:  # noqa: BLE001 # wall: encoding runs the returned object's own code
        told = describe(error)
        return _not_kept(ResultNotKept(f"{told.kind}: {told.message}"), keep)
    if len(data) > MAX_RESULT:
        size = f"it has {len(data)} bytes as JSON, {MAX_RESULT} are allowed"
        return _not_kept(ResultNotKept(f"{size}; keep large data elsewhere and return its name"), keep)
    return Returned(data)


def kept(value: Any, keep: Keep) -> Returned:
    """The same; raises what a return of it would have failed with."""
    result = returned(value, keep)
    if isinstance(result, Raised):
        raise result.exception
    return result


def _not_kept(error: ResultNotKept, keep: Keep) -> Returned | Raised:
    return Raised(error) if keep == "required" else Returned(missing=error.why)


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
