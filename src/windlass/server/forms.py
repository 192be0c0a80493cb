"""Describe what a field of a form may hold, for error messages."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import inspect

from windlass.server.schemas import END


def allowed(kind: type[msgspec.Struct], field: str) -> str:
    """What may stand at a path of a form, such as jobs[3].priority."""
    node: Any = inspect.type_info(kind)
    for name, index in _STEP.findall(field):
        node = _below(node, name, index)
    return _told(node)


def _below(node: Any, name: str, index: str) -> Any:
    """What stands under a name, at a place of a list, or under any key of an object."""
    for each in _kinds(node):
        if isinstance(each, inspect.StructType) and name:
            return next((of.type for of in each.fields if of.encode_name == name), None)
        if isinstance(each, inspect.DictType) and not name:
            return each.value_type
        if index and hasattr(each, "item_type"):
            return each.item_type
    return None


def _kinds(node: Any) -> list[Any]:
    """The types that a value may be of, without null: that is the same as left out."""
    if isinstance(node, inspect.Metadata):
        return _kinds(node.type)
    if isinstance(node, inspect.UnionType):
        return [kind for each in node.types for kind in _kinds(each)]
    return [] if isinstance(node, inspect.NoneType) else [node]


def _told(node: Any) -> str:
    told = _described(node)
    if told is not None:
        return told
    words = [_WORDS[type(each)](each) for each in _kinds(node) if type(each) in _WORDS]
    return " or ".join(words) or "what the API's contract says"


def _described(node: Any) -> str | None:
    """Durations and times are described by their type: neither a number nor a text says enough."""
    if isinstance(node, inspect.UnionType):
        return next((told for each in node.types if (told := _described(each)) is not None), None)
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
    told = f"a string{_length(node, 'characters')}"
    return told if node.pattern is None else f"{told} that matches {node.pattern.removesuffix(END)}$"


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


_STEP = re.compile(r"([^.\[\]]+)|\[(\d+|\.\.\.)\]")
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
