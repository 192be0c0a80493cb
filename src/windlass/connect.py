"""Which store stands behind a URL? The only importer of concrete stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from windlass.errors import InvalidValue
from windlass.store.protocol import Store
from windlass.store.sqlite import files
from windlass.store.sqlite.connection import MEMORY
from windlass.store.sqlite.store import SqliteStore
from windlass.wakeup.local import LocalWakeup
from windlass.wakeup.protocol import Wakeup
from windlass.wakeup.watch import Watch

if TYPE_CHECKING:
    from windlass.clock import Clock

_SQLITE = "sqlite:///"
# How many seconds we wait for somebody else's write.
_PATIENCE = 30.0
_ALLOWED = "a path, sqlite:///relative.db, sqlite:////absolute/path.db or sqlite:///:memory:"


class Opened(msgspec.Struct, frozen=True):
    """A store and the hints that belong to it."""

    store: Store
    wakeup: Wakeup

    def close(self) -> None:
        """Let go of both."""
        self.wakeup.close()
        self.store.close()


def open(url: str, *, create: bool = True, clock: Clock | None = None, patience: float = _PATIENCE) -> Opened:
    """Open the store behind a URL. A new file gets its schema; `create=False` opens what exists only."""
    path = sqlite_path(url)
    store = SqliteStore(path, clock=clock, create=create, patience=patience)
    version = store.watch()
    return Opened(store, LocalWakeup() if version is None else Watch(version))


def migrate(url: str) -> list[str]:
    """Bring the store behind a URL to the newest schema; the names of the migrations applied."""
    return files.migrate(sqlite_path(url), patience=_PATIENCE)


def sqlite_path(url: str) -> str:
    """The file that a URL names."""
    if url.startswith(_SQLITE):
        path = url.removeprefix(_SQLITE)
    elif "://" not in url:
        path = url
    else:
        # Only the scheme is shown: a URL may carry a password.
        raise InvalidValue("database URL", url.partition(":")[0] + "...", _ALLOWED)
    if not path or (path.startswith(":") and path != MEMORY):
        raise InvalidValue("database URL", url, _ALLOWED)
    return path
