"""Where does a real Prometheus come from? Debian's package: its server, for one test, and promtool."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2

from tests.servers.ports import free_port
from tests.servers.postgres import missing
from tests.waiting import PATIENCE

INSTALL = "apt-get install --no-install-recommends prometheus"


def program(name: str = "prometheus") -> Path | None:
    """One of its programs, if it is installed."""
    found = shutil.which(name)
    return None if found is None else Path(found)


def promtool(*words: str | Path, told: str | None = None) -> str:
    """What promtool says; the test fails with it if it is not content, and is skipped if it is not here."""
    found = program("promtool")
    if found is None:
        missing(f"promtool is not here: {INSTALL}")
    done = subprocess.run([found, *words], input=told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Prometheus:
    """A server that scrapes and judges."""

    def __init__(self, caller: httpx2.Client) -> None:
        self._caller = caller

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """What an expression comes to now: the labels of each series, and its value."""
        result = self._ask("query", query=expression)["result"]
        return [(each["metric"], float(each["value"][1])) for each in result]

    def alerts(self) -> dict[str, str]:
        """The alerts that are pending or firing, by name."""
        return {each["labels"]["alertname"]: each["state"] for each in self._ask("alerts")["alerts"]}

    def health(self) -> set[str]:
        """How the scrapes went."""
        return {each["health"] for each in self._ask("targets")["activeTargets"]}

    def _ask(self, what: str, **query: str) -> dict[str, Any]:
        answer = self._caller.get(f"/api/v1/{what}", params=query).json()
        assert answer["status"] == "success", answer
        data: dict[str, Any] = answer["data"]
        return data


@contextlib.contextmanager
def running(folder: Path, config: str) -> Iterator[Prometheus]:
    """A server with this configuration, for as long as a block lasts."""
    found = program()
    if found is None:
        missing(f"Prometheus is not here: {INSTALL}")
    port, file = free_port(), folder / "prometheus.yml"
    file.write_text(config)
    words: list[str | Path] = [
        found,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        with httpx2.Client(base_url=address, timeout=PATIENCE, trust_env=False) as caller:
            _wait_until_ready(process, caller, folder / "log")
            yield Prometheus(caller)
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], caller: httpx2.Client, log: Path) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.05)):
        if process.poll() is not None:
            break
        with contextlib.suppress(httpx2.TransportError):
            if caller.get("/-/ready").status_code == httpx2.codes.OK:
                return
        pause.wait(0.05)
    raise RuntimeError(f"Prometheus does not start:\n{log.read_text()}")
