"""Validate a payload against the schema in the catalogue, for producers that do not have the handler.

Reads the part of JSON Schema that `windlass.payload.schema` writes, and judges as the handler's decoder does.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import msgspec

from windlass.errors import InvalidPayload, InvalidValue
from windlass.job import REFERENCE, TypeInfo
from windlass.payload.seal import is_sealed

Schema = Mapping[str, Any]
Fits = Callable[[Any], bool]


def refused(job_type: str, problem: object) -> InvalidPayload:
    """The one form in which payloads are refused: the type, then what is wrong where."""
    return InvalidPayload(f"{job_type}: {problem}")


def validate(schema: Schema, payload: bytes, job_type: str) -> None:
    """Refuse a payload that does not fit; InvalidPayload names the field, its value and what is allowed."""
    error = refusal(*_read(schema, payload, job_type), job_type)
    if error is not None:
        raise error


def validate_for(info: TypeInfo, payload: bytes) -> TypeInfo:
    """The newest live release's type that takes a payload; else InvalidPayload, as the newest of all says."""
    try:
        validate(info.schema, payload, info.name)
    except InvalidPayload:
        for shape in info.others:
            if problem_of(shape.schema, payload, info.name) is None:
                return info.of_shape(shape)
        raise
    return info


def problem_of(schema: Schema, payload: bytes, job_type: str) -> Problem | None:
    """The first thing in a payload that a schema does not allow."""
    return next(_problems(*_read(schema, payload, job_type)), None)


def _read(schema: Schema, payload: bytes, job_type: str) -> tuple[Schema, Any]:
    """What can be judged: not what is encrypted, nor a reference, which is no field of the handler's."""
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refused(job_type, f"payload must be valid JSON ({error})") from None
    if not isinstance(value, dict):
        return schema, value
    if not isinstance(value.get(REFERENCE, ""), str):
        raise refused(job_type, f"payload.{REFERENCE} must be a text")
    closed = {name for name, each in value.items() if name == REFERENCE or is_sealed(each)}
    if not closed:
        return schema, value
    required = [name for name in schema.get("required", ()) if name not in closed]
    rest = {name: each for name, each in value.items() if name not in closed}
    return {**schema, "required": required}, rest


def refusal(
    schema: Schema, payload: Any, job_type: str, secret: Collection[str] = ()
) -> InvalidPayload | None:
    """Everything that is wrong with a payload, if anything; the values of secret fields are not shown."""
    found = list(itertools.islice(_problems(schema, payload), _MOST_PROBLEMS))
    if not found:
        return None
    error = refused(job_type, found[0].hiding(secret))
    error.problems = tuple(each.error(secret) for each in found)
    return error


def _problems(schema: Schema, payload: Any) -> Iterator[Problem]:
    return Judge(schema).problems(schema, payload, "payload")


class Problem(msgspec.Struct, frozen=True):
    """What is wrong, and where."""

    path: str
    text: str
    # What would be right, and what was given.
    allowed: str
    value: str | None = None

    def error(self, secret: Collection[str]) -> InvalidValue:
        """The same as an error, without the value of a secret field."""
        text = self.hiding(secret)
        value = self.value if text == self.text else None
        return InvalidValue(text, field=self.path, value=value, allowed=self.allowed)

    def hiding(self, fields: Collection[str]) -> str:
        """What is wrong, without the value of a field that is nobody's business."""
        name = re.split(r"[.\[]", self.path.removeprefix("payload."), maxsplit=1)[0]
        return f"payload.{name} does not fit; its value is not shown" if name in fields else self.text


class Judge:
    """Finds what is wrong with a value, by the words of a schema."""

    def __init__(self, schema: Schema) -> None:
        self._definitions: Mapping[str, Schema] = schema.get("$defs", {})

    def problems(self, node: Schema, value: Any, path: str) -> Iterator[Problem]:
        """Everything that is wrong with a value, one after the other."""
        node = self._resolved(node)
        if not self._is_of_type(node, value):
            yield _wrong(path, value, self.describe(node))
            return
        if "discriminator" in node:
            yield from self._problems_of_tagged(node, value, path)
        elif "anyOf" in node:
            yield from self._problems_of_all(node, value, path)
        if isinstance(value, str):
            yield from _text_problems(node, value, path)
        elif isinstance(value, list):
            yield from self._array_problems(node, value, path)
        elif isinstance(value, dict):
            yield from self._object_problems(node, value, path)
        elif isinstance(value, int | float):
            for keyword, (holds, words) in _BOUNDS.items():
                if keyword in node and not holds(value, node[keyword]):
                    yield _wrong(path, value, f"{words} {node[keyword]}")

    def _resolved(self, node: Schema) -> Schema:
        return self._definitions[node["$ref"].rpartition("/")[2]] if "$ref" in node else node

    def _is_of_type(self, node: Schema, value: Any) -> bool:
        if "enum" in node:
            # 1, 1.0 and true are equal in Python and three things in JSON.
            return any(type(value) is type(choice) and value == choice for choice in node["enum"])
        if "type" in node:
            return any(_is(name, value) for name in _types(node))
        options = node.get("anyOf", ())
        return not options or any(self._is_of_type(self._resolved(option), value) for option in options)

    def _problems_of_all(self, node: Schema, value: Any, path: str) -> Iterator[Problem]:
        """Nothing, if one of the options fits; else the complaint of the option that was meant."""
        meant: list[Problem] = []
        for option in map(self._resolved, node["anyOf"]):
            found = next(self.problems(option, value, path), None)
            if found is None:
                return
            if self._is_of_type(option, value):
                meant.append(found)
        yield meant[0] if len(meant) == 1 else _wrong(path, value, self.describe(node))

    def _problems_of_tagged(self, node: Schema, value: dict[str, Any], path: str) -> Iterator[Problem]:
        """As above, but the value itself says which option is meant."""
        name, mapping = node["discriminator"]["propertyName"], node["discriminator"]["mapping"]
        place, allowed = f"{path}.{name}", "one of " + ", ".join(map(_shown, mapping))
        meant = {str(known): ref for known, ref in mapping.items()}.get(str(value.get(name)))
        if meant is not None:
            yield from self.problems({"$ref": meant}, value, path)
        elif name in value:
            yield _wrong(place, value[name], allowed)
        else:
            yield Problem(place, f"{place} is missing; it says which kind of object this is", allowed)

    def _array_problems(self, node: Schema, value: list[Any], path: str) -> Iterator[Problem]:
        yield from _size_problems(node, len(value), path, "Items", "items")
        first = node.get("prefixItems", ())
        for index, (part, item) in enumerate(zip(first, value, strict=False)):
            yield from self.problems(part, item, f"{path}[{index}]")
        rest = node.get("items")
        if rest:
            for index, item in enumerate(value[len(first) :], start=len(first)):
                yield from self.problems(rest, item, f"{path}[{index}]")

    def _object_problems(self, node: Schema, value: dict[str, Any], path: str) -> Iterator[Problem]:
        yield from _size_problems(node, len(value), path, "Properties", "fields")
        known = node.get("properties", {})
        for name in node.get("required", ()):
            if name not in value:
                wanted = self.describe(known[name])
                yield Problem(f"{path}.{name}", f"{path}.{name} is missing; it must be {wanted}", wanted)
        others = node.get("additionalProperties", True)
        for name, item in value.items():
            below = f"{path}.{name}"
            if "propertyNames" in node:
                yield from self.problems(node["propertyNames"], name, f"a key of {path}")
            if name in known:
                yield from self.problems(known[name], item, below)
            elif others is False:
                fields = ", ".join(known) or "none"
                text = f"{below} is unknown; the fields of {path} are: {fields}"
                yield Problem(below, text, f"left out: the fields are {fields}", _shown(item))
            elif others is not True:
                yield from self.problems(others, item, below)

    def describe(self, node: Schema) -> str:
        """In words, what a schema allows."""
        node = self._resolved(node)
        if "enum" in node:
            return "one of " + ", ".join(_shown(choice) for choice in node["enum"])
        if "anyOf" in node:
            return " or ".join(dict.fromkeys(self.describe(option) for option in node["anyOf"]))
        if "format" in node:
            return _FORMATS[node["format"]][1] if node["format"] in _FORMATS else "text"
        if "contentEncoding" in node:
            return _BASE64[1]
        return " or ".join(_TYPES[name][1] for name in _types(node)) or "any JSON"


# --- single values ------------------------------------------------------------------------------


def _text_problems(node: Schema, value: str, path: str) -> Iterator[Problem]:
    yield from _size_problems(node, len(value), path, "Length", "characters")
    if "pattern" in node and not re.search(node["pattern"], value):
        yield _wrong(path, value, f"text that matches {node['pattern']}")
    form = _BASE64 if node.get("contentEncoding") == "base64" else _FORMATS.get(node.get("format", ""))
    if form is not None and not _reads_as(form[0], value):
        yield _wrong(path, value, form[1])


def _size_problems(node: Schema, size: int, path: str, keyword: str, words: str) -> Iterator[Problem]:
    least, most = node.get(f"min{keyword}", 0), node.get(f"max{keyword}", math.inf)
    if not least <= size <= most:
        allowed = f"at least {least}" if size < least else f"at most {most}"
        text = f"{path} must have {allowed} {words}, got {size}"
        yield Problem(path, text, f"{allowed} {words}", f"{size} {words}")


def _reads_as(kind: Any, text: str) -> bool:
    try:
        msgspec.convert(text, kind)
    except msgspec.ValidationError:
        return False
    return True


def _wrong(path: str, value: Any, allowed: str) -> Problem:
    return Problem(path, f"{path} must be {allowed}, got {_shown(value)}", allowed, _shown(value))


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def _types(node: Schema) -> list[str]:
    kind = node.get("type", [])
    return [kind] if isinstance(kind, str) else list(kind)


def _is(name: str, value: Any) -> bool:
    # A bool is an int to Python, not to JSON.
    return isinstance(value, _TYPES[name][0]) and (name == "boolean") == isinstance(value, bool)


_LONGEST_SHOWN = 80
_MOST_PROBLEMS = 100
# JSON's types in Python, and in words.
_TYPES: dict[str, tuple[Any, str]] = {
    "null": (type(None), "null"),
    "boolean": (bool, "true or false"),
    "integer": (int, "an integer"),
    "number": (int | float, "a number"),
    "string": (str, "a string"),
    "array": (list, "an array"),
    "object": (dict, "an object"),
}
_BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (lambda value, bound: value >= bound, "at least"),
    "exclusiveMinimum": (lambda value, bound: value > bound, "above"),
    "maximum": (lambda value, bound: value <= bound, "at most"),
    "exclusiveMaximum": (lambda value, bound: value < bound, "below"),
    "multipleOf": (lambda value, bound: value % bound == 0, "a multiple of"),
}
_FORMATS: dict[str, tuple[Any, str]] = {
    "date-time": (Annotated[datetime, msgspec.Meta(tz=True)], "a time such as 2026-01-31T12:00:00Z"),
    "date-time-local": (
        Annotated[datetime, msgspec.Meta(tz=False)],
        "a local time such as 2026-01-31T12:00:00",
    ),
    "time": (Annotated[time, msgspec.Meta(tz=True)], "a time of day such as 12:00:00Z"),
    "partial-time": (Annotated[time, msgspec.Meta(tz=False)], "a local time of day such as 12:00:00"),
    "date": (date, "a date such as 2026-01-31"),
    "duration": (timedelta, "a duration such as P1DT2H"),
    "uuid": (UUID, "a UUID"),
    "decimal": (Decimal, "a decimal number, as text or number"),
}
_BASE64 = (bytes, "base64")


# --- a quick check ------------------------------------------------------------------------------
# Made once per schema. It passes only what the Judge would pass; what it cannot decide quickly it leaves to
# the Judge, and so the words of a refusal.


def quick(schema: Schema) -> Fits:
    """A check of values as JSON gives them; False means that the judge must be asked."""
    judge = Judge(schema)
    return _quick_check(
        schema, lambda node: lambda value: next(judge.problems(node, value, "payload"), None) is None
    )


def _quick_check(node: Schema, slowly: Callable[[Schema], Fits]) -> Fits:
    said = node.keys() - _REMARKS
    kind = node.get("type")
    if said == {"type"} and kind in _QUICK:
        return _QUICK[kind]
    if kind == "object" and said <= _OBJECT and node.get("additionalProperties") is False:
        return _quick_object(node, slowly)
    if kind == "array" and said == {"type", "items"}:
        each = _quick_check(node["items"], slowly)
        return lambda value: type(value) is list and all(map(each, value))
    if said == {"anyOf"}:
        options = [_quick_check(option, slowly) for option in node["anyOf"]]
        return lambda value: any(option(value) for option in options)
    return slowly(node)


def _quick_object(node: Schema, slowly: Callable[[Schema], Fits]) -> Fits:
    fields = {name: _quick_check(field, slowly) for name, field in node.get("properties", {}).items()}
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
_QUICK: dict[str, Fits] = {
    "string": lambda value: type(value) is str,
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) is int or type(value) is float,
    "boolean": lambda value: type(value) is bool,
    "null": lambda value: value is None,
    "array": lambda value: type(value) is list,
    "object": lambda value: type(value) is dict,
}
