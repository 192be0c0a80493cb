"""Look after a PostgreSQL store: status, checks, backup, and what retention deletes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import LiteralString

from psycopg import errors, sql

from windlass.clock import span
from windlass.errors import StoreUnavailable, must_be
from windlass.store import chains, rows, upkeep
from windlass.store.engine import Row
from windlass.store.migration import Migration, Schema
from windlass.store.moving import State
from windlass.store.oncall import DatabaseHealth, OpenTransaction, TableHealth, checked_settings
from windlass.store.postgres import hot, schema
from windlass.store.postgres.address import MARK, Address
from windlass.store.postgres.schema import DAYS_AHEAD
from windlass.store.postgres.session import PostgresTx, words
from windlass.store.upkeep import Retention, StoreStatus

DAY = 86_400_000_000
# A day of less than this is cleared row by row, to the second; a larger one goes whole when it is over.
_LARGE_DAY = 32 * 1024 * 1024
# Others may be doing the same at this moment: the next round finds what is left.
_IN_USE = (
    errors.LockNotAvailable,
    errors.ObjectInUse,
    errors.ObjectNotInPrerequisiteState,
    errors.UndefinedTable,
    errors.DeadlockDetected,
    errors.WrongObjectType,
)


def prune(tx: PostgresTx, keep: Retention, limit: int, by: str) -> int:
    """Delete one batch of records past their retention, their keys with them; each step commits by itself."""
    make_days(tx)
    before = tx.now - span(keep.ended)
    pruned = 0
    for day in tx.rows("archive_days"):
        if day["loose"]:
            # Detached by somebody who did not come to drop it.
            _drop(tx, day["name"], "")
        elif day["begins"] < before and pruned < limit:
            pruned += _prune_day(tx, day, before, limit - pruned)
    if pruned < limit:
        pruned += _prune_dead(tx, tx.now - span(keep.dead), limit - pruned, by)
    upkeep.prune_notes(tx, keep)
    chains.sweep(tx)
    return pruned


def make_days(tx: PostgresTx) -> None:
    """The archive's partitions for today and a week ahead."""
    [made] = tx.rows("make_days", now=tx.given, days=DAYS_AHEAD)
    tx.learn(made["now"])


def _prune_day(tx: PostgresTx, day: Row, before: int, limit: int) -> int:
    ends = day["begins"] + DAY
    over = ends <= before
    bounds = {"since": day["begins"], "before": min(before, ends)}
    if day["pending"]:
        _drop(tx, day["name"], "finalize")
        return 0
    if day["size"] < _LARGE_DAY:
        with tx.part():
            pruned = _free(tx, tx.rows("prune_day", limit=limit, **bounds))
        if over and pruned < limit and not tx.rows("count_day", limit=1, **bounds)[0]["count"]:
            _drop(tx, day["name"], "concurrently")
        return pruned
    if not over:
        return 0
    if freed := sum(tx.change(f"{whose}_of_day", limit=limit, **bounds) for whose in ("keys", "answered")):
        return freed
    counted: int = tx.rows("count_day", limit=limit, **bounds)[0]["count"]
    _drop(tx, day["name"], "concurrently")
    return counted


def _prune_dead(tx: PostgresTx, before: int, limit: int, by: str) -> int:
    [past] = tx.rows("any_dead", before=before)
    if not past["found"]:
        return 0
    with tx.part():
        gone = tx.rows("prune_dead", before=before, limit=limit)
        upkeep.note_pruned(tx, gone, by)
        return _free(tx, gone)


def _free(tx: PostgresTx, gone: Sequence[Row]) -> int:
    keyed = [(row["caller"], row["key"], row["id"]) for row in gone if row["key"] is not None]
    if keyed:
        hot.free_keys(tx, keyed)
    if gone:
        tx.change("free_answered", ids=words(row["id"] for row in gone))
    return len(gone)


def _drop(tx: PostgresTx, name: str, how: LiteralString) -> None:
    """Take a day out of the archive while others read it, unless that was done before, then drop it.

    A plain drop would wait behind a long reader and stop every settle meanwhile.
    """
    day = sql.Identifier("windlass", name)
    with suppress(*_IN_USE):
        if how:
            detach = sql.SQL("alter table windlass.archive detach partition {} {}")
            tx.connection.execute(detach.format(day, sql.SQL(how)))
        tx.connection.execute(sql.SQL("drop table if exists {}").format(day))


_MOST_COUNTED = 1_000_000
# So long an open transaction may hold back the cleaning up before a person should know.
_LONG_SECONDS = 60
_KIND = "postgresql"
# What a server must not be without; the first of each is what it should be.
_SETTINGS = {"fsync": ("on",), "full_page_writes": ("on",), "autovacuum": ("on",), "track_counts": ("on",)}


def check_session(tx: PostgresTx, address: Address) -> None:
    """Refuse a pooler that nobody told us of: what is prepared in one session would be run in another."""
    if address.pooler:
        return
    [row] = tx.connection.execute("select current_setting($1, true) as mark", [MARK]).fetchall()
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
    return rows.read(
        StoreStatus,
        sizes,
        url=address.shown,
        kind=_KIND,
        version=_version(server),
        schema=found.number or 0,
        newest_schema=found.newest,
        size_bytes=int(server["size"]),
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
    if server["may_lose"]:
        notes.append(
            "no standby is synchronous: a failover loses the jobs that were accepted last; "
            "set synchronous_standby_names"
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
    age = timedelta(seconds=max(0.0, (holder and holder["seconds"]) or 0.0))
    return rows.read(
        DatabaseHealth,
        found,
        kind=_KIND,
        version=_version(server),
        size_bytes=int(server["size"]),
        tables=[rows.read(TableHealth, row) for row in tx.rows("tables")],
        settings=checked_settings(found, _SETTINGS),
        notes=list(_notes(tx, address, server, schema.look(tx, known))),
        oldest=None if holder is None else rows.read(OpenTransaction, holder, age=age),
    )


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
