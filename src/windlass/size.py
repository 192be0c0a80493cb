"""How much is "512MB"? Sizes come in as bytes or such words, and are whole bytes inside."""

from __future__ import annotations

import re

from windlass.errors import must_be

# What users may write where a size is taken.
Size = int | str

ALLOWED = "a size: bytes, or words such as 512MB, 2GB (of 1024 bytes to the kilobyte)"


def parse_size(value: object, field: str = "size") -> int:
    """A size in bytes, at least one; InvalidValue names `field`."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str) and (match := _WORDS.fullmatch(value.strip().upper())):
        size = int(float(match["number"]) * _UNITS[match["unit"] or ""])
        if size > 0:
            return size
    raise must_be(field, value, ALLOWED)


def size_text(size: int) -> str:
    """A size for people."""
    power = min(max(size.bit_length() - 1, 0) // 10, len(_SHOWN) - 1)
    return f"{size / 1024**power:.1f}".removesuffix(".0") + f" {_SHOWN[power]}"


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SHOWN = ("B", "KB", "MB", "GB", "TB")
_WORDS = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?) ?(?P<unit>[KMGT])?(?:I?B)?")
