"""Payloads as JSON: what a handler takes, read from its annotations, and strict reading and writing.

No store is given what another one would refuse, and a handler gets what was sent: JSON turns a set into a
list and NaN into null without a word, so what would arrive as something else is refused.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from functools import partial
from types import NoneType
from typing import Any, NoReturn, get_args, get_type_hints

import msgspec

from windlass.context import Context
from windlass.errors import InvalidPayload, InvalidValue, must_be
from windlass.job import MAX_PAYLOAD
from windlass.payload.schema import dumped, loaded, schema_of
from windlass.payload.validate import refusal, refused

Names = Mapping[str, Any]
_STRUCT = partial(msgspec.defstruct, kw_only=True, forbid_unknown_fields=True)


class Signature:
    """A handler's parameters as the type of its payload. Refuses what JSON cannot carry when it is made."""

    def __init__(
        self,
        function: Callable[..., Any],
        job_type: str,
        names: Names | None = None,
        *,
        secret: Sequence[str] = (),
    ) -> None:
        """`names` stand around the function, for annotations in text; `secret` fields are in no error."""
        hints = {
            parameter.name: _hint(function, parameter, job_type, names or {})
            for parameter in inspect.signature(function).parameters.values()
        }
        contexts = [name for name, hint in hints.items() if _is_context(hint)]
        if len(contexts) > 1:
            raise must_be(f"handler {job_type}", contexts, "a function with at most one Context")
        self.context: str | None = contexts[0] if contexts else None
        self.context_first = list(hints)[:1] == contexts[:1] != []
        self._job_type = job_type
        self._bare = _bare(inspect.signature(function), hints, self.context)
        # An ordinary call is told by its names alone, at a tenth of what `inspect` takes to bind it.
        parameters = self._bare.parameters.values()
        # The names of a payload's fields.
        self.parameters = tuple(self._bare.parameters)
        self._names = frozenset(self.parameters)
        self._positional = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        # How many make a whole call without names; -1 if none can.
        self._all_positional = len(self._names) if len(self._positional) == len(self._names) else -1
        self._required = frozenset(each.name for each in parameters if each.default is each.empty)
        if isinstance(secret, str) or not self._names.issuperset(secret):
            allowed = f"a list of the handler's parameters ({', '.join(self.parameters) or 'none'})"
            raise must_be(f"encrypt of handler {job_type}", secret, allowed)
        self.secret = tuple(secret)
        self._decoder = msgspec.json.Decoder(_payload_type(self._bare), dec_hook=loaded)
        self.schema: dict[str, Any] = _schema(self._decoder.type, f"handler {job_type}", self._bare)
        # For whoever reads the schema; what cannot be shown as JSON is left out.
        for each in parameters:
            if each.default is not each.empty:
                with suppress(TypeError, ValueError):
                    default = msgspec.json.decode(msgspec.json.encode(each.default))
                    self.schema["properties"][each.name]["default"] = default

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The arguments of a call by name; defaults are left to the handler that will run."""
        if not kwargs and len(args) == self._all_positional:
            return dict(zip(self._positional, args, strict=True))
        arguments = dict(zip(self._positional, args, strict=False)) | kwargs
        if len(arguments) == len(args) + len(kwargs) and self._required <= arguments.keys() <= self._names:
            return arguments
        try:
            return self._bare.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise refused(self._job_type, f"{error}; it takes {self._bare}") from None

    def encode(self, arguments: Mapping[str, Any]) -> bytes:
        """Arguments as a payload that the handler's decoder is sure to take, or InvalidPayload."""
        # A dict is told at once; whatever else may be a mapping takes a while to ask.
        if not isinstance(arguments, (dict, Mapping)):
            raise refused(self._job_type, must_be("payload", arguments, "a JSON object"))
        data = encode(arguments, self._job_type)
        try:
            got = self._decoder.decode(data)
        except Exception as error:  # noqa: BLE001 # wall: user code in a payload class's __post_init__
            # NaN is null in JSON: say which number was wrong rather than that null is none.
            self._check_arrival(arguments, arguments.__getitem__)
            raise self._refusal(data, error) from None
        for value in arguments.values():
            if type(value) not in PLAIN:
                self._check_arrival(arguments, lambda name: getattr(got, name))
                break
        return data

    def _check_arrival(self, arguments: Mapping[str, Any], twin: Callable[[str], Any]) -> None:
        try:
            for name, value in arguments.items():
                if type(value) not in PLAIN:
                    check_faithful(value, twin(name), f"payload.{name}")
        except InvalidValue as error:
            raise refused(self._job_type, error) from None

    def decode(self, payload: bytes | msgspec.Raw) -> dict[str, Any]:
        """The arguments in a payload, those that it leaves out left out, or InvalidPayload."""
        try:
            found = self._decoder.decode(payload)
        except Exception as error:  # noqa: BLE001 # wall: user code in a payload class's __post_init__
            raise self._refusal(payload, error) from None
        arguments: dict[str, Any] = {}
        for name in self.parameters:
            value = getattr(found, name)
            if value is not _LEFT_OUT:
                arguments[name] = value
        return arguments

    def _refusal(self, payload: bytes | msgspec.Raw, error: Exception) -> InvalidPayload:
        try:
            known = refusal(self.schema, msgspec.json.decode(payload), self._job_type, self.secret)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return refused(self._job_type, f"payload must be valid JSON ({error})")
        if known is not None:
            return known
        hidden = type(error).__name__ if self.secret else error
        return refused(self._job_type, "payload does not fit: " + " ".join(str(hidden).split()))


def _hint(function: Callable[..., Any], parameter: inspect.Parameter, job_type: str, names: Names) -> Any:
    place = f"parameter {parameter.name} of handler {job_type}"
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise must_be(place, str(parameter), f"a plain parameter, not {parameter.kind.description}")
    if parameter.annotation is parameter.empty:
        return Any
    hint = _resolved(function, parameter, place, names)
    if not _is_context(hint):
        _schema(_STRUCT("Payload", [("it", hint)]), place, hint)
    return hint


def _resolved(function: Callable[..., Any], parameter: inspect.Parameter, place: str, names: Names) -> Any:
    space = inspect.unwrap(function).__globals__
    # Names imported for type checkers only are not there at run time; ours is the likeliest of them.
    known = ChainMap(dict(names), space, {"Context": Context})

    def carrier() -> None: ...

    carrier.__annotations__ = {"it": parameter.annotation}
    try:
        return get_type_hints(carrier, globalns=space, localns=known, include_extras=True)["it"]
    except NameError as error:
        allowed = f"annotated with names known at run time ({error}; is it imported for type checkers only?)"
        raise must_be(place, parameter.annotation, allowed) from None


def _is_context(hint: Any) -> bool:
    return hint is Context or set(get_args(hint)) == {Context, NoneType}


def _schema(payload: type[msgspec.Struct], place: str, shown: object) -> dict[str, Any]:
    try:
        msgspec.json.Decoder(payload)
        return schema_of(payload)
    except (TypeError, NameError, ValueError, AttributeError) as error:
        reason = str(error).splitlines()[-1]
        raise must_be(place, shown, f"annotated with types that JSON can carry ({reason})") from None


def _payload_type(signature: inspect.Signature) -> type[msgspec.Struct]:
    required, left_out = msgspec.field(), msgspec.field(default_factory=lambda: _LEFT_OUT)
    fields = []
    for name, each in signature.parameters.items():
        hint = Any if each.annotation is each.empty else each.annotation
        fields.append((name, hint, required if each.default is each.empty else left_out))
    return _STRUCT("Payload", fields)


def _bare(signature: inspect.Signature, hints: Mapping[str, Any], context: str | None) -> inspect.Signature:
    """What callers give: the context is not theirs to give."""
    parameters = [
        parameter if parameter.annotation is parameter.empty else parameter.replace(annotation=hints[name])
        for name, parameter in signature.parameters.items()
        if name != context
    ]
    return inspect.Signature(parameters)


_LEFT_OUT: Any = object()


# --- JSON as it is stored -----------------------------------------------------------------------


def parse(text: str | bytes, field: str = "payload") -> dict[str, Any]:
    """A JSON object that came from outside, taken strictly; InvalidValue names `field`."""
    value = parse_value(text, field)
    if not isinstance(value, dict):
        raise must_be(field, value, "a JSON object")
    return value


def parse_value(text: str | bytes, field: str) -> Any:
    """Any JSON that came from outside, taken strictly; InvalidValue names `field`."""
    came_in_bytes = isinstance(text, bytes)
    try:
        if isinstance(text, bytes):
            text = text.decode()
        # An object without spaces around it, as most are, need not be searched for them.
        value, end = _STRICT.raw_decode(text) if text.startswith("{") else (None, -1)
        value = value if end == len(text) else _STRICT.decode(text)
    except RecursionError:
        raise must_be(field, text, f"nested at most {DEEPEST} deep") from None
    except UnicodeDecodeError as error:
        raise must_be(field, text, f"JSON in UTF-8 ({error.reason} at byte {error.start})") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise must_be(field, text, f"valid JSON ({where}: {error.msg})") from None
    except ValueError as error:
        raise must_be(field, text, f"valid JSON ({error})") from None
    if not (came_in_bytes and _is_harmless(text)):
        _refuse_unstorable(value, field)
    return value


def pack(payload: Mapping[str, Any], job_type: str) -> bytes:
    """A payload of plain JSON values as the bytes that are stored; for producers without the handler."""
    if not isinstance(payload, Mapping):
        raise refused(job_type, must_be("payload", payload, "a JSON object"))
    data = encode(payload, job_type)
    try:
        check_faithful(payload, msgspec.json.decode(data), "payload")
    except InvalidValue as error:
        raise refused(job_type, error) from None
    return data


def encode(payload: Mapping[str, Any], job_type: str) -> bytes:
    """Compact JSON that every store can keep, or InvalidPayload."""
    try:
        data = _encode(payload)
    except (RecursionError, TypeError, ValueError):
        data = _encode_closely(payload, job_type)
    if len(data) > MAX_PAYLOAD:
        check_size(data, job_type)
    if b"\\u0000" in data:
        try:
            _refuse_unstorable(msgspec.json.decode(data), "payload")
        except InvalidValue as error:
            raise refused(job_type, error) from None
    return data


def check_size(data: bytes, job_type: str) -> bytes:
    """A payload as it is stored, if that is not too large."""
    if len(data) > MAX_PAYLOAD:
        size = f"payload must be at most {MAX_PAYLOAD} bytes as JSON, got {len(data)} bytes"
        error = refused(job_type, f"{size}; keep large data elsewhere and send its name")
        error.too_large = True
        raise error
    return data


def _encode_closely(payload: Mapping[str, Any], job_type: str) -> bytes:
    """For what the encoder refuses: it orders texts alone; other keys are texts once they are written."""
    try:
        written = msgspec.json.encode(payload, enc_hook=_plain)
        return msgspec.json.encode(msgspec.json.decode(written), order="deterministic")
    except RecursionError:
        raise refused(job_type, f"payload must be nested at most {DEEPEST} deep") from None
    except (TypeError, ValueError) as error:
        raise refused(job_type, _culprit(payload, error)) from None


def _plain(value: object) -> object:
    """What the encoder does not know: subclasses of JSON's own types, such as a framework's safe strings."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Mapping):
        return dict(value)
    return dumped(value)


# In one order, whatever order a dict or a set had: a repeated key is judged by these bytes.
_encode = msgspec.json.Encoder(enc_hook=_plain, order="deterministic").encode


def _culprit(payload: Mapping[str, Any], error: Exception) -> object:
    for name, value in payload.items():
        for place, part, hook in (("a key of payload", name, None), (f"payload.{name}", value, _plain)):
            try:
                msgspec.json.encode(part, enc_hook=hook)
            except UnicodeEncodeError:
                # Shown as a value is: as it stands, nobody could print it.
                return must_be(place, part, "text without lone surrogates")
            except TypeError as reason:
                return must_be(place, part, f"JSON ({reason})")
    return error


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {twin!r}")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"number {digits} is out of range")
    return number


_STRICT = json.JSONDecoder(object_pairs_hook=_without_twins, parse_constant=_refuse, parse_float=_finite)


def _is_harmless(text: str) -> bool:
    """Whether nothing that cannot be stored can be in it: without escapes in numbers, and with few brackets.

    For text that was UTF-8 and valid JSON: a NUL or half a pair could only be written as an escape.
    """
    return "\\u" not in text and text.count("{") + text.count("[") <= DEEPEST


def _refuse_unstorable(value: object, path: str, depth: int = 1) -> None:
    if depth > DEEPEST:
        raise must_be(path.partition(".")[0], value, f"nested at most {DEEPEST} deep")
    if isinstance(value, str):
        _refuse_text(value, path)
    elif isinstance(value, dict):
        for name, item in value.items():
            _refuse_text(name, f"a key of {path}")
            _refuse_unstorable(item, f"{path}.{name}", depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_unstorable(item, f"{path}[{index}]", depth + 1)


def _refuse_text(text: str, path: str) -> None:
    if "\0" in text:
        raise must_be(path, text, "text without a NUL character")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise must_be(path, text, "text without lone surrogates")


# --- what arrives is what was sent --------------------------------------------------------------

DEEPEST = 100


def check_faithful(sent: Any, got: Any, path: str, depth: int = 1) -> None:
    """Compare what was sent with what the decoder made of its JSON; raises InvalidValue.

    Plain JSON may arrive as something richer (a text as a datetime) where the annotation says so, but
    something richer must not arrive as plain JSON.
    """
    kind = type(sent)
    if kind in PLAIN:
        return
    if depth > DEEPEST:
        raise must_be(path.partition(".")[0], sent, f"nested at most {DEEPEST} deep")
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
                raise must_be(f"a key of {path}", name, "text, or of the type that the annotation names")
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
        raise must_be(path, sent, "a finite number")
    if isinstance(sent, Enum) or not isinstance(sent, str | int | float):
        _check_same_kind(sent, got, sent == got, path)


def _check_same_kind(sent: object, got: object, same: object, path: str) -> None:
    if not same:
        wanted, becomes = type(sent).__name__, type(got).__name__
        raise must_be(path, sent, f"plain JSON or annotated as {wanted} (it would arrive as {becomes})")


def _field_names(value: object) -> tuple[str, ...]:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in dataclasses.fields(value))
    return ()
