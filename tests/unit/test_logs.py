"""What does a worker's log do when nobody reads it?"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from windlass.cli.logs import StderrHandler


class Pipe:
    """A log that goes into a pipe."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.handler = StderrHandler(self.writing, patience=0.0)
        self.logger = logging.getLogger("windlass.log")
        self.logger.addHandler(self.handler)

    def read(self) -> str:
        """All that is there."""
        text = b""
        while True:
            try:
                text += os.read(self.reading, 1 << 20)
            except BlockingIOError:
                return text.decode()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.logger.removeHandler(pipe.handler)
    os.close(pipe.reading)
    os.close(pipe.writing)


def test_the_log_takes_no_lock(pipe: Pipe) -> None:
    assert pipe.handler.lock is None
    # Straight to the handler: half a character is for it to write, not for pytest to report.
    pipe.handler.emit(logging.makeLogRecord({"msg": "hello \N{SNOWMAN} \udc80"}))
    assert pipe.read() == "hello \N{SNOWMAN} \\udc80\n"


def test_lines_that_nobody_takes_are_dropped_and_counted(pipe: Pipe) -> None:
    for _ in range(200):
        pipe.logger.warning("x" * 4000)
    kept = pipe.read().count("\n")
    assert kept < 200
    pipe.logger.warning("again")
    assert pipe.read().splitlines() == ["again", "log.dropped"]


def test_a_closed_standard_error_is_no_error(pipe: Pipe) -> None:
    pipe.logger.removeHandler(pipe.handler)
    handler = StderrHandler(os.dup(pipe.writing))
    os.close(handler._target)  # noqa: SLF001
    handler.handle(logging.makeLogRecord({"msg": "lost"}))
    pipe.logger.addHandler(pipe.handler)
