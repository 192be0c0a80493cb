"""How does what a job logs in a child come out of the worker's own log?"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from windlass.worker.children.words import Said

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
            fields = {name: _plain(value) for name, value in (self.fields | extras).items()}
            trace = self._traceback(record)
            self._say(Said(record.name, record.levelno, _short(record.getMessage()), fields, trace))
        except Exception:  # noqa: BLE001 # wall: a record that cannot be told is not the job's failure
            self.handleError(record)

    def _traceback(self, record: logging.LogRecord) -> str | None:
        if record.exc_info and record.exc_info[0] is not None:
            return _short(logging.Formatter().formatException(record.exc_info))
        return record.exc_text


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


def _plain(value: object) -> object:
    return value if isinstance(value, _PLAIN) else _short(repr(value))


def _short(text: str) -> str:
    return text.encode("utf-8", "replace").decode()[:_LONGEST]
