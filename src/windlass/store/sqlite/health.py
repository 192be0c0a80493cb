"""Look after a SQLite store: status, checks, backup and restore, and what retention deletes."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from windlass.clock import span
from windlass.errors import StoreBusy, StoreMismatch, StoreUnavailable, must_be
from windlass.store import chains, migration, rows, upkeep
from windlass.store.engine import Row, Tx
from windlass.store.migration import Migration, Schema
from windlass.store.oncall import DatabaseHealth, TableHealth, checked_settings
from windlass.store.sqlite import beside, schema, seal, storefile
from windlass.store.sqlite.connection import MEMORY, SqliteTx, open_connection, translated
from windlass.store.sqlite.library import has_wal_reset_bug, sqlite3, version_text
from windlass.store.sqlite.storefile import StoreFile, real_path
from windlass.store.upkeep import Restored, Retention, StoreStatus

_MOST_COUNTED = 1_000_000
# A page that is looked at must not wait for a count.
_MOST_SHOWN = 100_000
# How many pages one transaction gives back: others must not wait long for the write lock.
_PAGES_AT_ONCE = 2_000
# What holds for connections of ours; the first of each is what it should be.
_SETTINGS = {"journal_mode": ("wal",), "synchronous": ("2", "3"), "auto_vacuum": ("2", "1", "0")}
# Permissions of users who are neither the owner nor in the group.
_OTHERS = 0o007
_NETWORK_FILES = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs", "ceph", "glusterfs"}
)


def status(
    connection: sqlite3.Connection, path: str, known: Sequence[Migration], most: int = _MOST_COUNTED
) -> StoreStatus:
    """Size, versions and warnings; jobs are counted up to `most`."""
    tx = schema.transaction(connection)
    sizes = tx.row("sizes", limit=most)
    assert sizes is not None  # noqa: S101 - an aggregate has a row
    found = schema.look(tx, known)
    moved = tx.row("move")
    return StoreStatus(
        url=f"sqlite:///{path}",
        kind="sqlite",
        version=version_text(),
        schema=found.number or 0,
        newest_schema=found.newest,
        size_bytes=beside.size_of(path) + beside.size_of(path + "-wal"),
        live=sizes["live"],
        archived=sizes["archived"],
        moved_to=moved["place"] if moved else None,
        notes=tuple(_notes(path) + ([seal.note(moved["state"], moved["place"])] if moved else [])),
    )


def database(
    connection: sqlite3.Connection, path: str, known: Sequence[Migration], *, read_only: bool
) -> DatabaseHealth:
    """How the file is. Who may only read it neither sets how it is written nor can tell."""
    found = status(connection, path, known, _MOST_SHOWN)
    pages = {name: _pragma(connection, name) for name in ("page_size", "page_count", "freelist_count")}
    room = None if path == MEMORY else shutil.disk_usage(Path(path).absolute().parent).free
    return DatabaseHealth(
        kind=found.kind,
        version=found.version,
        size_bytes=found.size_bytes,
        tables=[
            TableHealth(name=name, rows=rows, dead_rows=0, size_bytes=0)
            for name, rows in (("jobs", found.live), ("archive", found.archived))
        ],
        settings=[
            msgspec.structs.replace(each, wanted=None) if path == MEMORY or read_only else each
            for each in checked_settings({name: _pragma(connection, name) for name in _SETTINGS}, _SETTINGS)
        ],
        notes=list(found.notes),
        wal_bytes=beside.size_of(path + "-wal"),
        free_bytes=pages["page_size"] * pages["freelist_count"],
        disk_free_bytes=room,
    )


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    # Our own names only.
    return connection.execute(f"pragma {name}").fetchone()[0]


def backup(source: StoreFile, path: str) -> None:
    """Write a consistent copy while others go on working; users who may read the store may read the copy."""
    if source.path == MEMORY:
        raise must_be("store", MEMORY, "a file, to be backed up")
    if Path(path).exists():
        raise must_be("path", path, "a file that does not exist yet")
    if not Path(path).absolute().parent.is_dir():
        raise StoreUnavailable(f"cannot write {path}: there is no such directory")
    with closing(source.connect()) as connection:
        try:
            with translated(path):
                # SQLite takes an empty file for a new one: it has its permissions before its contents.
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
                beside.same_mode(path, source.path)
                connection.execute("vacuum into ?", (path,))
                # SQLite does not sync that the copy's journal is gone: found again, it would undo the copy.
                beside.sync_folder(path)
        except BaseException:  # wall: nothing half-made stays; the error goes on
            # A half of a copy would stand in the way of the next one.
            Path(path).unlink(missing_ok=True)
            raise


def check(connection: sqlite3.Connection) -> list[str]:
    """What is wrong with the stored data."""
    problems = [row[0] for row in connection.execute("pragma integrity_check") if row[0] != "ok"]
    return problems + upkeep.check(schema.transaction(connection))


def give_back_room(tx: Tx) -> bool:
    """Hand free pages back to the file system, a bounded number at a time; whether to go on."""
    free = _free_pages(tx)
    for _ in range(min(free, _PAGES_AT_ONCE)):
        tx.row("give_back_page")
    # No progress means that the file was made without incremental vacuum.
    return 0 < _free_pages(tx) < free


def _free_pages(tx: Tx) -> int:
    row = tx.row("free_pages")
    assert row is not None  # noqa: S101 - the pragma always has a row
    return int(row["freelist_count"])


def _notes(path: str) -> list[str]:
    notes = []
    if has_wal_reset_bug():
        notes.append(
            f"SQLite {version_text()} can corrupt a file when a commit races a checkpoint; Windlass never "
            "lets that happen on its own connections, but other programs that write to this file must set "
            "wal_autocheckpoint=0, or use SQLite 3.51.3 or newer (`pip install windlass[sqlite]`)"
        )
    if path != MEMORY and (mode := stat.S_IMODE(Path(path).stat().st_mode)) & _OTHERS:
        notes.append(
            f"every user of this machine can read {path} (mode {mode:04o}), and so block its writes: "
            f"run `chmod 600 {path}` (or 660 to share it with a group), then restart what uses it"
        )
    if path != MEMORY and (kind := _file_system(path)) in _NETWORK_FILES:
        notes.append(f"{path} lies on a network file system ({kind}), where SQLite's locks cannot be trusted")
    return notes


def _file_system(path: str) -> str | None:
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    real = os.path.realpath(path)
    inside = [
        (len(place), kind)
        for _, place, kind, *_ in map(str.split, mounts)
        if place in ("/", real) or real.startswith(place + "/")
    ]
    return max(inside, key=itemgetter(0))[1] if inside else None


def prune(tx: SqliteTx, keep: Retention, limit: int, by: str) -> int:
    """Delete one batch of records past their retention, their keys with them."""
    chains.sweep(tx)
    tx.change("note_highest")
    pruned = _free(tx, tx.rows("prune_ended", before=tx.now - span(keep.ended), limit=limit))
    if pruned < limit:
        dead = tx.rows("prune_dead", before=tx.now - span(keep.dead), limit=limit - pruned)
        upkeep.note_pruned(tx, dead, by)
        pruned += _free(tx, dead)
    upkeep.prune_notes(tx, keep)
    return pruned


def _free(tx: SqliteTx, gone: Sequence[Row]) -> int:
    for row in gone:
        if row["key"] is not None:
            tx.change("free_key", scope=row["caller"], key=row["key"], job_id=row["id"])
    if gone:
        tx.change("free_answered", ids=rows.json_text([row["id"] for row in gone]))
    return len(gone)


_PRIVATE = 0o600


def restore(store: str, backup: str, *, patience: float) -> Restored:
    """Put a copy of a backup in the place of a store that nobody has open; the old file is kept beside it."""
    path, source = real_path(store), real_path(backup)
    _check_names(path, source, backup)
    number, copy = tempfile.mkstemp(prefix=".windlass-restore-", dir=os.path.dirname(path))  # noqa: PTH120
    os.close(number)
    try:
        found = _copy(source, copy)
        os.chmod(copy, _PRIVATE)  # noqa: PTH101 - plain names throughout
        beside.same_mode(copy, path)
        with closing(storefile.our_turn(path, patience)) as turn, _nobody_else(path):
            kept = _swap(copy, path)
            if isinstance(turn, storefile.Turn):
                turn.write(b"")
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(copy)  # noqa: PTH108
    return _told(path, backup, kept, found)


def _check_names(path: str, source: str, backup: str) -> None:
    if path == MEMORY:
        raise must_be("store", MEMORY, "a file, to be restored")
    if not Path(source).is_file():
        raise must_be("backup", backup, "a file that exists")
    if os.path.exists(path) and os.path.samefile(path, source):  # noqa: PTH110, PTH121
        raise must_be("backup", backup, "another file than the store itself")
    if not os.access(os.path.dirname(path), os.W_OK):  # noqa: PTH120
        raise StoreUnavailable(f"cannot write the directory {os.path.dirname(path)}")  # noqa: PTH120


def _copy(source: str, copy: str) -> Schema:
    """A copy of all that the backup holds, if it is whole and a store that this version knows."""
    known = migration.load(schema.DIALECT)
    mode = "rw" if os.access(source, os.W_OK) else "ro"
    with closing(open_connection(source, mode=mode)) as connection, translated(source):
        found = schema.look(schema.transaction(connection), known)
        if found.number is None:
            raise StoreMismatch(f"{source} is no backup of a Windlass store: it has no Windlass tables")
        migration.check_known(found, source)
        problems = check(connection)
        if problems:
            raise StoreMismatch(f"{source} is damaged, and nothing was restored: {problems[0]}")
        connection.execute("vacuum into ?", (copy,))
    with open(copy, "rb") as written:  # noqa: PTH123
        os.fsync(written.fileno())
    return found


@contextmanager
def _nobody_else(path: str) -> Iterator[None]:
    """Lock every other connection out of the store that is there, whichever program it belongs to.

    A connection that uses a write-ahead log keeps SQLite from giving it up, also one of an older release.
    """
    if not os.path.exists(path):  # noqa: PTH110
        yield
        return
    try:
        connection = open_connection(path)
    except StoreMismatch as error:
        # Damaged beyond opening, which may be why a backup is restored: SQLite cannot say who has it open.
        if others := storefile.users(path):
            raise _refusal(path, others) from error
        yield
        return
    with closing(connection):
        try:
            connection.execute("pragma busy_timeout = 0")
            connection.execute("pragma journal_mode = delete")
            connection.execute("begin exclusive")
        except sqlite3.OperationalError as error:
            raise _refusal(path, storefile.users(path)) from error
        except sqlite3.DatabaseError as error:
            if others := storefile.users(path):
                raise _refusal(path, others) from error
        yield


def _refusal(path: str, others: list[int]) -> StoreBusy:
    who = ", ".join(storefile.describe(pid) for pid in others) or "another process"
    return StoreBusy(
        f"{path} is open in {who}; nothing was restored: stop every worker, server and producer that uses "
        "it, then try again"
    )


def _swap(copy: str, path: str) -> str | None:
    kept = None
    if os.path.exists(path):  # noqa: PTH110
        kept = beside.free_name(path, ".before-restore")
        os.link(path, kept)
        # What of the log could not be written into a damaged file stays with that file.
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.rename(path + suffix, kept + suffix)  # noqa: PTH104
    # A power cut must neither lose the old file nor bring its journal back beside the new one.
    beside.sync_folder(path)
    os.rename(copy, path)  # noqa: PTH104
    beside.sync_folder(path)
    return kept


def _told(path: str, backup: str, kept: str | None, found: Schema) -> Restored:
    with closing(open_connection(path)) as connection, translated(path):
        tx = schema.transaction(connection)
        counts = tx.row("restored")
        assert counts is not None  # noqa: S101 - an aggregate has a row
        told = {"path": path, "backup": backup, "kept": kept, "pending": found.pending}
        return rows.read(Restored, counts, **told)
