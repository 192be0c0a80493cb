"""What does a worker's log do when nobody reads it?"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial

import msgspec
import pytest

from tests.waiting import PATIENCE
from windlass.cli.logs import JsonFormatter, PeopleFormatter, StderrHandler
from windlass.cli.screen import Screen


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


def in_a_thread(call: Callable[[], object]) -> None:
    """Run it to its end on a thread of its own."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it never came back"


def test_logging_never_waits_for_a_lock_that_an_interrupted_thread_holds(pipe: Pipe) -> None:
    in_a_thread(pipe.handler.acquire)
    in_a_thread(partial(pipe.logger.warning, "still heard"))
    assert pipe.read() == "still heard\n"


def test_what_has_no_encoding_is_logged_escaped(pipe: Pipe) -> None:
    # Straight to the handler: pytest would try to report the half of a character, too.
    pipe.handler.handle(logging.makeLogRecord({"msg": "hello \N{SNOWMAN} \udc80"}))
    assert pipe.read() == "hello \N{SNOWMAN} \\udc80\n"


def test_a_filter_keeps_a_record_out_of_the_log(pipe: Pipe) -> None:
    pipe.handler.addFilter(lambda record: "secret" not in record.getMessage())
    pipe.logger.warning("secret")
    pipe.logger.warning("public")
    assert pipe.read() == "public\n"


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


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("plain", "error=plain"),
        ("C:\\temp", "error=C:\\temp"),
        ("", 'error=""'),
        ("two words", 'error="two words"'),
        ('x" outcome=completed job="y', 'error="x\\" outcome=completed job=\\"y"'),
        ('x\\" outcome=completed', 'error="x\\\\\\" outcome=completed"'),
        ('"', 'error="\\""'),
        (["a", 'b" c=d'], 'error=a,"b\\" c=d"'),
        ("a\u202eb c", 'error="a\\u202eb c"'),
    ],
)
def test_no_value_of_a_line_looks_like_another_field(value: object, line: str) -> None:
    record = logging.makeLogRecord(
        {"msg": "job.failed", "levelno": logging.INFO, "levelname": "INFO", "error": value, "job": "1"}
    )
    shown = PeopleFormatter(Screen()).format(record)
    assert shown.endswith(f"job.failed          {line} job=1")
    read = msgspec.json.decode(JsonFormatter().format(record))
    assert (read["error"], read["job"]) == (value, "1")
    assert "\n" not in shown
