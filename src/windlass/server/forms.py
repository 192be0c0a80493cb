"""Read the body of a request into a form, and its query; report every problem in them.

msgspec stops at the first problem. A body that it refuses is read once more, part by part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Any, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from windlass.checks import InvalidValues, Problems, read_moment
from windlass.duration import parse_duration
from windlass.errors import InvalidValue, must_be
from windlass.job import LATEST
from windlass.ops.actions import Parameter
from windlass.ops.document import CHECK, END
from windlass.ops.search import NOT_EMPTY
from windlass.payload import parse
from windlass.server.schemas import NOTHING

S = TypeVar("S", bound=msgspec.Struct)
Schema = Mapping[str, Any]
_MEMBER = re.compile(rb'"([a-z_]+)"\s*:')
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
# How many problems of one request are reported.
MOST_PROBLEMS = 100


def decode(kind: type[S], data: bytes) -> S:
    """A document of that form; InvalidValue or InvalidValues say what is wrong with it."""
    try:
        try:
            found = msgspec.json.decode(data, type=kind)
        except msgspec.ValidationError:
            # What comes behind the first wrong value may be no JSON at all.
            msgspec.json.decode(data, type=msgspec.Raw)
            problems = list(islice(_problems(kind, data, ""), MOST_PROBLEMS))
            raise problems[0] if len(problems) == 1 else InvalidValues(problems) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = "half a character, such as \\ud800" if _HALF.search(data) else str(error)
        raise must_be("body", data.decode(errors="replace"), f"valid JSON ({why})") from None
    names = _MEMBER.findall(data)
    if len(set(names)) < len(names):
        # Most often one of them is in the payload, or in another job.
        twin = _twin(json.loads(data, object_pairs_hook=_Members))
        if twin is not None:
            raise _wrong(twin, "given twice", "given once")
    return found


def _wrong(field: str, fault: str, allowed: str) -> InvalidValue:
    message = f"{field} is {fault}; it must be {allowed}"
    return InvalidValue(message, field=field, value=None, allowed=allowed)


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


def _problems(kind: Any, data: bytes, path: str) -> Iterator[InvalidValue]:
    """What is wrong with a part of a body, at a path such as jobs[3].priority."""
    each = Parameter.of(path, kind, None)
    inside = _problems_inside(each.base, data, path)
    first = next(inside, None)
    try:
        found = msgspec.json.decode(data, type=kind)
        if first is None and found is not None:
            for check in checks_of(each.notes):
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
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        members = _read(data, dict[str, msgspec.Raw])
        yield from () if members is None else _problems_of_members(kind, members, path)
    elif get_origin(kind) in (tuple, list, Sequence):
        for index, value in enumerate(_read(data, list[msgspec.Raw]) or ()):
            yield from _problems(get_args(kind)[0], bytes(value), f"{path}[{index}]")
    elif get_origin(kind) in (dict, Mapping):
        for name, value in (_read(data, dict[str, msgspec.Raw]) or {}).items():
            yield from _problems(get_args(kind)[1], bytes(value), f"{path}.{name}")


def _problems_of_members(
    kind: type[msgspec.Struct], members: dict[str, msgspec.Raw], path: str
) -> Iterator[InvalidValue]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name, field in fields.items():
        place = f"{path}.{name}".removeprefix(".")
        if name in members:
            yield from _problems(field.type, bytes(members[name]), place)
        elif field.required:
            yield _wrong(place, "missing", "given")
    for name, value in members.items():
        if name not in fields:
            place = f"{path}.{name}".removeprefix(".")
            yield must_be(place, _sent(value), "left out: there is no such field")


def checks_of(notes: Sequence[Any]) -> tuple[Callable[[Any, str], Any], ...]:
    """What reads a value, among the annotations of its type."""
    known = (getattr(each, "extra", None) or {} for each in notes)
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


# --- the values of parameters ---------------------------------------------------------------------


def read_query(known: Sequence[Parameter], raw: bytes) -> dict[str, Any]:
    """What a query says, by parameter; a refusal lists every problem in it."""
    if not raw:
        return {}
    fields = {each.field: each for each in known}
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError:
        raise must_be("query", raw.decode("latin-1"), "text in UTF-8, percent-encoded") from None
    sent: dict[str, list[str]] = {}
    problems, found = Problems(), {}
    for name, value in pairs:
        with problems:
            if name not in fields:
                none = "left out: this route takes no query parameters"
                raise must_be("query", name, "one of " + ", ".join(fields) if fields else none)
            if "\0" in value:
                raise must_be(name, value, "without NUL")
            sent.setdefault(name, []).append(value)
    for name, values in sent.items():
        with problems:
            found[fields[name].name] = _queried(fields[name], values)
    problems.check()
    return found


def _queried(each: Parameter, values: list[str]) -> Any:
    value: Any = values
    if each.base == Sequence[str]:
        value = tuple(part for text in values for part in text.split(",") if part)
        if not value:
            raise must_be(each.field, values[0], NOT_EMPTY)
    elif each.base != list[str]:
        if len(values) > 1:
            raise must_be(each.field, ", ".join(values), "given once")
        value = _single(each, values[0])
    for check in checks_of(each.notes):
        value = check(value, each.field)
    return value


def _single(each: Parameter, text: str) -> Any:
    if each.base is int:
        least, most = int(each.bounds.ge or 0), int(each.bounds.le or 0)
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
            raise must_be(each.field, text, f"a whole number between {least} and {most}")
        return int(text)
    if isinstance(each.base, type) and issubclass(each.base, StrEnum):
        if text not in set(each.base):
            raise must_be(each.field, text, "one of " + ", ".join(each.base))
        return each.base(text)
    return read_value(each, text)


def read_value(each: Parameter, value: Any) -> Any:
    """The value of a parameter: texts such as 10m and dates alone will do, as on the command line."""
    if isinstance(value, msgspec.Raw):
        return None if value == NOTHING else parse(bytes(value), each.field)
    if value is not None and each.base is timedelta:
        return parse_duration(value, each.field, LATEST)
    return read_moment(value, each.field) if value is not None and each.base is datetime else value


# --- what is allowed, in words ------------------------------------------------------------------


def allowed(kind: Any) -> str:
    """What a value of this type may be."""
    schema = msgspec.json.schema(kind)
    return words(schema, schema.get("$defs", {}))


def words(schema: Schema, components: Mapping[str, Schema]) -> str:
    """What a JSON Schema allows, without null: that is the same as left out."""
    if "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    options = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    # Durations and times are described by their type: neither a number nor a text says enough.
    for text in (each.get("description", "") for each in (schema, *options)):
        if text.startswith(("A duration", "A time")):
            return f"{text[0].lower()}{text[1:].rstrip('.')}"
    if options:
        return " or ".join(words(each, components) for each in options)
    if "enum" in schema:
        return "one of " + ", ".join(str(each) for each in schema["enum"] if each is not None)
    kind = _KINDS.get(schema.get("type", ""), "what the API's contract says")
    return f"{kind}{_bounds(schema)}"


def _bounds(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        return f" between {least} and {most}"
    told = [f"{word} {schema[name]}" for name, word in _BOUNDS.items() if name in schema]
    if told:
        return f" of {' and '.join(told)}"
    unit, what = ("Items", "values") if schema.get("type") == "array" else ("Length", "characters")
    least, most = schema.get(f"min{unit}", 0), schema.get(f"max{unit}")
    size = (
        f" of {least} to {most} {what}" if most is not None else f" of {least} or more {what}" * bool(least)
    )
    return f"{size} that matches {schema['pattern'].removesuffix(END)}$" if "pattern" in schema else size


_BOUNDS = {"exclusiveMinimum": "more than", "minimum": "at least", "maximum": "at most"}
_KINDS = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "a string",
    "array": "a list",
    "object": "an object",
}
