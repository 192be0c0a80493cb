"""Which of the application's files has changed? For `--watch`, while developing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

_SUFFIXES = (".py", ".toml")
_LOOK_SECONDS = 0.5
_OTHERS = frozenset({"node_modules", "__pycache__", "site-packages"})


class Changes:
    """Looks at the times of the files below a folder, twice a second."""

    def __init__(self, folder: Path, monotonic: Callable[[], float]) -> None:
        self._folder = folder
        self._monotonic = monotonic
        self._looked = monotonic()
        self._seen = self._times()

    def __call__(self) -> str | None:
        """A file that is new, gone or changed since the last look; None if there is none."""
        now = self._monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return None
        self._looked = now
        before, self._seen = self._seen, self._times()
        return next((path for path, _ in sorted(before.items() ^ self._seen.items())), None)

    def _times(self) -> dict[str, int]:
        return dict(_files(str(self._folder)))


def _files(folder: str) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in _OTHERS:
                    yield from _files(entry.path)
            elif entry.name.endswith(_SUFFIXES):
                yield entry.path, entry.stat().st_mtime_ns
        except OSError:
            continue
