"""How is a driver asked? A process in its peer's own environment, which is ended with all its workers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.drive.contract import URL, Cannot
from bench.environments import ROOT

_END_SECONDS = 15.0
News = Callable[[str], None]


class Failed(Exception):
    """A driver did not do what it should; the message is what is known."""


class Client:
    """One driver process and one store."""

    def __init__(self, python: Path, driver: str, url: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [python, "-m", "bench.drive", driver],
            cwd=ROOT,
            env=os.environ | {URL: url, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # Its workers are in the same group, so that none is left behind.
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate(timeout=_END_SECONDS) if kind is None else None
        self._kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def ask(self, verb: str, *, within: float, news: News | None = None, **arguments: Any) -> dict[str, Any]:
        """Let it do something; `news` is told how far it has come."""
        if self._process.stdin is None or self._process.stdout is None:
            raise Failed("its pipes are closed")
        timer = threading.Timer(within, self._kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps({"do": verb, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
            for line in self._process.stdout:
                told = json.loads(line)
                if "at" in told:
                    if news is not None:
                        news(told["at"])
                    continue
                return _answer(told)
        except BrokenPipeError:
            pass
        finally:
            timer.cancel()
        raise Failed(f"{verb} did not end within {within:.0f} s, or the driver ended: {self._last_words()}")

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-600:].decode(errors="replace").strip() or "(nothing printed)"

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _answer(told: dict[str, Any]) -> dict[str, Any]:
    if "cannot" in told:
        raise Cannot(told["cannot"])
    if "failed" in told:
        raise Failed(told["failed"])
    done: dict[str, Any] = told["done"]
    return done
