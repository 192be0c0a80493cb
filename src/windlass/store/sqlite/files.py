"""Is there a store at this path, and if not, may one be made?"""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

from windlass.clock import SystemClock
from windlass.errors import StoreUnavailable
from windlass.store import migration
from windlass.store.sqlite import schema
from windlass.store.sqlite.connection import translated
from windlass.store.sqlite.identity import StoreFile
from windlass.store.sqlite.locks import our_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from windlass.clock import Clock
    from windlass.store.migration import Migration, Schema


def make(
    file: StoreFile,
    clock: Clock,
    known: Sequence[Migration],
    *,
    create: bool,
    patience: float,
    busy: float,
) -> None:
    """See that there is a store at the path whose schema is ours; make a new one if `create` says so.

    StoreBusy if there are tables to be made and another transaction holds the write lock for `busy` seconds.
    """
    path = file.path
    if os.path.isdir(path):  # noqa: PTH112 - also for names that are too long to exist
        raise StoreUnavailable(f"cannot open {path}: it is a directory, not a file")
    # In a folder that is missing nothing could make one; opening it says so.
    if not create and not os.path.exists(path) and os.path.isdir(os.path.dirname(path)):  # noqa: PTH110, PTH112, PTH120 - likewise
        raise StoreUnavailable(
            f"there is no store at {path}; `windlass enqueue` or `windlass worker start` makes one"
        )
    with closing(file.open_first(create=create, patience=patience)) as connection, translated(path):
        connection.execute(f"pragma busy_timeout = {round(busy * 1000)}")
        if schema.is_there(connection):
            migration.check(schema.look(connection, known), path)
            if not file.read_only:
                schema.write_ahead(connection, path)
            return
        with closing(our_turn(path, patience)):
            schema.prepare(connection, path, clock, known, create=create)


def migrate(path: str, folder: Path | None, say: Callable[[str], None], *, patience: float) -> list[str]:
    """Bring a file's schema up to date, or add our tables to it; the names of the migrations applied."""
    file = StoreFile(path)
    with (
        closing(file.open_first(create=True, patience=patience)) as connection,
        translated(file.path),
        closing(our_turn(file.path, patience)),
    ):
        known = migration.load(schema.DIALECT, folder)
        return schema.bring_up(connection, file.path, SystemClock(), known, say)


def look(path: str, folder: Path | None) -> Schema:
    """The schema of the file at `path`; nothing is changed or made."""
    file, known = StoreFile(path), migration.load(schema.DIALECT, folder)
    if not os.path.exists(file.path):  # noqa: PTH110 - also for names that are too long to exist
        return migration.compare(None, known)
    with closing(file.open_first(create=False, patience=0)) as connection, translated(file.path):
        return schema.look(connection, known)
