"""Where is it measured? Each case gets a store of its own, new and empty."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Place(Protocol):
    """Somewhere to measure."""

    def fresh(self, name: str, *, beside: bool = False) -> str:
        """The URL of a new store for one case; `beside` the store made last, which the case uses, too."""


class Folder:
    """New SQLite files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str) -> Path:
        """Where a case's file is, with nothing there yet."""
        path = self.folder / f"{name}.db"
        for suffix in ("", "-wal", "-shm", "-turn"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        return path

    def fresh(self, name: str, *, beside: bool = False) -> str:  # noqa: ARG002 - files stay where they are
        """The URL of a new file."""
        return f"sqlite:///{self.file(name)}"
