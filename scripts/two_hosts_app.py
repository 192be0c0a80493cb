"""What do the workers of two_hosts.py run? A job that writes down each of its runs, in a table of its own."""

import os
import threading

import psycopg

from windlass import Context, Queue

queue = Queue()
_mine = threading.local()


@queue.job(max_attempts=1)
def note(ctx: Context, number: int) -> None:
    """Write down that this job ran here."""
    row = [number, ctx.id, os.environ["HOST_NAME"], os.getpid()]
    _connection().execute("insert into runs values (%s, %s, %s, %s)", row)


def _connection() -> psycopg.Connection:
    if not hasattr(_mine, "connection"):
        _mine.connection = psycopg.connect(os.environ["WINDLASS_DATABASE_URL"], autocommit=True)
    connection: psycopg.Connection = _mine.connection
    return connection
