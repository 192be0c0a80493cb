"""How does a test sit down at a terminal? In a folder of its own, without anybody's settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.servers import postgres
from tests.waiting import PATIENCE
from windlass.cli.main import run


class Answer(NamedTuple):
    """What a command line said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The answer of a command that was asked for JSON."""
        return json.loads(self.out)


class Terminal:
    """Runs command lines in this process, or in one of their own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *args: str) -> Answer:
        """Run a command line here."""
        self._capsys.readouterr()
        code = run(args)
        out, err = self._capsys.readouterr()
        return Answer(code, out, err)

    def ok(self, *args: str) -> Answer:
        """Run a command line that must succeed."""
        answer = self(*args)
        assert answer.code == 0, answer.err
        return answer

    def start(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        """Begin a command line in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "windlass", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def apart(self, *args: str, text: str | None = None) -> Answer:
        """Run a command line in a process of its own, to its end."""
        with self.start(*args, stdin=subprocess.PIPE) as process:
            out, err = process.communicate(text, timeout=PATIENCE)
        return Answer(process.returncode, out, err)

    def jobs(self, *args: str) -> list[dict[str, Any]]:
        """The jobs that `windlass list` finds."""
        found: list[dict[str, Any]] = self.ok("list", "--json", *args).json["jobs"]
        return found

    def write(self, name: str, text: str) -> Path:
        """Put a file into the folder."""
        path = self.folder / name
        path.write_text(text)
        return path


@pytest.fixture
def windlass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Terminal]:
    """A terminal in an empty folder."""
    for name in os.environ:
        if name.startswith("WINDLASS_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    # What an app that is loaded here adds to them goes with the test.
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield Terminal(tmp_path, capsys)
    # Only the folder's own modules go: a library imported twice has two of each of its exceptions.
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture(
    params=["sqlite", *postgres.MAJORS],
    ids=lambda each: f"postgres-{each}" if each in postgres.MAJORS else each,
)
def store_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where a new store of each kind would be."""
    if request.param == "sqlite":
        yield "sqlite:///jobs.db"
    else:
        with postgres.fresh(request.param) as url:
            yield url


@pytest.fixture
def shop(windlass: Terminal) -> str:
    """An application in the folder, and how to name it."""
    windlass.write(
        "shop.py",
        """
from windlass import FatalError, Queue

queue = Queue()

@queue.job(max_attempts=2)
def add(a: int, b: int = 0) -> int:
    return a + b

@queue.job
def poison(n: int) -> None:
    raise FatalError(f"never {n}")
""",
    )
    return "shop:queue"
