"""How does a worker's log read: for people, and for machines?"""

from __future__ import annotations

import logging
import os
import re
import select
import sys
from typing import Any

import msgspec

from windlass.cli.screen import Screen, block, one_line
from windlass.clock import from_micros

log = logging.getLogger("windlass.log")

STDERR = 2
# What poll() promises that a pipe has room for.
_PIECE = 4096


def log_to_stderr(*, as_json: bool, verbose: bool = False) -> None:
    """Let everything that Windlass logs go to standard error. Payloads are never logged by anyone."""
    handler = StderrHandler()
    screen = Screen(colours=Screen.of_stdout().colours and sys.stderr.isatty())
    handler.setFormatter(JsonFormatter() if as_json else PeopleFormatter(screen))
    logger = logging.getLogger("windlass")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    logger.propagate = False


class StderrHandler(logging.Handler):
    """Writes whole lines to standard error. Takes no lock and waits for no reader.

    A handler of the application may be broken off while it logs, and a pipe may have nobody at its end;
    neither must ever stop whoever settles jobs. Lines that nobody takes are dropped and counted.
    """

    def __init__(self, target: int = STDERR, patience: float = 0.2) -> None:
        super().__init__()
        self._target = target
        self._patience = patience
        self._dropped = 0

    def handle(self, record: logging.LogRecord) -> bool:
        """Emit what the filters let through, without logging's lock: an interrupted thread may hold it."""
        # Since Python 3.12 a filter may answer with another record.
        passed: object = self.filter(record)
        if passed:
            self.emit(passed if isinstance(passed, logging.LogRecord) else record)
        return bool(passed)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, if somebody takes it."""
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        except Exception:  # noqa: BLE001 # wall: what an application logs need not be printable
            self.handleError(record)
            return
        # Once it has waited in vain, nobody waits again before a line gets through.
        if not write(self._target, line, 0.0 if self._dropped else self._patience):
            self._dropped += 1
        elif self._dropped:
            dropped, self._dropped = self._dropped, 0
            log.warning("log.dropped", extra={"lines": dropped})


def write(target: int, data: bytes, patience: float) -> bool:
    """Write all of it, in pieces that a pipe takes without waiting; False if nobody reads for so long."""
    ready = select.poll()
    ready.register(target, select.POLLOUT)
    try:
        for start in range(0, len(data), _PIECE):
            if not ready.poll(patience * 1000):
                return False
            os.write(target, data[start : start + _PIECE])
    except OSError:
        return False
    return True


class PeopleFormatter(logging.Formatter):
    """One line: time, event, fields; a traceback beneath, if there is one."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        given = _fields(record)
        stacks = str(given.pop("stacks", ""))
        fields = " ".join(f"{name}={_told(value)}" for name, value in given.items())
        event = one_line(record.getMessage())
        colour = "yellow" if record.levelno >= logging.WARNING else None
        colour = "red" if record.levelno >= logging.ERROR else colour
        moment = self._screen.paint(f"{_moment(record):%H:%M:%S}", "bright_black")
        line = f"{moment}  {self._screen.paint(f'{event:<18}', colour)}  {fields}".rstrip()
        beneath = [*block(stacks), *block(_traceback(self, record))]
        return "\n".join([line, *(f"    {each}" for each in beneath)])


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        told: dict[str, Any] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **_fields(record),
        }
        if text := _traceback(self, record):
            told["traceback"] = text
        return msgspec.json.encode(told, enc_hook=str).decode()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the event was logged with."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _moment(record: logging.LogRecord) -> Any:
    return from_micros(int(record.created * 1_000_000))


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


def _told(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(_told(each) for each in value)
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    if text and not _QUOTED.search(text):
        return one_line(text)
    # A quote in a value does not end it: no value can look like another field.
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{one_line(escaped)}"'


_QUOTED = re.compile(r'[\s"]')
# What every record has; whatever else it has was given with the event.
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
