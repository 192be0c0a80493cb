"""What if a server dies while jobs come in? Every accepted key exists, once."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conformance.conftest import NEW
from tests.server.conftest import shop
from windlass import Client
from windlass.store.protocol import Filter

POSTS = 300
LINES = 8


class Server:
    """A server process on one port, started anew whenever it dies."""

    def __init__(self, url: str, folder: Path) -> None:
        self.port = free_port()
        self._words = [sys.executable, "-m", "windlass", "serve", "--port", str(self.port), "--db", url]
        self._folder = folder
        self.process = self._start()
        self.kills = 0

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._words, cwd=self._folder, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        """As the power does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.kills += 1
        self.process = self._start()

    def stop(self) -> int:
        """As an operator does."""
        self.process.terminate()
        return self.process.wait(40)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("engine", ["sqlite", next(name for name in NEW if name != "sqlite")])
def test_kills_at_random_lose_no_accepted_job_and_make_none_twice(engine: str, tmp_path: Path) -> None:
    with NEW[engine]() as url, shop(url) as queue:
        queue.publish()
        server = Server(url, tmp_path)
        over = threading.Event()

        def kill_now_and_then() -> None:
            while not over.wait(random.uniform(3.0, 6.0)):
                server.kill()

        killer = threading.Thread(target=kill_now_and_then)
        killer.start()
        try:
            with (
                Client(f"http://127.0.0.1:{server.port}", patience=90) as client,
                ThreadPoolExecutor(LINES) as lines,
            ):

                def send(number: int) -> str:
                    time.sleep(random.uniform(0, 0.3))
                    return client.enqueue("add", {"a": number}, key=f"k{number}").id

                accepted = list(lines.map(send, range(POSTS)))
        finally:
            over.set()
            killer.join()
            code = server.stop()
        assert server.kills >= 1
        assert code == 0
        stored = queue.store.find(Filter(), limit=1000).jobs
        assert sorted(job.id for job in stored) == sorted(accepted)
        assert len({job.key for job in stored}) == POSTS
