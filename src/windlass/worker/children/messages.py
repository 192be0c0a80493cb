"""The messages between a worker and its child, and how they are sent; log records among them."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import msgspec

from windlass.job import Keep, NewJob
from windlass.origin import Main, Origin
from windlass.outcome import Done, Failed

_LENGTH = struct.Struct("!I")
_CHUNK = 65_536


# --- the worker says ----------------------------------------------------------------------------


class Hello(msgspec.Struct, tag=True, tag_field="is", frozen=True):
    """The first word: where the handlers are, and from which level on each logger is heard."""

    types: dict[str, Origin]
    main: Main | None
    levels: dict[str, int]
    # Of types whose rules are a function, where it is; None if a child cannot import it by itself.
    rules: dict[str, Origin | None]


class Work(msgspec.Struct, tag=True, tag_field="is", frozen=True, kw_only=True):
    """Run this job now."""

    type: str
    payload: bytes
    # What the handler's Context tells; the job as JSON, only for handlers that take one.
    job: bytes | None = None
    deadline: datetime | None = None
    seconds: float
    memory: int | None = None
    cpu_time: float | None = None
    # Whether its result is kept.
    keep: Keep = True
    # What names the job in a log besides, and the span under which it runs.
    fields: dict[str, Any] = {}
    span: str | None = None


class Told(msgspec.Struct, tag=True, tag_field="is", frozen=True):
    """The job shall stop; perhaps because its lease is gone."""

    lease_lost: bool


class Completion(NamedTuple):
    """What a child writes as its job's completion; the lease as JSON, the rest as in Settlement."""

    lease: bytes
    outcome: Done
    ran: timedelta | None
    enqueues: tuple[NewJob, ...]
    check_in: timedelta | None
    app: str


class Answered(msgspec.Struct, tag=True, tag_field="is", frozen=True):
    """What became of a question: an answer, or the kind of the error that it met and its message."""

    number: int
    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    error: str = ""
    message: str = ""


FromWorker = Hello | Work | Told | Answered


# --- the child says -----------------------------------------------------------------------------


class Ready(msgspec.Struct, tag=True, tag_field="is", frozen=True):
    """The application is imported."""


class Unfit(msgspec.Struct, tag=True, tag_field="is", frozen=True):
    """The application cannot be imported."""

    why: str


class Said(msgspec.Struct, tag=True, tag_field="is", frozen=True):
    """A log record of the job's; `fields` are its extras that can be told."""

    logger: str
    level: int
    message: str
    fields: dict[str, Any]
    trace: str | None = None


class Finished(msgspec.Struct, tag=True, tag_field="is", frozen=True):
    """The handler returned; `value` is its JSON, `missing` says why there is none."""

    value: bytes | None = None
    missing: str | None = None


class Broke(msgspec.Struct, tag=True, tag_field="is", frozen=True):
    """The handler raised; perhaps because it may have no more memory."""

    failed: Failed
    no_memory: bool = False


# What a handler's context asks of the worker: methods of its ContextBackend.
Verb = Literal[
    "enqueue", "progress", "extend", "once", "keep", "lend_address", "tell_completion", "committed", "undone"
]


class Asked(msgspec.Struct, tag=True, tag_field="is", frozen=True):
    """The handler asks for something through its context."""

    number: int
    verb: Verb
    arguments: tuple[msgspec.Raw, ...]


FromChild = Ready | Unfit | Said | Finished | Broke | Asked


# --- the form -----------------------------------------------------------------------------------

encode = msgspec.msgpack.Encoder().encode
from_worker = msgspec.msgpack.Decoder(FromWorker)
from_child = msgspec.msgpack.Decoder(FromChild)


class Mouth:
    """Sends whole messages, from any thread."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._lock = threading.Lock()

    def say(self, message: FromWorker | FromChild) -> None:
        body = encode(message)
        with self._lock:
            self._link.sendall(_LENGTH.pack(len(body)) + body)


class Ear:
    """Puts messages together from what arrives in pieces."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        # Used again and again: room asked for anew would be given back in pieces, a little more each time.
        self._room = memoryview(bytearray(_CHUNK))
        self._kept = bytearray()

    def listen(self) -> Iterator[bytes]:
        """Take one piece in; the messages that are whole by now. EOFError if there will be no more."""
        size = self._link.recv_into(self._room)
        if not size:
            raise EOFError
        self._kept += self._room[:size]
        begin = 0
        while len(self._kept) - begin >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._kept, begin)
            end = begin + _LENGTH.size + length
            if len(self._kept) < end:
                break
            yield bytes(self._kept[begin + _LENGTH.size : end])
            begin = end
        del self._kept[:begin]


_LONGEST = 32_768
_PLAIN = (str, int, float, bool, type(None))
# What every record has; the rest are the extras of whoever logged.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Forward(logging.Handler):
    """In the child: sends each record to the worker, with the fields of the job that runs."""

    def __init__(self, say: Callable[[Said], None]) -> None:
        super().__init__()
        self._say = say
        self.fields: dict[str, Any] = {}

    def install(self, levels: Mapping[str, int]) -> None:
        """Take what comes to the root logger; `levels` are the worker's, the root's under an empty name."""
        root = logging.getLogger()
        if self not in root.handlers:
            root.addHandler(self)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record; what cannot be told is told as text."""
        try:
            extras = {name: value for name, value in vars(record).items() if name not in _USUAL}
            fields = {
                name: value if isinstance(value, _PLAIN) else _short(repr(value))
                for name, value in (self.fields | extras).items()
            }
            trace = record.exc_text
            if record.exc_info and record.exc_info[0] is not None:
                trace = _short(logging.Formatter().formatException(record.exc_info))
            self._say(Said(record.name, record.levelno, _short(record.getMessage()), fields, trace))
        except Exception:  # noqa: BLE001 # wall: a record that cannot be told is not the job's failure
            self.handleError(record)


def levels() -> dict[str, int]:
    """In the worker: from which level on anything is heard, of the application's loggers and of ours."""
    return {name: logging.getLogger(name).getEffectiveLevel() for name in ("", "windlass")}


def retell(said: Said) -> None:
    """In the worker: log it again, as if it had been said here."""
    logger = logging.getLogger(said.logger)
    if not logger.isEnabledFor(said.level):
        return
    record = logger.makeRecord(said.logger, said.level, "(child)", 0, "%s", (said.message,), None)
    vars(record).update({name: value for name, value in said.fields.items() if name not in _USUAL})
    record.exc_text = said.trace
    logger.handle(record)


def _short(text: str) -> str:
    return text.encode("utf-8", "replace").decode()[:_LONGEST]
