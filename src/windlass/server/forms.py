"""Read the body of a request into a form, and report every problem in it.

msgspec stops at the first problem. A body that it refuses is read once more, part by part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from windlass.errors import InvalidValue, must_be
from windlass.server.schemas import CHECK, END

S = TypeVar("S", bound=msgspec.Struct)
_MEMBER = re.compile(rb'"([a-z_]+)"\s*:')
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
# How many problems of one request are reported.
MOST_PROBLEMS = 100


class InvalidForm(InvalidValue):
    """A body with several problems; it reads as the first of them."""

    def __init__(self, problems: list[InvalidValue]) -> None:
        first = problems[0]
        self.problems = problems
        super().__init__(str(first), field=first.field, value=first.value, allowed=first.allowed)


class Missing(InvalidValue):
    """A field that must be there and is not; it has no value to show."""

    def __init__(self, field: str) -> None:
        super().__init__(f"{field} is missing; it must be given", field=field, value=None, allowed="given")


class Twice(InvalidValue):
    """A member that an object has twice: which one is meant?"""

    def __init__(self, field: str) -> None:
        message = f"{field} is given twice; it must be given once"
        super().__init__(message, field=field, value=None, allowed="given once")


def decode(kind: type[S], data: bytes) -> S:
    """A document of that form; InvalidValue or InvalidForm say what is wrong with it."""
    try:
        found = msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        problems = _first_problems(kind, data)
        raise problems[0] if len(problems) == 1 else InvalidForm(problems) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_json(data, error) from None
    names = _MEMBER.findall(data)
    if len(set(names)) < len(names):
        # Most often one of them is in the payload, or in another job.
        twin = _twin(json.loads(data, object_pairs_hook=_Members))
        if twin is not None:
            raise Twice(twin)
    return found


def _not_json(data: bytes, error: Exception) -> InvalidValue:
    why = "half a character, such as \\ud800" if _HALF.search(data) else str(error)
    return must_be("body", data.decode(errors="replace"), f"valid JSON ({why})")


class _Members(list[tuple[str, Any]]):
    """An object as it was sent: its members in their order, also those that come twice."""


def _twin(value: Any, path: str = "") -> str | None:
    """The path of a member that comes twice, but in payloads, which are looked at when they are read."""
    names: set[str | int] = set()
    for name, each in value if isinstance(value, _Members) else enumerate(value):
        here = f"{path}[{name}]" if isinstance(name, int) else f"{path}.{name}".removeprefix(".")
        if name in names:
            return here
        names.add(name)
        if name != "payload" and isinstance(each, list) and (twin := _twin(each, here)) is not None:
            return twin
    return None


# --- every problem of a body --------------------------------------------------------------------


def _first_problems(kind: type[msgspec.Struct], data: bytes) -> list[InvalidValue]:
    """What is wrong with a body, in the order of the form's fields."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # What comes behind the first wrong value is no JSON at all.
        return [_not_json(data, error)]
    found = _problems(kind, data, "")
    return [problem for problem, _ in zip(found, range(MOST_PROBLEMS), strict=False)]


def _problems(kind: Any, data: bytes, path: str) -> Iterator[InvalidValue]:
    """What is wrong with a part of a body, at a path such as jobs[3].priority."""
    inside = _problems_inside(kind, data, path)
    first = next(inside, None)
    try:
        found = msgspec.json.decode(data, type=kind)
        if first is None and found is not None:
            for check in _checks(kind):
                check(found, path)
    except msgspec.ValidationError:
        # If all of its parts are right, it is wrong as a whole.
        first = first or must_be(path or "body", _sent(data), allowed(kind))
    except InvalidValue as error:
        first = error
    if first is not None:
        yield first
        yield from inside


def _problems_inside(kind: Any, data: bytes, path: str) -> Iterator[InvalidValue]:
    for each in _kinds(kind):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            members = _read(data, dict[str, msgspec.Raw])
            yield from () if members is None else _problems_of_members(each, members, path)
        elif get_origin(each) in (tuple, list, Sequence):
            values = _read(data, list[msgspec.Raw])
            for index, value in enumerate(values or ()):
                yield from _problems(get_args(each)[0], bytes(value), f"{path}[{index}]")
        elif get_origin(each) in (dict, Mapping):
            for name, value in (_read(data, dict[str, msgspec.Raw]) or {}).items():
                yield from _problems(get_args(each)[1], bytes(value), f"{path}.{name}")


def _problems_of_members(
    kind: type[msgspec.Struct], members: dict[str, msgspec.Raw], path: str
) -> Iterator[InvalidValue]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name, field in fields.items():
        place = f"{path}.{name}".removeprefix(".")
        if name in members:
            yield from _problems(field.type, bytes(members[name]), place)
        elif field.required:
            yield Missing(place)
    for name, value in members.items():
        if name not in fields:
            place = f"{path}.{name}".removeprefix(".")
            yield must_be(place, _sent(value), "left out: there is no such field")


def _kinds(kind: Any) -> list[Any]:
    """The types that a value may be of."""
    if get_origin(kind) is Annotated:
        return _kinds(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [each for one in get_args(kind) for each in _kinds(one)]
    return [kind]


def _checks(kind: Any) -> tuple[Callable[[Any, str], object], ...]:
    """What reads a value of a type, where its form alone does not say that it is right."""
    if get_origin(kind) in (Union, UnionType):
        return tuple(check for each in get_args(kind) for check in _checks(each))
    known = (getattr(each, "extra", None) or {} for each in getattr(kind, "__metadata__", ()))
    return tuple(each[CHECK] for each in known if CHECK in each)


def _read(data: bytes, kind: type[S] | Any) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        return None


class _Sent(str):
    """A value in JSON, as it was sent."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _sent(data: bytes | msgspec.Raw) -> Any:
    """A value as it was sent: a number that is too large for us keeps its digits."""
    text = bytes(data).decode()
    return json.loads(text) if text.startswith('"') else _Sent(text)


# --- what is allowed, in words ------------------------------------------------------------------


def allowed(kind: Any) -> str:
    """What a value of this type may be."""
    return _words(inspect.type_info(kind))


def _words(node: Any) -> str:
    described = _described(node)
    if described is not None:
        return described
    words = [_WORDS[type(each)](each) for each in _nodes(node) if type(each) in _WORDS]
    return " or ".join(words) or "what the API's contract says"


def _nodes(node: Any) -> list[Any]:
    """The types that a value may be of, without null: that is the same as left out."""
    if isinstance(node, inspect.Metadata):
        return _nodes(node.type)
    if isinstance(node, inspect.UnionType):
        return [kind for each in node.types for kind in _nodes(each)]
    return [] if isinstance(node, inspect.NoneType) else [node]


def _described(node: Any) -> str | None:
    """Durations and times are described by their type: neither a number nor a text says enough."""
    if isinstance(node, inspect.UnionType):
        return next((words for each in node.types if (words := _described(each)) is not None), None)
    description = (getattr(node, "extra_json_schema", None) or {}).get("description", "")
    if description.startswith(("A duration", "A time")):
        return f"{description[0].lower()}{description[1:].rstrip('.')}"
    return None


def _whole(node: inspect.IntType | inspect.FloatType) -> str:
    what = "a whole number" if isinstance(node, inspect.IntType) else "a number"
    least, most = node.ge, node.le
    if least is not None and most is not None:
        return f"{what} between {least} and {most}"
    more = [] if node.gt is None else [f"more than {node.gt}"]
    more += [] if least is None else [f"at least {least}"]
    more += [] if most is None else [f"at most {most}"]
    return " of ".join([what, " and ".join(more)]) if more else what


def _text(node: inspect.StrType) -> str:
    words = f"a string{_length(node, 'characters')}"
    return words if node.pattern is None else f"{words} that matches {node.pattern.removesuffix(END)}$"


def _list(node: Any) -> str:
    return f"a list{_length(node, 'values')}"


def _length(node: Any, what: str) -> str:
    least, most = node.min_length, node.max_length
    if most is not None:
        return f" of {least or 0} to {most} {what}"
    return "" if not least else f" of {least} or more {what}"


def _one_of(node: inspect.LiteralType | inspect.EnumType) -> str:
    if isinstance(node, inspect.LiteralType):
        return "one of " + ", ".join(map(str, node.values))
    return "one of " + ", ".join(str(each.value) for each in node.cls)


_WORDS: dict[type, Any] = {
    inspect.BoolType: lambda _: "true or false",
    inspect.IntType: _whole,
    inspect.FloatType: _whole,
    inspect.StrType: _text,
    inspect.LiteralType: _one_of,
    inspect.EnumType: _one_of,
    inspect.ListType: _list,
    inspect.VarTupleType: _list,
    inspect.StructType: lambda _: "an object",
    inspect.DictType: lambda _: "an object",
}
