"""How is the database, and what should a person know about it?"""

from __future__ import annotations

import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.clock import from_micros
from windlass.errors import StoreUnavailable, must_be
from windlass.store.moving import State
from windlass.store.oncall import DatabaseHealth, DatabaseSetting, OpenTransaction, TableHealth
from windlass.store.postgres import schema
from windlass.store.postgres.address import MARK
from windlass.store.upkeep import StoreStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.store.engine import Row
    from windlass.store.migration import Migration, Schema
    from windlass.store.postgres.address import Address
    from windlass.store.postgres.session import Connection, PostgresTx

_MOST_COUNTED = 1_000_000
# So long an open transaction may hold back the cleaning up before a person should know.
_LONG_SECONDS = 60
_KIND = "postgresql"
# What a server must not be without; the first of each is what it should be.
_SETTINGS = {
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "autovacuum": ("on",),
    "track_counts": ("on",),
}


def check_session(connection: Connection, address: Address) -> None:
    """Refuse a pooler that nobody told us of: what is prepared in one session would be run in another."""
    if address.pooler:
        return
    [row] = connection.execute("select current_setting($1, true) as mark", [MARK]).fetchall()
    if row["mark"] != "on":
        raise StoreUnavailable(
            f"{address.shown} does not keep the settings of a session, as behind a transaction pooler: "
            "say windlass_pooler=on in the URL"
        )


def status(tx: PostgresTx, address: Address, known: Sequence[Migration]) -> StoreStatus:
    """Size, versions and warnings."""
    [sizes] = tx.rows("sizes", limit=_MOST_COUNTED)
    [server] = tx.rows("server")
    found = schema.look(tx, known)
    return StoreStatus(
        url=address.shown,
        kind=_KIND,
        version=_version(server),
        schema=found.number or 0,
        newest_schema=found.newest,
        size_bytes=int(server["size"]),
        live=sizes["live"],
        archived=sizes["archived"],
        invalid_indexes=found.invalid_indexes,
        notes=_notes(tx, address, server, found),
    )


def _notes(tx: PostgresTx, address: Address, server: Row, found: Schema) -> tuple[str, ...]:
    notes = []
    if server["oldest"] > _LONG_SECONDS:
        notes.append(
            f"{server['holder']} has had a transaction open for {round(server['oldest'])} s: what jobs leave "
            "behind cannot be cleaned up meanwhile, and claims become slower; end it"
        )
    if address.pooler:
        notes.append(
            "behind a transaction pooler: workers are not notified of new jobs, but look every second"
        )
    elif not address.notify:
        notes.append("windlass_notify=off: workers are not notified of new jobs, but look every second")
    if found.invalid_indexes:
        notes.append(
            f"half-made indexes slow down what needs them: {', '.join(found.invalid_indexes)}; "
            "`windlass db migrate` builds them again"
        )
    arriving = tx.row("move")
    if arriving is not None and arriving["state"] == State.FILLING:
        notes.append(f"is being filled by a move from {arriving['place']}; nobody can write until it is over")
    return tuple(notes)


def _version(server: Row) -> str:
    return str(server["version"]).partition(" ")[0]


def database(tx: PostgresTx, address: Address, known: Sequence[Migration]) -> DatabaseHealth:
    """How the database is, by its own statistics: no job is counted for it."""
    [server] = tx.rows("server")
    [found] = tx.rows("sessions")
    holder = tx.row("oldest_transaction")
    return DatabaseHealth(
        kind=_KIND,
        version=_version(server),
        size_bytes=int(server["size"]),
        tables=[_table(row) for row in tx.rows("tables")],
        settings=[
            DatabaseSetting(
                name=name, value=found[name], wanted=None if found[name] in allowed else allowed[0]
            )
            for name, allowed in _SETTINGS.items()
        ],
        notes=list(_notes(tx, address, server, schema.look(tx, known))),
        oldest=None if holder is None else _oldest(holder),
        sessions=found["sessions"],
        most_sessions=found["most_sessions"],
        listeners=found["listeners"],
    )


def _table(row: Row) -> TableHealth:
    return TableHealth(
        name=row["name"],
        rows=row["rows"],
        dead_rows=row["dead_rows"],
        size_bytes=row["size_bytes"],
        vacuumed_at=None if row["vacuumed_at"] is None else from_micros(row["vacuumed_at"]),
        analyzed_at=None if row["analyzed_at"] is None else from_micros(row["analyzed_at"]),
    )


def _oldest(row: Row) -> OpenTransaction:
    return OpenTransaction(
        holder=row["holder"], pid=row["pid"], age=timedelta(seconds=max(0.0, row["seconds"] or 0.0))
    )


def check(tx: PostgresTx) -> list[str]:
    """What is wrong with the stored data."""
    problems = [f"job {row['id']} is both live and archived" for row in tx.rows("check_twice")]
    problems += [
        f"key {row['key']!r} belongs to job {row['job_id']}, which is gone" for row in tx.rows("check_keys")
    ]
    return problems


def backup(address: Address, path: str) -> None:
    """Write a consistent copy of our schema, as `pg_restore` reads it, while others go on working."""
    if Path(path).exists():
        raise must_be("path", path, "a file that does not exist yet")
    program = shutil.which("pg_dump")
    if program is None:
        raise StoreUnavailable("pg_dump is not installed here; it comes with PostgreSQL's client programs")
    # Through the environment: a command line can be read by everybody on this machine.
    words = [program, "--format=custom", "--schema=windlass", f"--file={path}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=address.environment())
    if done.returncode:
        Path(path).unlink(missing_ok=True)
        told = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise StoreUnavailable(f"pg_dump could not copy {address.shown}: {told}")
