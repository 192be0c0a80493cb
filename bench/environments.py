"""Where does each peer live? In a virtual environment of its own, made when it is first needed and kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from bench.drive.contract import Cannot

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "bench" / "peers"
KEPT = ROOT / ".bench"
# Contenders that are measured at the same time may share an environment.
_making = threading.Lock()


class NotInstalled(Exception):
    """A peer's packages could not be installed here."""


def python_for(
    pins: str,
    oldest: tuple[int, int] | None = None,
    tell: Callable[[str], None] = lambda _: None,
    source: Path = ROOT,
) -> Path:
    """The Python of a peer's environment, with exactly what its pins say. Ours has the code of `source`."""
    with _making:
        base = sys.executable if oldest is None or sys.version_info >= oldest else _newer(oldest)
        wanted = (PINS / f"{pins}.txt").read_text()
        made_of = wanted + sys.version + base + ("" if source == ROOT else str(source))
        stamp = hashlib.sha256(made_of.encode()).hexdigest()[:12]
        folder = KEPT / "environments" / f"{pins}-{stamp}"
        python = folder / "bin" / "python"
        if not (folder / "complete").exists():
            tell(f"installing {pins}")
            _make(base, folder, PINS / f"{pins}.txt", source)
            (folder / "complete").touch()
    return python


@cache
def _newer(oldest: tuple[int, int]) -> str:
    """A Python of at least this release, from where they usually are."""
    major, minor = oldest
    for program in _candidates(major, minor):
        words = [program, "-c", "import ensurepip, sys; print(*sys.version_info[:2])"]
        told = subprocess.run(words, capture_output=True, text=True, check=False)
        # A name on the path may be a stand-in for a release that is not switched on.
        if told.returncode == 0 and tuple(map(int, told.stdout.split())) >= oldest:
            return program
    raise Cannot(f"needs Python {major}.{minor} or newer, which is not here")


def _candidates(major: int, minor: int) -> Iterator[str]:
    names = [f"python{major}.{number}" for number in range(minor, minor + 5)]
    yield from (found for name in names if (found := shutil.which(name)))
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for name in names:
        yield from (str(each) for each in sorted(kept.glob(f"*/bin/{name}")))


def _make(base: str, folder: Path, pins: Path, source: Path) -> None:
    python = folder / "bin" / "python"
    words = [base, "-m", "venv", "--clear", str(folder)]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    if made.returncode:
        raise NotInstalled(made.stderr.strip()[-400:] or made.stdout.strip()[-400:])
    _pip(python, "-r", str(pins))
    if pins.stem == "windlass":
        # The build tool is one of the pins, so that this step fetches nothing.
        _pip(python, "--no-build-isolation", "-e", str(source))


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
