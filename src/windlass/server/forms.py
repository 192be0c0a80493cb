"""Read the body of a request into a form, and its query; report every problem in them.

msgspec stops at the first problem. A body that it refuses is read once more, part by part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from windlass.checks import Problems, read_moment
from windlass.duration import parse_duration
from windlass.errors import InvalidValue, must_be
from windlass.job import LATEST
from windlass.ops.actions import Parameter
from windlass.ops.document import CHECK, END
from windlass.ops.search import NOT_EMPTY
from windlass.payload import parse
from windlass.payload.codec import DEEPEST
from windlass.server.schemas import NOTHING

S = TypeVar("S", bound=msgspec.Struct)
Schema = Mapping[str, Any]
_MEMBER = re.compile(rb'"([a-z_]+)"\s*:')
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
# How many problems of one request are reported.
MOST_PROBLEMS = 100


def decode(kind: type[S], data: bytes, problems: Problems | None = None) -> S:
    """A document of that form; InvalidValue or InvalidValues say what is wrong with it.

    With `problems` they are added there, and the document is without them: for further checks only.
    """
    wrong = Problems() if problems is None else problems
    try:
        try:
            found = msgspec.json.decode(data, type=kind)
        except msgspec.ValidationError:
            # What comes behind the first wrong value may be no JSON at all.
            msgspec.json.decode(data, type=msgspec.Raw)
            wrong.refuse(islice(_problems(kind, data, ""), MOST_PROBLEMS))
            found = _right(kind, data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_json(data, error) from None
    names = _MEMBER.findall(data)
    if len(set(names)) < len(names):
        # Most often one of them is in the payload, or in another job.
        twins = _twins(json.loads(data, object_pairs_hook=_Members))
        wrong.refuse(_twice(twin) for twin in islice(twins, MOST_PROBLEMS))
    if problems is None:
        wrong.check()
    return found


def _no_json(data: bytes, error: Exception) -> InvalidValue:
    sent = data.decode(errors="replace")
    if isinstance(error, RecursionError):
        return must_be("body", sent, f"nested at most {DEEPEST} deep")
    why = "half a character, such as \\ud800" if _HALF.search(data) else str(error)
    return InvalidValue(f"body is not valid JSON: {why}", field="body", value=sent, allowed="valid JSON")


def _right(kind: Any, data: bytes) -> Any:
    """A part of a body without what is wrong in it: that is left out, or empty where it must be given."""
    with suppress(msgspec.ValidationError):
        return msgspec.json.decode(data, type=kind)
    base = Parameter.of("", kind, None).base
    if isinstance(base, type) and issubclass(base, msgspec.Struct):
        members, values = _read(data, dict[str, msgspec.Raw]) or {}, {}
        for field in msgspec.structs.fields(base):
            sent = members.get(field.encode_name)
            value = msgspec.UNSET if sent is None else _right(field.type, bytes(sent))
            if value is not msgspec.UNSET:
                values[field.name] = value
            elif field.required:
                values[field.name] = _empty(field.type)
        return base(**values)
    if get_origin(base) in (tuple, list, Sequence):
        parts = (_right(get_args(base)[0], bytes(value)) for value in _read(data, list[msgspec.Raw]) or ())
        return tuple(part for part in parts if part is not msgspec.UNSET)
    if get_origin(base) in (dict, Mapping):
        named = _read(data, dict[str, msgspec.Raw]) or {}
        found = {name: _right(get_args(base)[1], bytes(value)) for name, value in named.items()}
        return {name: value for name, value in found.items() if value is not msgspec.UNSET}
    return msgspec.UNSET


def _empty(kind: Any) -> Any:
    """In place of a value that must be given and is not; every check refuses it."""
    base = Parameter.of("", kind, None).base
    if isinstance(base, type) and issubclass(base, msgspec.Struct):
        return _right(base, b"{}")
    made = get_origin(base) or base
    return made() if made in (tuple, list, dict, int, float, bool) else {} if made is Mapping else ""


def _twice(field: str) -> InvalidValue:
    message = f"{field} is given twice; it must be given once"
    return InvalidValue(message, field=field, value=None, allowed="given once")


class _Members(list[tuple[str, Any]]):
    """An object as it was sent: its members in their order, also those that come twice."""


def _twins(value: Any, path: str = "") -> Iterator[str]:
    """The paths of members that come twice, but in payloads, which are looked at when they are read."""
    names: set[str | int] = set()
    for name, each in value if isinstance(value, _Members) else enumerate(value):
        here = f"{path}[{name}]" if isinstance(name, int) else f"{path}.{name}".removeprefix(".")
        if name in names:
            yield here
        names.add(name)
        if name != "payload" and isinstance(each, list):
            yield from _twins(each, here)


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
            yield InvalidValue(f"{place} is missing", field=place, value=None, allowed="given")
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
    if each.bounds.max_length is not None and len(text) > each.bounds.max_length:
        raise must_be(each.field, text, allowed(Annotated[str, each.bounds]))
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
    bounds = [f"{word} {schema[name]}" for name, word in _BOUNDS.items() if name in schema]
    if bounds:
        return f" of {' and '.join(bounds)}"
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
