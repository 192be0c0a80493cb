"""Is there a store at this path, and if not, may one be made?"""

from __future__ import annotations

import os
import re
from contextlib import closing
from typing import TYPE_CHECKING

from windlass.clock import SystemClock
from windlass.errors import InvalidValue, StoreBusy, StoreUnavailable
from windlass.store import migration
from windlass.store.sqlite import schema
from windlass.store.sqlite.connection import MEMORY, open_connection, translated
from windlass.store.sqlite.locks import AlwaysMine, Turn, describe, holder, turn_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from windlass.clock import Clock
    from windlass.store.migration import Migration, Schema


def real_path(path: str) -> str:
    """The one name of a file: SQLite puts the log beside the file that a link points to, and so must we."""
    if path == MEMORY:
        return path
    try:
        path.encode()
        # Two slashes in front would make a host name of the first part.
        return re.sub("^/+", "/", os.path.realpath(path))
    except (ValueError, UnicodeError):
        raise InvalidValue("path", path, "a name that a file can have") from None


def make(path: str, clock: Clock, known: Sequence[Migration], *, create: bool, patience: float) -> None:
    """See that there is a store at `path` whose schema is ours; make a new one if `create` says so."""
    if os.path.isdir(path):  # noqa: PTH112 - also for names that are too long to exist
        raise StoreUnavailable(f"cannot open {path}: it is a directory, not a file")
    # In a folder that is missing nothing could make one; opening it says so.
    if not create and not os.path.exists(path) and os.path.isdir(os.path.dirname(path)):  # noqa: PTH110, PTH112, PTH120 - likewise
        raise StoreUnavailable(
            f"there is no store at {path}; `windlass enqueue` or `windlass worker start` makes one"
        )
    with closing(open_connection(path)) as connection, translated(path):
        if schema.is_there(connection):
            migration.check(schema.look(connection, known), path)
            schema.write_ahead(connection, path)
            return
        with closing(our_turn(path, patience)):
            schema.prepare(connection, path, clock, known, create=create)


def migrate(path: str, folder: Path | None, say: Callable[[str], None], *, patience: float) -> list[str]:
    """Bring a file's schema up to date, or add our tables to it; the names of the migrations applied."""
    path = real_path(path)
    with (
        closing(open_connection(path)) as connection,
        translated(path),
        closing(our_turn(path, patience)),
    ):
        return schema.bring_up(connection, path, SystemClock(), migration.load(schema.DIALECT, folder), say)


def look(path: str, folder: Path | None) -> Schema:
    """The schema of the file at `path`; nothing is changed or made."""
    path, known = real_path(path), migration.load(schema.DIALECT, folder)
    if not os.path.exists(path):  # noqa: PTH110 - also for names that are too long to exist
        return migration.compare(None, known)
    with closing(open_connection(path)) as connection, translated(path):
        return schema.look(connection, known)


def our_turn(path: str, patience: float) -> Turn | AlwaysMine:
    """In turn, so that processes that start together on a new file do not trip over each other."""
    turn = turn_for(path)
    if not turn.take_within(patience):
        turn.close()
        raise StoreBusy(
            f"{describe(holder(path))} has held the write lock of {path} for {patience:g} s; try again"
        )
    return turn
