"""How is the file, and what should a person know about it?"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass.errors import StoreUnavailable, must_be
from windlass.store.oncall import DatabaseHealth, DatabaseSetting, TableHealth
from windlass.store.sqlite import locks, schema, seal
from windlass.store.sqlite.connection import MEMORY, translated
from windlass.store.sqlite.library import has_wal_reset_bug, sqlite3, version_text
from windlass.store.upkeep import StoreStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.store.engine import Tx
    from windlass.store.migration import Migration
    from windlass.store.sqlite.identity import StoreFile

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
    found = schema.look(connection, known)
    moved = tx.row("move")
    return StoreStatus(
        url=f"sqlite:///{path}",
        kind="sqlite",
        version=version_text(),
        schema=found.number or 0,
        newest_schema=found.newest,
        size_bytes=_size(path),
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
            DatabaseSetting(
                name=name,
                value=(value := str(_pragma(connection, name))),
                wanted=None if path == MEMORY or read_only or value in allowed else allowed[0],
            )
            for name, allowed in _SETTINGS.items()
        ],
        notes=list(found.notes),
        wal_bytes=_wal_bytes(path),
        free_bytes=pages["page_size"] * pages["freelist_count"],
        disk_free_bytes=room,
    )


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    # Our own names only.
    return connection.execute(f"pragma {name}").fetchone()[0]


def _wal_bytes(path: str) -> int:
    wal = Path(path + "-wal")
    return wal.stat().st_size if path != MEMORY and wal.exists() else 0


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
                locks.same_mode(path, source.path)
                connection.execute("vacuum into ?", (path,))
        except BaseException:  # wall: nothing half-made stays; the error goes on
            # A half of a copy would stand in the way of the next one.
            Path(path).unlink(missing_ok=True)
            raise


def check(connection: sqlite3.Connection) -> list[str]:
    """What is wrong with the stored data."""
    problems = [row[0] for row in connection.execute("pragma integrity_check") if row[0] != "ok"]
    tx = schema.transaction(connection)
    problems += [f"job {row['id']} is both live and archived" for row in tx.rows("check_twice")]
    problems += [
        f"key {row['key']!r} belongs to job {row['job_id']}, which is gone" for row in tx.rows("check_keys")
    ]
    return problems


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


def _size(path: str) -> int:
    if path == MEMORY:
        return 0
    files = (Path(path + suffix) for suffix in ("", "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def _notes(path: str) -> list[str]:
    notes = []
    if has_wal_reset_bug():
        notes.append(
            f"SQLite {version_text()} can corrupt a file when a commit races a checkpoint; Windlass never "
            "lets that happen on its own connections, but other programs that write to this file must set "
            "wal_autocheckpoint=0, or use SQLite 3.51.3 or newer (`pip install windlass[sqlite]`)"
        )
    if path != MEMORY and (mode := _mode(path)) & _OTHERS:
        notes.append(
            f"every user of this machine can read {path} (mode {mode:04o}), and so block its writes: "
            f"run `chmod 600 {path}` (or 660 to share it with a group), then restart what uses it"
        )
    if path != MEMORY and (kind := _file_system(path)) in _NETWORK_FILES:
        notes.append(f"{path} lies on a network file system ({kind}), where SQLite's locks cannot be trusted")
    return notes


def _mode(path: str) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


def _file_system(path: str) -> str | None:
    """The kind of file system that a path lies on, if the system tells."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    real = os.path.realpath(path)
    found, longest = None, -1
    for mount in mounts:
        _, place, kind, *_ = mount.split()
        inside = place in ("/", real) or real.startswith(place + "/")
        if inside and len(place) > longest:
            found, longest = kind, len(place)
    return found
