"""How is a server started as a person would, and killed as the power does?"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.servers.ports import free_port
from tests.waiting import PATIENCE, until


class ServerProcess:
    """A server process on one port, started anew whenever it is killed."""

    def __init__(self, url: str, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._words = [sys.executable, "-m", "windlass", "serve", "--port", str(self.port), "--db", url]
        self._folder = folder
        self._process = self._start()
        self.kills = 0

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._words, cwd=self._folder, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        """As the power does; another one takes its place at once."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self.kills += 1
        self._process = self._start()

    def freeze(self) -> None:
        """It is there, and its connections are open, but it does nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on where it was."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """As an operator does, who sees that it serves; the exit code."""
        self.await_start()
        self._process.terminate()
        return self._process.wait(PATIENCE)

    def await_start(self) -> None:
        """One that has just taken another's place may not obey yet, and would end by the signal itself."""
        until(lambda: self._process.poll() is not None or self._serves(), "it serves or has ended")

    def _serves(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False
