"""How does text fit on a screen?"""

from __future__ import annotations

import io
import logging
import sys
from datetime import UTC, datetime, timedelta

import pytest

from windlass.cli.logs import JsonFormatter, PeopleFormatter
from windlass.cli.screen import Cell, Screen, age, cut, duration, took
from windlass.ops.words import ago
from windlass.size import size_text


def test_columns_are_aligned_and_numbers_stand_to_the_right() -> None:
    lines = Screen().table(("NAME", "COUNT", "NOTE"), [["a", 5, "x"], ["longer", 12345, ""]])
    assert lines == ["NAME     COUNT  NOTE", "a            5  x", "longer  12,345"]


def test_only_the_last_column_is_cut_to_the_width() -> None:
    lines = Screen(width=20).table(("ID", "ERROR"), [["0123456789", "something went wrong"]])
    assert lines == ["ID          ERROR", "0123456789  somethi…"]


def test_wide_characters_count_for_two() -> None:
    assert Screen().table(("A", "B"), [["日本", "x"], ["ab", "y"]]) == ["A     B", "日本  x", "ab    y"]
    assert cut("日本語", 5) == "日本…"


def test_colours_need_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "77")
    assert Screen.of_stdout() == Screen(None, colours=False)
    monkeypatch.setattr(sys, "stdout", Tty())
    assert Screen.of_stdout() == Screen(77, colours=True)
    assert Screen.of_stdout().table(("A",), [[Cell("x", "red")]])[1] == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Screen.of_stdout() == Screen(77, colours=False)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert Screen.of_stdout() == Screen(77, colours=False)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0ms"),
        (0.85, "850ms"),
        (12, "12s"),
        (119, "119s"),
        (120, "2m"),
        (7199, "120m"),
        (7200, "2h"),
        (200_000, "2d"),
    ],
)
def test_an_age_has_one_unit(seconds: float, words: str) -> None:
    assert age(timedelta(seconds=seconds)) == words


def test_moments_are_told_from_now() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert ago(now - timedelta(minutes=3), now) == "3m ago"
    assert ago(now + timedelta(seconds=20), now) == "in 20s"
    assert [took(timedelta(seconds=each)) for each in (0.012, 1.523, 200, 7300)] == [
        "12ms",
        "1.52s",
        "3m 20s",
        "2h 1m",
    ]
    assert [duration(timedelta(seconds=each)) for each in (0, 0.5, 90, 300, 604_800)] == [
        "0s",
        "0.5s",
        "90s",
        "5m",
        "7d",
    ]
    assert [size_text(each) for each in (0, 1023, 2048, 1010 * 2**20, 5 * 2**30)] == [
        *("0 B", "1023 B", "2 KB", "1010 MB", "5 GB")
    ]


def _record(**fields: object) -> logging.LogRecord:
    record = logging.LogRecord("windlass.x", logging.WARNING, "x.py", 1, "job.settled", (), None)
    record.created = 1_767_225_600.5
    vars(record).update(fields)
    return record


def test_a_log_line_for_people_has_time_event_and_fields() -> None:
    line = PeopleFormatter(Screen()).format(
        _record(job="j1", error="two words\x1b[2J", types=["a", "b"], share=0.12345)
    )
    assert line == '00:00:00  job.settled         job=j1 error="two words\\x1b[2J" types=a,b share=0.123'


def test_a_log_line_for_machines_is_json() -> None:
    line = JsonFormatter().format(_record(job="j1"))
    assert line == '{"time":"2026-01-01T00:00:00.500000Z","level":"warning","event":"job.settled","job":"j1"}'


def _raise() -> None:
    raise ValueError("boom")


def test_a_traceback_goes_with_its_event() -> None:
    record = _record()
    try:
        _raise()
    except ValueError:
        record.exc_info = sys.exc_info()
    assert PeopleFormatter(Screen()).format(record).splitlines()[-1] == "    ValueError: boom"
    assert "ValueError: boom" in JsonFormatter().format(record)
