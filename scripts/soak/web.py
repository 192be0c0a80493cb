"""A user-facing application: a request writes its own row and enqueues four jobs in the same transaction.

`uvicorn soak.web:app` serves it. While the database is away it answers 503.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

sys.path.insert(0, str(Path(__file__).parents[2]))

from soak.app import JOBS, queue
from soak.plan import ORDER_JOBS
from tests.history.record import Verb, from_environment
from windlass import config
from windlass.errors import StoreError

_recorder = from_environment()
_mine = threading.local()
_URL = config.load().database_url
TABLE = "create table orders (id bigint not null)"


@contextmanager
def transaction() -> Iterator[Any]:
    """On a connection that a thread keeps; one that breaks is opened again by the next request."""
    connection = getattr(_mine, "connection", None) or connect()
    _mine.connection = None
    try:
        yield connection
        connection.commit()
    except BaseException:
        connection.close()
        raise
    _mine.connection = connection


def connect() -> Any:
    """A connection to the database of the queue."""
    if _URL.startswith("sqlite"):
        return sqlite3.connect(_URL.removeprefix("sqlite:///"), timeout=30)
    return psycopg.connect(_URL, connect_timeout=5)


def create() -> None:
    """Make the application's own table."""
    with closing(connect()) as connection:
        connection.execute(TABLE)
        connection.commit()


def place(number: int) -> list[str]:
    """One order: its row and its jobs, all or none."""
    drafts = [JOBS[(number * ORDER_JOBS + n) % len(JOBS)].draft(number + n) for n in range(ORDER_JOBS)]
    ids = [draft.id for draft in drafts]
    with (
        _recorder.call(Verb.ENQUEUE, *ids, refused=()) as call,
        transaction() as connection,
    ):
        connection.execute(f"insert into orders values ({number})")  # noqa: S608 - a number of our own
        queue.enqueue_many(drafts, connection=connection)
        call.ids = ids
    return ids


async def orders(request: Request) -> JSONResponse:
    """POST /orders."""
    number = (await request.json())["n"]
    try:
        ids = await run_in_threadpool(place, number)
    except (StoreError, psycopg.Error, sqlite3.Error) as error:
        return JSONResponse({"error": repr(error)}, status_code=503)
    return JSONResponse({"jobs": ids}, status_code=201)


app = Starlette(routes=[Route("/orders", orders, methods=["POST"])])
