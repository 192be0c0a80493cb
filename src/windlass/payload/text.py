"""Which JSON do we take and keep? What one store would refuse, none is given."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from windlass.errors import InvalidPayload, InvalidValue, must_be
from windlass.job import MAX_PAYLOAD
from windlass.payload.faithful import DEEPEST, Unfaithful, check_faithful
from windlass.payload.models import dumped


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
        value = _decode(text)
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


def _decode(text: str) -> Any:
    """A text as JSON. An object without spaces around it, as most are, need not be searched for them."""
    value, end = _STRICT.raw_decode(text) if text.startswith("{") else (None, -1)
    return value if end == len(text) else _STRICT.decode(text)


def pack(payload: Mapping[str, Any], job_type: str) -> bytes:
    """A payload of plain JSON values as the bytes that are stored; for producers without the handler."""
    if not isinstance(payload, Mapping):
        raise refused(job_type, must_be("payload", payload, "a JSON object"))
    data = encode(payload, job_type)
    try:
        check_faithful(payload, msgspec.json.decode(data), "payload")
    except Unfaithful as error:
        raise refused(job_type, error.problem) from None
    return data


def encode(payload: Mapping[str, Any], job_type: str) -> bytes:
    """Compact JSON that every store can keep, or InvalidPayload."""
    try:
        data = _encode(payload)
    except (RecursionError, TypeError, ValueError):
        data = _encode_closely(payload, job_type)
    if len(data) > MAX_PAYLOAD:
        raise _too_large(data, job_type)
    if b"\\u0000" in data:
        try:
            _refuse_unstorable(msgspec.json.decode(data), "payload")
        except InvalidValue as error:
            raise refused(job_type, error) from None
    return data


def check_size(data: bytes, job_type: str) -> bytes:
    """A payload as it is stored, if that is not too large."""
    if len(data) > MAX_PAYLOAD:
        raise _too_large(data, job_type)
    return data


def _too_large(data: bytes, job_type: str) -> InvalidPayload:
    size = f"payload must be at most {MAX_PAYLOAD} bytes as JSON, got {len(data)} bytes"
    error = refused(job_type, f"{size}; keep large data elsewhere and send its name")
    error.too_large = True
    return error


def refused(job_type: str, problem: object) -> InvalidPayload:
    """The one form in which payloads are refused: the type, then what is wrong where."""
    return InvalidPayload(f"{job_type}: {problem}")


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
        try:
            msgspec.json.encode(name)
        except UnicodeEncodeError:
            # Shown as a value is: as it stands, nobody could print it.
            return must_be("a key of payload", name, "text without lone surrogates")
        except TypeError as reason:
            return must_be("a key of payload", name, f"JSON ({reason})")
        try:
            msgspec.json.encode(value, enc_hook=_plain)
        except UnicodeEncodeError:
            return must_be(f"payload.{name}", value, "text without lone surrogates")
        except TypeError as reason:
            return must_be(f"payload.{name}", value, f"JSON ({reason})")
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
