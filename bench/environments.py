"""Where does each peer live? In a virtual environment of its own, made when it is first needed and kept."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "bench" / "peers"
KEPT = ROOT / ".bench"
# Contenders that are measured at the same time may share an environment.
_making = threading.Lock()


class NotInstalled(Exception):
    """A peer's packages could not be installed here."""


def python_for(pins: str) -> Path:
    """The Python of a peer's environment, with exactly what its pins say."""
    wanted = (PINS / f"{pins}.txt").read_text()
    stamp = hashlib.sha256((wanted + sys.version).encode()).hexdigest()[:12]
    folder = KEPT / "environments" / f"{pins}-{stamp}"
    python = folder / "bin" / "python"
    with _making:
        if not (folder / "complete").exists():
            _make(folder, python, PINS / f"{pins}.txt")
            (folder / "complete").touch()
    return python


def _make(folder: Path, python: Path, pins: Path) -> None:
    venv.create(folder, clear=True, symlinks=True, with_pip=True)
    _pip(python, "-r", str(pins))
    if pins.stem == "windlass":
        # The build tool is one of the pins, so that this step fetches nothing.
        _pip(python, "--no-build-isolation", "-e", str(ROOT))


def _pip(python: Path, *what: str) -> None:
    words = [
        str(python),
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
        "--no-deps",
        "-q",
    ]
    told = subprocess.run([*words, *what], capture_output=True, text=True, check=False)
    if told.returncode:
        raise NotInstalled(told.stderr.strip()[-400:] or f"pip ended with {told.returncode}")
