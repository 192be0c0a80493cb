"""Does the handler get what was sent? JSON turns a set into a list and NaN into null without a word."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec

from windlass.errors import must_be

DEEPEST = 100


class Unfaithful(Exception):
    """Something sent would not arrive as what it was."""

    def __init__(self, path: str, value: object, allowed: str) -> None:
        self.problem = must_be(path, value, allowed)
        super().__init__(str(self.problem))


def check_faithful(sent: Any, got: Any, path: str, depth: int = 1) -> None:
    """Compare what was sent with what the decoder made of its JSON; raises Unfaithful.

    Plain JSON may arrive as something richer (a text as a datetime) where the annotation says so, but
    something richer must not arrive as plain JSON.
    """
    kind = type(sent)
    if kind in PLAIN:
        return
    if depth > DEEPEST:
        raise Unfaithful(path.partition(".")[0], sent, f"nested at most {DEEPEST} deep")
    if isinstance(sent, Mapping):
        _check_mapping(sent, got, path, depth)
    elif isinstance(sent, list | tuple | set | frozenset):
        _check_items(sent, got, path, depth)
    elif names := _field_names(sent):
        _check_same_kind(sent, got, isinstance(got, kind), path)
        for name in names:
            check_faithful(getattr(sent, name), getattr(got, name), f"{path}.{name}", depth + 1)
    else:
        _check_single(sent, got, path)


PLAIN = frozenset({str, int, bool, type(None)})


def _check_mapping(sent: Mapping[Any, Any], got: Any, path: str, depth: int) -> None:
    for name, value in sent.items():
        if isinstance(got, dict):
            twin = got.get(name, _ABSENT)
        else:
            twin = getattr(got, name, value) if isinstance(name, str) else _ABSENT
        if twin is _ABSENT:
            if not isinstance(name, str):
                raise Unfaithful(f"a key of {path}", name, "text, or of the type that the annotation names")
            # The annotation names another type for the key, and the text was read as that.
            twin = value
        check_faithful(value, twin, f"{path}.{name}", depth + 1)


_ABSENT = object()


def _check_items(sent: Collection[Any], got: Any, path: str, depth: int) -> None:
    twins: Collection[Any] = sent
    if isinstance(sent, set | frozenset):
        _check_same_kind(sent, got, isinstance(got, set | frozenset), path)
    elif isinstance(got, list | tuple) and len(got) == len(sent):
        # What became a set has no order to compare by; its items were plain enough to be hashed.
        twins = got
    for index, (item, twin) in enumerate(zip(sent, twins, strict=True)):
        check_faithful(item, twin, f"{path}[{index}]", depth + 1)


def _check_single(sent: object, got: object, path: str) -> None:
    finite = (
        sent.is_finite() if isinstance(sent, Decimal) else not isinstance(sent, float) or math.isfinite(sent)
    )
    if not finite:
        raise Unfaithful(path, sent, "a finite number")
    if isinstance(sent, Enum) or not isinstance(sent, str | int | float):
        _check_same_kind(sent, got, sent == got, path)


def _check_same_kind(sent: object, got: object, same: object, path: str) -> None:
    if not same:
        wanted, becomes = type(sent).__name__, type(got).__name__
        raise Unfaithful(path, sent, f"plain JSON or annotated as {wanted} (it would arrive as {becomes})")


def _field_names(value: object) -> tuple[str, ...]:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in dataclasses.fields(value))
    return ()
