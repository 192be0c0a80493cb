"""What the two ends of a move share: marks, batches of rows, and sums to compare them by.

The source is sealed before anything is read: what it accepted after that nobody would copy. The target is
sealed until it holds everything, so that nobody works on half of it. The source's word `moved` is the moment
at which the jobs change hands; before it the source can be opened again, after it only the target can be.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

# Each with the columns that order it. What comes first is what others point to.
TABLES: dict[str, tuple[str, ...]] = {
    "types": ("name",),
    "schemas": ("name", "digest"),
    "settings": ("name",),
    "api_keys": ("id",),
    "audit": ("seq",),
    "operations": ("id",),
    "pauses": ("type",),
    "breakers": ("name",),
    "limits": ("name",),
    "history": ("step", "at", "type", "name"),
    "samplings": ("id",),
    "uncommitted": ("type",),
    "releases": ("version",),
    "keys": ("caller", "key"),
    "jobs": ("seq",),
    "unread": ("seq",),
    "archive": ("seq",),
    "batches": ("id",),
    "dependencies": ("parent_id", "child_id"),
    "once": ("job_id", "key"),
    "progress": ("job_id",),
    "schedules": ("name",),
    "fires": ("id",),
    "checks": ("job_id",),
    "verdicts": ("type",),
}

DAY = 86_400_000_000

# A place in the order of a table: the values of the columns that order it.
Place = list[str | int]


class State(StrEnum):
    """How far a move has come, as each of the two stores tells."""

    # The source: what runs may still be settled; nothing is written any more; the jobs are in the target.
    CLOSING = "closing"
    CLOSED = "closed"
    MOVED = "moved"
    # The target.
    FILLING = "filling"
    FILLED = "filled"


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What a store remembers of a move: which one, how far, and where the other store is."""

    id: str
    state: State
    place: str
    began_at: int
    copied: dict[str, Place] = {}


class Batch(msgspec.Struct, frozen=True):
    """Rows of one table as the lines in which they are copied, and the place of the last one."""

    lines: list[bytes]
    last: Place
    # Of ended jobs: a time in each of the days on which they ended.
    days: tuple[int, ...] = ()


class Sum(msgspec.Struct, frozen=True):
    """How many rows a table has, and a checksum of them in any order."""

    rows: int
    checksum: str


# --- rows as lines ------------------------------------------------------------------------------

# A row is one line in the text form of PostgreSQL's COPY: written and read back in bulk as it is, so the same
# line on both sides is the same row.

_SPECIAL = re.compile(r"[\b\f\n\r\t\v\\]")
_ESCAPES = str.maketrans(
    {"\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": "\\\\"}
)


def line(row: Iterable[str | int | None]) -> bytes:
    """A row as a line."""
    return ("\t".join([_cell(value) for value in row]) + "\n").encode()


def _cell(value: str | int | None) -> str:
    if value is None:
        return r"\N"
    if isinstance(value, int):
        return str(value)
    return value.translate(_ESCAPES) if _SPECIAL.search(value) else value


def add_up(lines: Iterator[bytes]) -> Sum:
    """Count and checksum of rows, in whatever order they come."""
    rows = total = 0
    for each in lines:
        rows += 1
        total += int.from_bytes(hashlib.blake2b(each, digest_size=_BYTES).digest(), "big")
    return Sum(rows, f"{total % (1 << 8 * _BYTES):0{2 * _BYTES}x}")


_BYTES = 16
