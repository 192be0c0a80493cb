"""What must a driver be able to do? Everything else about a case is the same code for all peers."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, ClassVar

URL = "BENCH_URL"


class Cannot(Exception):
    """The peer has no way to do this case; the message is the reason."""


class Driver:
    """One peer on one store."""

    # The distribution whose version is written down.
    package: ClassVar[str]
    # What stands beside the peer's defaults, in words for the report.
    settings: ClassVar[str] = "defaults"
    # What we do for a job and the peer does not, for the report; empty where it was not looked up.
    leaves_out: ClassVar[str] = ""

    def setup(self) -> None:
        """Make whatever the peer needs in an empty store."""

    def enqueue(self, name: str, body: str) -> float | None:
        """Enqueue one job; the store has it when this returns.

        Where another process does it, this returns when the call began there.
        """
        raise NotImplementedError

    def produce(
        self,
        body: str,  # noqa: ARG002 - for those who override it
        seconds: float,  # noqa: ARG002
        producers: int,  # noqa: ARG002
    ) -> tuple[list[list[float]], float] | None:
        """Seconds that each enqueue took, by producer, and all of it: only where another process produces."""
        return None

    def bulk(self, bodies: list[str]) -> None:  # noqa: ARG002 - for those who override it
        """Enqueue no-ops by the peer's own bulk call."""
        raise Cannot("has no bulk enqueue")

    def fill(self, name: str, bodies: list[str]) -> None:
        """Enqueue many jobs by whatever way is quick; not timed."""
        for body in bodies:
            self.enqueue(name, body)

    def worker(self, concurrency: int | None) -> list[str]:
        """The command of one worker process; None is the peer's default."""
        raise NotImplementedError

    def work(self, count: int, processes: int) -> float | None:  # noqa: ARG002 - for those who override it
        """Seconds for a drain without any worker: only for the database itself."""
        return None

    def unfinished(self) -> bool:
        """Whether the store shows a job of the served kinds that is not done."""
        raise NotImplementedError

    def crowd(self, kind: str, count: int) -> None:
        """Fill the store with rows that the worker has nothing to do with: other, scheduled or archived."""
        raise Cannot(f"no way to fill it with {count} {kind} rows")

    def close(self) -> None:
        """Let go of connections."""

    def version(self) -> str:
        """Which release this is."""
        return importlib.metadata.version(self.package)


class AsyncDriver(Driver):
    """A peer whose producers are coroutines."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    async def send(self, name: str, body: str) -> None:
        """Enqueue one job."""
        raise NotImplementedError

    def enqueue(self, name: str, body: str) -> None:
        """Enqueue one job."""
        self.run(self.send(name, body))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end, on the one loop of this driver."""
        return self._runner.run(work)


def program(name: str) -> str:
    """A command that was installed beside this Python."""
    return str(Path(sys.executable).parent / name)


def url() -> str:
    """Where the store is; a driver and its workers live for one store."""
    return os.environ[URL]
