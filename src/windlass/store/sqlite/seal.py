"""Who keeps writers out of a file that moves? Triggers, which hold for every connection.

Also for those of callers, and of processes that opened it before: SQLite prepares their statements anew.
Without a move there are none, and nobody pays for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.errors import StoreError, StoreMoved, StoreUnavailable
from windlass.store import statements
from windlass.store.moving import State
from windlass.store.sqlite.library import sqlite3

_ALWAYS = "true"
# While a store is closing, what runs may end, also for who waited for it, and its workers may go on beating
# until it has.
_WHEN_CLOSED = "(select state from windlass_moves) <> 'closing'"
_UNLESS_RUNNING = f"(old.state <> 'processing' and old.waits_for = 0) or {_WHEN_CLOSED}"
# What is enqueued by a job's end goes with it.
_UNLESS_BY_END = "(select state <> 'closing' or not passing from windlass_moves)"
_REFUSED: dict[tuple[str, str], str] = {
    ("jobs", "insert"): _UNLESS_BY_END,
    ("jobs", "update"): _UNLESS_RUNNING,
    ("jobs", "delete"): _UNLESS_RUNNING,
    ("archive", "insert"): _WHEN_CLOSED,
    ("archive", "update"): _ALWAYS,
    ("archive", "delete"): _ALWAYS,
    **{
        (table, verb): _ALWAYS
        for table in ("types", "schemas", "settings", "schedules", "fires", "pauses")
        for verb in ("insert", "update", "delete")
    },
    ("keys", "insert"): _UNLESS_BY_END,
    ("keys", "update"): _UNLESS_BY_END,
    ("keys", "delete"): _UNLESS_BY_END,
    # What a running job says about itself, and who waits for it.
    **{
        (table, verb): _WHEN_CLOSED
        for table in ("batches", "dependencies", "once", "progress", "unread", "breakers", "limits")
        for verb in ("insert", "update", "delete")
    },
    # Who only looks would count what came in, in the history that is copied.
    ("samplings", "insert"): _WHEN_CLOSED,
    ("samplings", "update"): _WHEN_CLOSED,
    ("workers", "insert"): _ALWAYS,
    ("workers", "update"): _WHEN_CLOSED,
}
# The extended result code of a trigger's `raise`, by its number: not every build of the module has its name.
_RAISED = 1811


def put_on() -> Iterator[str]:
    """The statements that seal a file."""
    for (table, verb), condition in _REFUSED.items():
        yield (
            f"create trigger windlass_seal_{table}_{verb} before {verb} on windlass_{table} when {condition} "
            "begin select raise(abort, 'this store is being moved, or was: see windlass_moves'); end"
        )


def take_off() -> Iterator[str]:
    """The statements that open it again."""
    for table, verb in _REFUSED:
        yield f"drop trigger if exists windlass_seal_{table}_{verb}"


def refusal(connection: sqlite3.Connection, error: Exception) -> StoreError | None:
    """What an error means if it was the seal that stopped a write, in words; None if it was not."""
    if getattr(error, "sqlite_errorcode", None) != _RAISED:
        return None
    found = connection.execute(statements.load("sqlite")["move"]).fetchone()
    if found is None:
        return None
    [path] = [row["file"] for row in connection.execute("pragma database_list") if row["name"] == "main"]
    return words(path, found["state"], found["place"])


def note(state: str, place: str) -> str:
    """What a person who looks at the store should know."""
    if state == State.MOVED:
        return f"its jobs have moved to {place}; it can only be read"
    return f"its jobs are being moved to {place}: `windlass db move` goes on with that, --abort takes it back"


def words(path: str, state: str, place: str) -> StoreError:
    """Why nothing can be written, and where to go."""
    if state == State.MOVED:
        return StoreMoved(path, place)
    return StoreUnavailable(
        f"{path} is being moved to {place}; nothing was written: try again when the move is over, there"
    )
