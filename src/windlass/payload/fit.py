"""Does a payload fit its schema, in a hurry? Most do, and most schemas say simple things.

What is made here, once per schema, says yes only to what the judge of `validate.py` would let pass; what it
cannot tell quickly it leaves to that judge, and the words for a refusal as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from windlass.payload.validate import judge_of

Schema = Mapping[str, Any]
Fits = Callable[[Any], bool]


def quick(schema: Schema) -> Fits:
    """A check of values as JSON gives them; False means that the judge must be asked."""
    judge = judge_of(schema)
    return _check(
        schema, lambda node: lambda value: next(judge.problems(node, value, "payload"), None) is None
    )


def _check(node: Schema, slowly: Callable[[Schema], Fits]) -> Fits:
    said = node.keys() - _REMARKS
    kind = node.get("type")
    if said == {"type"} and kind in _TYPES:
        return _TYPES[kind]
    if kind == "object" and said <= _OBJECT and node.get("additionalProperties") is False:
        return _object(node, slowly)
    if kind == "array" and said == {"type", "items"}:
        each = _check(node["items"], slowly)
        return lambda value: type(value) is list and all(map(each, value))
    if said == {"anyOf"}:
        options = [_check(option, slowly) for option in node["anyOf"]]
        return lambda value: any(option(value) for option in options)
    return slowly(node)


def _object(node: Schema, slowly: Callable[[Schema], Fits]) -> Fits:
    fields = {name: _check(field, slowly) for name, field in node.get("properties", {}).items()}
    required = frozenset(node.get("required", ()))

    def fits(value: Any) -> bool:
        if type(value) is not dict or not required <= value.keys():
            return False
        for name, item in value.items():
            field = fields.get(name)
            if field is None or not field(item):
                return False
        return True

    return fits


# What a schema says for people.
_REMARKS = frozenset({"title", "description", "default", "examples", "$defs"})
_OBJECT = frozenset({"type", "properties", "required", "additionalProperties"})
_TYPES: dict[str, Fits] = {
    "string": lambda value: type(value) is str,
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) is int or type(value) is float,
    "boolean": lambda value: type(value) is bool,
    "null": lambda value: value is None,
    "array": lambda value: type(value) is list,
    "object": lambda value: type(value) is dict,
}
