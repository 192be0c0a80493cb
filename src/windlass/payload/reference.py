"""Where is the data that a payload only points at?"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.errors import must_be
from windlass.job import REFERENCE

MAX_REFERENCE = 2_048


def check_reference(value: object) -> str:
    """A reference, such as a URL or a key of object storage, or InvalidValue."""
    good = isinstance(value, str) and 1 <= len(value) <= MAX_REFERENCE and value.isprintable()
    if not isinstance(value, str) or not good:
        raise must_be("payload_ref", value, f"a printable text of 1 to {MAX_REFERENCE} characters")
    return value


def with_reference(payload: bytes, reference: str) -> bytes:
    """A payload that carries a reference beside the handler's own fields."""
    content: dict[str, Any] = msgspec.json.decode(payload)
    return msgspec.json.encode({**content, REFERENCE: reference}, order="deterministic")


def split_reference(payload: bytes) -> tuple[bytes, str | None]:
    """The handler's own fields of a payload, and the reference beside them, if there is one."""
    if REFERENCE.encode() not in payload:
        return payload, None
    content: dict[str, Any] = msgspec.json.decode(payload)
    reference: str | None = content.pop(REFERENCE, None)
    return msgspec.json.encode(content), reference
