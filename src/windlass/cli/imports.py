"""How does a file of jobs get in: checked whole, stored in pieces, without doing half of a piece?"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import IO

import click
import msgspec

from windlass import connect
from windlass.cli.progress import progress
from windlass.cli.request import read_request
from windlass.cli.screen import jobs as so_many
from windlass.cli.session import session
from windlass.errors import (
    InvalidValue,
    KeyConflict,
    Refused,
    StoreError,
    UnknownType,
    WindlassError,
    must_be,
)
from windlass.job import NewJob
from windlass.ops import Pace
from windlass.ops.document import encode
from windlass.queue import JobHandle, Queue


class Imported(msgspec.Struct):
    """How far an import has come."""

    enqueued: int = 0
    existing: int = 0
    last_line: int = 0
    size: int = 0

    def count(self, handles: Sequence[JobHandle]) -> None:
        """Count what was stored, and what was there before."""
        created = sum(1 for handle in handles if handle.created)
        self.enqueued += created
        self.existing += len(handles) - created


class _Line(msgspec.Struct, frozen=True):
    number: int
    job: NewJob
    size: int


def import_file(queue: Queue, path: str, rate: float | None) -> None:
    """Enqueue every line of a file, `-` being standard input; at most `rate` a second.

    A file that can be read twice is checked to its end before anything is stored. A stream cannot be: there,
    what stands before the piece with the bad line is stored, and the error says so.
    """
    pace = Pace(rate)
    with _opened(path) as file:
        length = _length(file)
        if length is not None:
            for _ in _lines(queue, file):
                pass
            file.seek(0)
        done = _store(queue, file, length, pace)
    _tell(done)


def import_batch(queue: Queue, path: str, name: str) -> None:
    """Enqueue the lines of a file as one batch, all or none."""
    with _opened(path) as file:
        lines = list(_lines(queue, file))
    done = Imported()
    with _naming_lines(lines), queue.batch(name) as batch:
        batch.add(*(line.job for line in lines))
    done.count(batch.jobs)
    _tell(done, batch.id)


def _tell(done: Imported, batch_id: str | None = None) -> None:
    if session().json:
        batch = {} if batch_id is None else {"batch": batch_id}
        click.echo(encode({**batch, "enqueued": done.enqueued, "existing": done.existing}))
        return
    told = f"{so_many(done.enqueued)} enqueued" + (f" as batch {batch_id}" if batch_id else "")
    if done.existing:
        told += f", {done.existing} existed already by their keys"
    click.echo(told)


def key_is_taken(error: KeyConflict) -> str:
    """What stands against a key, without the words that only code can follow."""
    return f"key {error.key!r} belongs to job {error.job_id}, which has another type or payload"


def type_is_unknown(error: UnknownType, queue: Queue) -> str:
    """What makes a type known: a store learns of it from whoever has its code; so far nobody was there."""
    if connect.is_http(queue.url):
        # Who has the code here is not asked: behind a server only workers say which types there are.
        return f"{error}; a worker of the application, on the store of the server, makes its types known"
    if session().config.app:
        return str(error)
    return f"{error}; --app module:queue, or a worker of the application, makes its types known"


def _store(queue: Queue, file: IO[bytes], length: int | None, pace: Pace) -> Imported:
    done = Imported()
    lines = _lines(queue, file)
    try:
        with progress("enqueue", length) as advance:
            while chunk := list(islice(lines, min(pace.step or _CHUNK, _CHUNK))):
                _store_chunk(queue, chunk, done)
                done.size += sum(line.size for line in chunk)
                advance(done.size)
                pace.passed(len(chunk))
    except WindlassError as error:
        if not done.last_line:
            raise
        raise _with_progress(error, done) from None
    return done


def _store_chunk(queue: Queue, chunk: list[_Line], done: Imported) -> None:
    with _naming_lines(chunk):
        done.count(queue.enqueue_many(line.job for line in chunk))
    done.last_line = chunk[-1].number


@contextmanager
def _naming_lines(lines: Sequence[_Line]) -> Iterator[None]:
    """Say in which line a key is that is taken."""
    try:
        yield
    except KeyConflict as error:
        number = next(line.number for line in lines if line.job.key == error.key)
        raise Refused(f"line {number}: {key_is_taken(error)}; use another key") from None


def _lines(queue: Queue, file: Iterable[bytes]) -> Iterator[_Line]:
    for number, text in enumerate(file, start=1):
        if text.strip():
            yield _Line(number, _draft(queue, text, number), len(text))


def _draft(queue: Queue, text: bytes, number: int) -> NewJob:
    try:
        request = read_request(text.strip())
        return queue.draft(request.type, request.payload, **request.options)
    except InvalidValue as error:
        raise must_be(f"line {number}: {error.field}", error.value, error.allowed) from None
    except UnknownType as error:
        raise Refused(f"line {number}: {type_is_unknown(error, queue)}") from None
    except Refused as error:
        raise Refused(f"line {number}: {error}") from None


def _with_progress(error: WindlassError, done: Imported) -> WindlassError:
    """The same error, and what is stored all the same."""
    stored = (
        f"{so_many(done.enqueued + done.existing)} up to line {done.last_line} are stored, the rest is not"
    )
    if isinstance(error, InvalidValue):
        return must_be(error.field, error.value, f"{error.allowed} ({stored})")
    kind = StoreError if isinstance(error, StoreError) else Refused
    return kind(f"{error}; {stored}")


def _opened(path: str) -> AbstractContextManager[IO[bytes]]:
    try:
        return click.open_file(path, "rb")
    except OSError as error:
        raise must_be("--file", path, f"a file that can be read ({error.strerror})") from None


def _length(file: IO[bytes]) -> int | None:
    """The size of a plain file; None for a stream, which can be read only once."""
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


_CHUNK = 1000
