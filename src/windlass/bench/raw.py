"""What can SQLite itself do on this disk? The limits that our own figures are shares of."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from time import perf_counter

from windlass.clock import uuid7

PAYLOAD = '{"body":"' + "x" * 188 + '"}'

_TABLE = """
create table jobs (
    seq integer primary key,
    id text not null unique,
    type text not null,
    priority integer not null,
    state text not null,
    payload text not null,
    token text
) strict
"""
_INDEX = "create index waiting on jobs (type, priority desc, seq) where state = 'pending'"
_INSERT = "insert into jobs (id, type, priority, state, payload) values (?, 'noop', 5, 'pending', ?)"
_CLAIM = """
update jobs set state = 'processing', token = lower(hex(randomblob(16)))
 where seq in (select seq from jobs where state = 'pending' and type = 'noop' order by priority desc, seq limit ?)
returning seq, token, payload
"""
_COMPLETE = "update jobs set state = 'completed' where seq = ? and token = ?"


def single_inserts(folder: Path, count: int) -> float:
    """Durable single inserts a second: one row, one commit."""
    connection = _open(folder / "inserts.db")
    begun = perf_counter()
    for _ in range(count):
        connection.execute("begin immediate")
        connection.execute(_INSERT, (uuid7(), PAYLOAD))
        connection.execute("commit")
    rate = count / (perf_counter() - begun)
    connection.close()
    return rate


def whole_cycles(folder: Path, count: int, *, batch: int = 100) -> float:
    """Jobs a second through insert, claim and complete in batches, each batch a durable commit."""
    connection = _open(folder / "cycles.db")
    begun = perf_counter()
    for _ in range(count // batch):
        connection.execute("begin immediate")
        for _ in range(batch):
            connection.execute(_INSERT, (uuid7(), PAYLOAD))
        connection.execute("commit")
        connection.execute("begin immediate")
        claimed = connection.execute(_CLAIM, (batch,)).fetchall()
        connection.execute("commit")
        connection.execute("begin immediate")
        for seq, token, _ in claimed:
            connection.execute(_COMPLETE, (seq, token))
        connection.execute("commit")
    rate = count / (perf_counter() - begun)
    connection.close()
    return rate


def _open(path: Path) -> sqlite3.Connection:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute(_TABLE)
    connection.execute(_INDEX)
    return connection
