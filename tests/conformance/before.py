"""What does a process of the release before do to keys? It knows callers, and no tenants."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import psycopg

from windlass.job import NewJob

# Its statement, word for word but for the spelling of parameters.
_TAKE = """insert into {0}keys (caller, key, job_id, digest) values ({1}, {1}, {1}, {1})
           on conflict (caller, key) do nothing returning job_id"""
_JOB = """insert into {0}jobs (seq, id, type, state, priority, due, tenant, payload, schema_version, key,
                               caller, max_attempts, created_at, enqueued_at, updated_at, run_at)
          values ({2}, {1}, {1}, 'pending', 5, 1, {1}, {1}, 1, {1}, {1}, 5, 0, 0, 0, 0)"""
_RESERVED = 900_000


def enqueue(url: str, new: NewJob) -> bool:
    """Store a keyed job as the release before does; whether its key was free."""
    with closing(_connect(url)) as connection:
        words = ("windlass.", "%s") if url.startswith("postgres") else ("windlass_", "?")
        taken = connection.execute(
            _TAKE.format(*words), (new.caller, new.key, new.id, new.digest())
        ).fetchone()
        if taken is not None:
            values = (new.id, new.type, new.tenant, new.payload.decode(), new.key, new.caller)
            connection.execute(_JOB.format(*words, _RESERVED), values)
        connection.commit()
        return taken is not None


def _connect(url: str) -> Any:
    return (
        psycopg.connect(url)
        if url.startswith("postgres")
        else sqlite3.connect(url.removeprefix("sqlite:///"))
    )
