"""Where does each peer live? In a virtual environment of its own, made when it is first needed and kept.

That of a Node peer has its packages in `node_modules`, and a Python without packages for its driver.
"""

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
_NODE = 20
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
        pinned = _pinned(pins)
        made_of = pinned.read_text() + sys.version + base + ("" if source == ROOT else str(source))
        stamp = hashlib.sha256(made_of.encode()).hexdigest()[:12]
        folder = KEPT / "environments" / f"{pins}-{stamp}"
        python = folder / "bin" / "python"
        if not (folder / "complete").exists():
            tell(f"installing {pins}")
            _make(base, folder, pinned, source)
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


def _pinned(pins: str) -> Path:
    """The file of a peer's pins: of npm's packages if it has one, for which Node must be here."""
    of_npm = PINS / f"{pins}.json"
    if not of_npm.exists():
        return of_npm.with_suffix(".txt")
    node, npm = shutil.which("node"), shutil.which("npm")
    words = [node or "false", "--version"]
    version = subprocess.run(words, capture_output=True, text=True, check=False).stdout.lstrip("v")
    if npm is None or int(version.partition(".")[0] or 0) < _NODE:
        raise Cannot(f"needs Node {_NODE} or newer with npm, which is not here")
    return of_npm


def _make(base: str, folder: Path, pins: Path, source: Path) -> None:
    python = folder / "bin" / "python"
    in_node = pins.suffix == ".json"
    _run(base, "-m", "venv", "--clear", *(["--without-pip"] if in_node else []), str(folder))
    if in_node:
        shutil.copy(pins, folder / "package.json")
        options = ["--ignore-scripts", "--no-package-lock", "--omit=optional", "--no-audit", "--no-fund"]
        _run("npm", "install", "--prefix", str(folder), *options)
        return
    _pip(python, "-r", str(pins))
    if pins.stem == "windlass":
        # The build tool is one of the pins, so that this step fetches nothing.
        _pip(python, "--no-build-isolation", "-e", str(source))


def _pip(python: Path, *what: str) -> None:
    options = ["--disable-pip-version-check", "--no-input", "--no-deps", "-q"]
    _run(str(python), "-m", "pip", "install", *options, *what)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        why = done.stderr.strip() or done.stdout.strip() or f"{words[0]} ended with {done.returncode}"
        raise NotInstalled(why[-400:])
