"""What do PostgreSQL's errors mean to a person, and which of them pass?"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg import errors

from windlass.errors import StoreBusy, StoreError, StoreMismatch, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

_BUSY = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.ObjectInUse,
)
_FOREIGN = (
    errors.InvalidSchemaName,
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.UndefinedFunction,
)
# What PgBouncer says to a connection that brings settings with it.
_POOLED = "unsupported startup parameter"
# Raised by the seal of a store that a move is filling.
_FILLING = "WL001"
# Where the server finds that a prepared statement would answer with other columns than before.
_PREPARED_BEFORE = "RevalidateCachedQuery"
_FULL = (errors.DiskFull, errors.OutOfMemory)
# Classes of SQLSTATE that mean that the connection, or the server behind it, is no good.
_AWAY = ("08", "57P", "53", "28", "3D")


@contextmanager
def translated(shown: str) -> Iterator[None]:
    """Turn PostgreSQL's errors into ours, with what to do next."""
    try:
        yield
    except psycopg.Error as error:
        raise explain(error, shown) from error


def explain(error: psycopg.Error, shown: str) -> StoreError:
    """One of our errors for one of PostgreSQL's."""
    why = told(error)
    if error.sqlstate == _FILLING:
        return StoreUnavailable(f"{shown} {why}; nothing was written: try again when the move is over")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreUnavailable(f"{shown} is read-only, as a standby is; nothing was written: try again")
    if isinstance(error, errors.DeadlockDetected):
        return StoreBusy(f"{shown}: two transactions waited for each other; try again")
    if isinstance(error, _BUSY):
        return StoreBusy(f"{shown} did not answer in time ({why}); try again")
    if isinstance(error, _FOREIGN):
        return StoreMismatch(f"{shown} has no Windlass schema of this version ({why}): `windlass db migrate`")
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreUnavailable(f"{shown}: this user may not do that ({why})")
    if isinstance(error, _FULL):
        return StoreUnavailable(f"{shown} has no room left ({why}); nothing was accepted")
    if _POOLED in why:
        return StoreUnavailable(
            f"{shown} is a pooler, which takes no settings of a session: say windlass_pooler=on in the URL"
        )
    if is_away(error):
        return StoreUnavailable(f"{shown} cannot be reached ({why}); try again")
    return StoreError(f"{shown}: {why}")


def is_away(error: psycopg.Error) -> bool:
    """Whether the connection is of no more use, or none could be made."""
    if error.sqlstate is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return error.sqlstate.startswith(_AWAY) or is_stale(error)


def is_stale(error: psycopg.Error) -> bool:
    """Whether this connection is of no more use, and others of its age are not, though the server is there.

    It leads to a standby; or a migration has added to a table since its statements were prepared.
    """
    return isinstance(error, errors.ReadOnlySqlTransaction) or _is_outdated(error)


def _is_outdated(error: psycopg.Error) -> bool:
    changed = isinstance(error, errors.FeatureNotSupported)
    return changed and error.diag.source_function == _PREPARED_BEFORE


def is_passing(error: psycopg.Error) -> bool:
    """Whether the very same transaction may succeed when it is run again at once.

    What it has prepared the driver forgets when it rolls back.
    """
    return isinstance(error, (errors.DeadlockDetected, errors.SerializationFailure)) or _is_outdated(error)


def lacks_day(error: psycopg.Error) -> bool:
    """Whether the archive has no partition for the day of a row."""
    found = isinstance(error, errors.CheckViolation)
    return found and error.diag.constraint_name is None and error.diag.table_name == "archive"


def told(error: psycopg.Error) -> str:
    """The first line of what the server said; libpq's own words carry no password."""
    text = error.diag.message_primary or str(error) or type(error).__name__
    return text.strip().splitlines()[0]
