"""Which store stands behind a URL? The only importer of concrete stores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from windlass.errors import Refused, StoreUnavailable, must_be
from windlass.store.remote import RemoteStore
from windlass.store.running import Transacting
from windlass.store.sqlite import guests, health
from windlass.store.sqlite import schema as sqlite_schema
from windlass.store.sqlite.beside import size_of
from windlass.store.sqlite.connection import MEMORY
from windlass.store.sqlite.source import SqliteSource
from windlass.store.sqlite.store import SqliteStore
from windlass.store.store import Store
from windlass.url import ALLOWED, HTTP, POSTGRES, FileName, without_password
from windlass.url import check as check_url
from windlass.wakeup import Listen, Wakeup, Watch

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from windlass.clock import Clock
    from windlass.store.migration import Schema
    from windlass.store.postgres.target import PostgresTarget
    from windlass.store.upkeep import Restored

_SQLITE = "sqlite:///"
# The two ends of a move.
Source: TypeAlias = SqliteSource
if TYPE_CHECKING:
    Target: TypeAlias = PostgresTarget
# How many seconds we wait for somebody else's write.
PATIENCE = 30.0


# What producers ask, and operators for jobs: a store, or a server in front of one.
Front = Store | RemoteStore


def direct(front: Front) -> Store:
    """The store itself; Refused if there is a server in front of it."""
    if isinstance(front, RemoteStore):
        raise Refused(
            f"this needs the store itself, and {front.shown} is a server: run it where the store is"
        )
    return front


class Opened(msgspec.Struct, frozen=True):
    """A store, or a server in front of one, and the hints that belong to it."""

    front: Front
    wakeup: Wakeup
    # The front is a server: it has the keys that seal, counts what waits, and knows the types.
    served: bool = False

    @property
    def store(self) -> Store:
        """The store itself."""
        return direct(self.front)

    def close(self) -> None:
        """Let go of both."""
        self.wakeup.close()
        self.front.close()


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
        return Opened(RemoteStore(url, patience=patience), Wakeup(), served=True)
    path = sqlite_path(url)
    store = SqliteStore(path, clock=clock, create=create, patience=patience, migrations=migrations)
    version = store.watch()
    return Opened(store, Wakeup() if version is None else Watch(version))


def hear_waits(front: Front, say: Callable[[str], None]) -> None:
    """Let a person hear that a server is away, and until when it is tried again."""
    if isinstance(front, RemoteStore):
        front.on_wait = say


def open_alone(url: str, *, clock: Clock, migrations: Path | None = None) -> Opened:
    """The same for tests: hints come from this process alone, on the thread of whoever enqueues."""
    store = open(url, clock=clock, migrations=migrations).store
    # No commit notifies by itself either: who enqueues would take it for notified.
    store.wake_with(lambda: None)
    return Opened(store, Wakeup())


def migrate(
    url: str, *, migrations: Path | None = None, say: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Bring the store behind a URL to the newest schema; the names of the migrations applied."""
    if is_postgres(url):
        applied: list[str] = _postgres().schema.migrate(url, migrations, say)
        return applied
    return sqlite_schema.migrate(sqlite_path(url), migrations, say, patience=PATIENCE)


def schema(url: str, *, migrations: Path | None = None) -> Schema:
    """The schema of the store behind a URL beside the one that this code knows; nothing is changed."""
    if is_postgres(url):
        found: Schema = _postgres().schema.look_at(url, migrations)
        return found
    return sqlite_schema.look_at(sqlite_path(url), migrations)


def restore(url: str, backup: str) -> Restored:
    """Put a backup in the place of the store behind a URL, which nobody may have open."""
    if is_postgres(url) or is_http(url):
        raise Refused(
            "db restore is for a SQLite file: restore a PostgreSQL store with pg_restore, while no worker, "
            "server or producer uses it"
        )
    return health.restore(sqlite_path(url), backup, patience=PATIENCE)


def source(url: str) -> SqliteSource:
    """The store behind a URL, to be moved away from."""
    if is_postgres(url) or sqlite_path(url) == MEMORY:
        raise must_be("store to be moved", shown(url), "a file of SQLite")
    return SqliteSource(sqlite_path(url), patience=PATIENCE)


def target(url: str) -> PostgresTarget:
    """The store behind a URL, to be moved to; an empty database is given its schema."""
    if not is_postgres(url):
        raise must_be("--to", without_password(url), "postgresql://user@host/database")
    found: PostgresTarget = _postgres().target.PostgresTarget(url)
    return found


def handlers(url: str) -> Transacting:
    """For a child process: handlers' transactions in the store at a `shared_address`, and nothing else."""
    if is_postgres(url):
        found: Transacting = _postgres().guests.open_handlers(url, patience=PATIENCE)
        return found
    return guests.open_handlers(url, patience=PATIENCE)


def is_postgres(url: str) -> bool:
    """Whether a URL names a PostgreSQL database."""
    return url.startswith(POSTGRES)


def is_http(url: str) -> bool:
    """Whether a URL names a server, behind which the store is."""
    return url.startswith(HTTP)


def check_direct(url: str, who: str) -> None:
    """Refuse the address of a server to those who need the store itself."""
    if is_http(url):
        raise Refused(
            f"{who} needs the store itself, and {without_password(url)} is a server: give it the store's own "
            "address, or let a program of yours claim over HTTP (POST /api/v1/leases)"
        )


def shown(url: str) -> str:
    """A URL without its password."""
    if not is_postgres(url):
        return without_password(url)
    safe: str = _postgres().address.read(url).shown
    return safe


def place(url: str) -> str:
    """What tells one store from another."""
    if is_postgres(url) or is_http(url):
        return shown(url)
    return str(Path(sqlite_path(url)).absolute())


def sqlite_path(url: str) -> str:
    """The file that a URL names."""
    check_url(url)
    if is_postgres(url) or is_http(url):
        raise must_be("database URL", shown(url), "a file of SQLite")
    path = url.removeprefix(_SQLITE)
    if not path or (path.startswith(":") and path != MEMORY):
        raise must_be("database URL", url, ALLOWED)
    before, mark, parameters = path.partition("?")
    if mark and "=" in parameters and not isinstance(url, FileName):
        raise must_be(
            "database URL", f"{before}?{parameters.partition('=')[0]}=...", "without parameters for a file"
        )
    return path


def is_memory(url: str) -> bool:
    """Whether a URL names a store in the memory of one process."""
    return not is_postgres(url) and not is_http(url) and sqlite_path(url) == MEMORY


def is_new_file(url: str) -> bool:
    """Whether a URL names a file that is yet to be made."""
    return not is_postgres(url) and not is_http(url) and not size_of(sqlite_path(url))


def check(url: str) -> None:
    """Refuse a URL that cannot name a store; nothing is opened."""
    check_url(url)
    if not is_postgres(url) and not is_http(url):
        sqlite_path(url)


def _open_postgres(url: str, **options: Any) -> Opened:
    store = _postgres().store.PostgresStore(url, **options)
    listener = store.listener
    if listener is None:
        local = Wakeup()
        store.wake_with(local.notify)
        return Opened(store, local)
    wakeup = Listen(listener)
    store.wake_with(wakeup.notify, first=wakeup.first, here=wakeup.notify_here)
    return Opened(store, wakeup)


def _postgres() -> ModuleType:
    """The driver is an extra, imported only by who needs it."""
    try:
        from windlass.store import postgres  # noqa: PLC0415 - see above
    except ImportError as error:
        if error.name is None or not error.name.startswith("psycopg"):
            raise
        raise StoreUnavailable(
            "PostgreSQL needs its driver, which is not installed: pip install 'windlass[postgres]'"
        ) from None
    return postgres
