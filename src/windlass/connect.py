"""Which store stands behind a URL? The only importer of concrete stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from windlass.errors import InvalidValue, StoreUnavailable
from windlass.store.handling import Transacting
from windlass.store.http.store import HttpStore
from windlass.store.protocol import Store
from windlass.store.sqlite import files
from windlass.store.sqlite import handling as sqlite_handling
from windlass.store.sqlite.connection import MEMORY
from windlass.store.sqlite.source import SqliteSource
from windlass.store.sqlite.store import SqliteStore
from windlass.wakeup.listen import Listen
from windlass.wakeup.local import LocalWakeup
from windlass.wakeup.protocol import Wakeup
from windlass.wakeup.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from windlass.clock import Clock
    from windlass.store.migration import Schema
    from windlass.store.moving import Source, Target

_SQLITE = "sqlite:///"
# How many seconds we wait for somebody else's write.
PATIENCE = 30.0
_HTTP = ("http://", "https://")
_POSTGRES = ("postgresql://", "postgres://")
_ALLOWED = (
    "a path, sqlite:///relative.db, sqlite:////absolute/path.db, sqlite:///:memory:, "
    "postgresql://user@host/database, or https://host for a server"
)


class Opened(msgspec.Struct, frozen=True):
    """A store and the hints that belong to it."""

    store: Store
    wakeup: Wakeup
    # A server stands before the store: it has the keys that seal, and its producers need none.
    served: bool = False

    def close(self) -> None:
        """Let go of both."""
        self.wakeup.close()
        self.store.close()


def open(
    url: str,
    *,
    create: bool = True,
    clock: Clock | None = None,
    patience: float = PATIENCE,
    migrations: Path | None = None,
) -> Opened:
    """Open the store behind a URL. A new one gets its schema; `create=False` opens what exists only.

    Times are the store's own; a `clock` stands in its place for tests, and a folder of `migrations` in ours.
    """
    if is_postgres(url):
        return _open_postgres(url, create=create, clock=clock, patience=patience, migrations=migrations)
    if is_http(url):
        return Opened(cast(Store, HttpStore(url, patience=patience)), LocalWakeup(), served=True)
    path = sqlite_path(url)
    store = SqliteStore(path, clock=clock, create=create, patience=patience, migrations=migrations)
    version = store.watch()
    return Opened(store, LocalWakeup() if version is None else Watch(version))


def open_alone(url: str, *, clock: Clock) -> Opened:
    """The same for tests: hints come from this process alone, on the thread of whoever enqueues."""
    store = open(url, clock=clock).store
    if is_postgres(url):
        # No commit tells by itself either: who enqueues would take it for told.
        cast("Any", store).wake_with(lambda: None)
    return Opened(store, LocalWakeup())


def migrate(
    url: str, *, migrations: Path | None = None, say: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Bring the store behind a URL to the newest schema; the names of the migrations applied."""
    if is_postgres(url):
        applied: list[str] = _postgres().schema.migrate(url, migrations, say)
        return applied
    return files.migrate(sqlite_path(url), migrations, say, patience=PATIENCE)


def schema(url: str, *, migrations: Path | None = None) -> Schema:
    """The schema of the store behind a URL beside the one that this code knows; nothing is changed."""
    if is_postgres(url):
        found: Schema = _postgres().schema.look_at(url, migrations)
        return found
    return files.look(sqlite_path(url), migrations)


def source(url: str) -> Source:
    """The store behind a URL, to be moved away from."""
    if is_postgres(url) or sqlite_path(url) == MEMORY:
        raise InvalidValue("store to be moved", shown(url), "a file of SQLite")
    return SqliteSource(sqlite_path(url), patience=PATIENCE)


def target(url: str) -> Target:
    """The store behind a URL, to be moved to; an empty database is given its schema."""
    if not is_postgres(url):
        sqlite_path(url)
        raise InvalidValue("--to", url, "postgresql://user@host/database")
    found: Target = _postgres().target.PostgresTarget(url)
    return found


def handlers(url: str) -> Transacting:
    """For a child process: handlers' transactions in the store behind a URL, and nothing else of it."""
    if is_postgres(url):
        found: Transacting = _postgres().handling.open_handlers(url, patience=PATIENCE)
        return found
    return sqlite_handling.open_handlers(sqlite_path(url), patience=PATIENCE)


def is_postgres(url: str) -> bool:
    """Whether a URL names a PostgreSQL database."""
    return url.startswith(_POSTGRES)


def is_http(url: str) -> bool:
    """Whether a URL names a server, behind which the store is."""
    return url.startswith(_HTTP)


def shown(url: str) -> str:
    """A URL without its password."""
    if is_http(url):
        scheme, _, rest = url.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"
    if not is_postgres(url):
        return url
    safe: str = _postgres().address.read(url).shown
    return safe


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


def _open_postgres(url: str, **options: Any) -> Opened:
    store = _postgres().store.PostgresStore(url, **options)
    listener = store.listener
    if listener is None:
        local = LocalWakeup()
        store.wake_with(local.notify)
        return Opened(store, local)
    wakeup = Listen(listener)
    store.wake_with(wakeup.notify, first=wakeup.first, here=wakeup.tell_here)
    return Opened(store, wakeup)


class _Postgres(NamedTuple):
    """The parts of the store that are asked for by name here."""

    address: ModuleType
    handling: ModuleType
    schema: ModuleType
    store: ModuleType
    target: ModuleType


def _postgres() -> _Postgres:
    """The driver is an extra, imported only by who needs it."""
    try:
        from windlass.store.postgres import address, handling, schema, store, target  # noqa: PLC0415 - see above
    except ImportError as error:
        if error.name is None or not error.name.startswith("psycopg"):
            raise
        raise StoreUnavailable(
            "PostgreSQL needs its driver, which is not installed: pip install 'windlass[postgres]'"
        ) from None
    return _Postgres(address, handling, schema, store, target)
