"""How does a worker's log read: for people, and for machines?"""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec

from windlass.cli.screen import Screen, block, one_line
from windlass.clock import from_micros


def log_to_stderr(*, as_json: bool, verbose: bool = False) -> None:
    """Let everything that Windlass logs go to standard error. Payloads are never logged by anyone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else PeopleFormatter(_screen()))
    logger = logging.getLogger("windlass")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    logger.propagate = False


class PeopleFormatter(logging.Formatter):
    """One line: time, event, fields; a traceback beneath, if there is one."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        fields = " ".join(f"{name}={_told(value)}" for name, value in _fields(record).items())
        event = one_line(record.getMessage())
        colour = (
            "red"
            if record.levelno >= logging.ERROR
            else "yellow"
            if record.levelno >= logging.WARNING
            else None
        )
        moment = self._screen.paint(f"{_moment(record):%H:%M:%S}", "bright_black")
        line = f"{moment}  {self._screen.paint(f'{event:<18}', colour)}  {fields}".rstrip()
        return "\n".join([line, *(f"    {each}" for each in block(_traceback(self, record)))])


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
    text = f"{value:.3g}" if isinstance(value, float) else one_line(str(value))
    return f'"{text}"' if " " in text or not text else text


def _screen() -> Screen:
    return Screen(colours=Screen.of_stdout().colours and sys.stderr.isatty())


# What every record has; whatever else it has was given with the event.
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
