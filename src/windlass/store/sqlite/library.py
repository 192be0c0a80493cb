"""Which SQLite library does this process use? One for all, chosen once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.errors import StoreMismatch

# Two SQLite libraries in one process silently drop each other's file locks, so there is this one door.
if TYPE_CHECKING:
    import sqlite3
else:
    try:
        from pysqlite3 import dbapi2 as sqlite3
    except ImportError:
        import sqlite3

__all__ = ["has_wal_reset_bug", "require_version", "sqlite3", "version_text"]

_OLDEST = (3, 37, 0)


def require_version() -> None:
    """Refuse a library that lacks what our statements need."""
    if sqlite3.sqlite_version_info < _OLDEST:
        raise StoreMismatch(
            f"SQLite {version_text()} is too old: Windlass needs 3.37 or newer; "
            "`pip install windlass[sqlite]` brings a new one"
        )


def version_text() -> str:
    """The library's version, such as 3.40.1."""
    return ".".join(str(part) for part in sqlite3.sqlite_version_info)


def has_wal_reset_bug() -> bool:
    """Whether a commit that races a checkpoint on another connection can corrupt the file (before 3.51.3)."""
    version = sqlite3.sqlite_version_info
    fixed = version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)
    return not fixed
