"""How does a test get a disk that is full? A small one in memory, which it may mount if it is root."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_BLOCK = 1 << 20


class Disk:
    """A folder with a disk of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no room at all."""
        with self._ballast.open("ab", buffering=0) as file:
            size = _BLOCK
            while size:
                try:
                    file.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    # Down to the last byte.
                    size //= 2

    def free(self) -> None:
        """Give the room back."""
        self._ballast.unlink()


@contextlib.contextmanager
def small(folder: Path, megabytes: int) -> Iterator[Disk]:
    """A disk of this size in a folder; without the right to mount one the test is skipped."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root on Linux")
    folder.mkdir(exist_ok=True)
    options = f"size={megabytes}m,mode=755"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False).returncode:
        pytest.skip("this machine does not let root mount a small disk")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
