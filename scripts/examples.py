#!/usr/bin/env python3
"""Does a stranger get through the examples? Each README's commands, typed in an environment of its own.

For each example a new virtual environment gets the wheel of this tree and whatever else the README's
`pip install` names; then its other commands are typed, one after the other, in a copy of its folder. A line
below a command is what it must print, `...` being anything. A command that ends in `&` stays, and one that
asks a server is asked again until the server is there.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
PLAIN = "plain"
PATIENCE = 60.0
# A network without anybody else, so that the ports of the READMEs are free.
APART = ("unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


class Line(NamedTuple):
    """A command, and what it must print."""

    command: str
    told: list[str]


class Failure(Exception):
    """A stranger would have stopped here."""


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [PLAIN, *sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))]
    parser.add_argument("names", nargs="*", metavar="EXAMPLE", help=f"all by default: {', '.join(names)}")
    parser.add_argument("--type", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"no example is called {min(unknown)}; there are {', '.join(names)}")
    try:
        if options.type is not None:
            type_all(options.names[0], options.type)
            return 0
        with tempfile.TemporaryDirectory(prefix="wl-examples-") as folder:
            return run_all(options.names or names, Path(folder))
    except Failure as failure:
        print(f"examples: {failure}", file=sys.stderr)
        return 1


def run_all(names: list[str], folder: Path) -> int:
    """Every example, also after one has failed; how many did not work."""
    wheel = build(folder)
    failed = []
    for name in names:
        begun = time.monotonic()
        print(f"=== {name}", flush=True)
        try:
            run_one(name, wheel, folder / name)
        except Failure as failure:
            print(f"examples: {name}: {failure}", file=sys.stderr)
            failed.append(name)
        else:
            print(f"=== {name} works, {time.monotonic() - begun:.0f} s", flush=True)
    return len(failed)


def build(folder: Path) -> Path:
    """The wheel of this tree, as it would be published."""
    words = ("wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT))
    must(sys.executable, "-m", "pip", *words)
    return next(folder.glob("windlass-*.whl"))


def run_one(name: str, wheel: Path, folder: Path) -> None:
    """A new environment, a copy of the example, and its commands."""
    lines = list(said(name))
    place = EXAMPLES if name == PLAIN else EXAMPLES / name
    project = Path(shutil.copytree(place, folder / "project", ignore=shutil.ignore_patterns("*.db*")))
    must(sys.executable, "-m", "venv", str(folder / "environment"))
    packages = wanted(lines[0].command)
    print("$", lines[0].command, flush=True)
    found = [str(wheel) if each == "windlass" else each for each in packages]
    must(str(folder / "environment/bin/python"), "-m", "pip", "install", "-q", *found)
    words = [sys.executable, __file__, name, "--type", str(project)]
    done = subprocess.run([*(APART if apart() else ()), *words], env=environment(folder), check=False)
    if done.returncode:
        raise Failure("see above")


def said(name: str) -> Iterator[Line]:
    """The commands of an example's README."""
    if name == PLAIN:
        yield Line("pip install windlass", [])
        for cell in re.findall(r"\| ([^|]+) \|$", (EXAMPLES / "README.md").read_text(), re.MULTILINE):
            yield from (Line(command, []) for command in re.findall(r"`((?:python|windlass) [^`]+)`", cell))
        return
    block = re.search(r"```console\n(.+?)```", (EXAMPLES / name / "README.md").read_text(), re.DOTALL)
    if block is None:
        raise Failure("its README has no commands")
    for part in block[1].split("$ ")[1:]:
        command, *told = part.splitlines()
        yield Line(command, told)


def wanted(command: str) -> list[str]:
    """What a README's first command installs."""
    if not command.startswith("pip install windlass"):
        raise Failure(f"its README begins with {command!r}, not with pip install windlass")
    return shlex.split(command)[2:]


def environment(folder: Path) -> dict[str, str]:
    """What a stranger's terminal has: nothing of ours."""
    ours = ("WINDLASS_", "PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"PATH": f"{folder / 'environment/bin'}:{kept['PATH']}", "PYTHONUNBUFFERED": "1"}


def apart() -> bool:
    """Whether a network of one's own can be had here."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run([*APART, "true"], capture_output=True, check=False).returncode == 0


def type_all(name: str, project: Path) -> None:
    """Type everything but the installation."""
    staying: list[subprocess.Popen[bytes]] = []
    try:
        for line in list(said(name))[1:]:
            print("$", line.command, flush=True)
            if line.command.endswith("&"):
                staying.append(stay(line.command, project))
            else:
                show(line, project)
    finally:
        for process in staying:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE)


def stay(command: str, project: Path) -> subprocess.Popen[bytes]:
    """Start what stays, with all that belongs to it."""
    words = ["sh", "-c", f"exec {command.rstrip('& ')}"]
    return subprocess.Popen(words, cwd=project, start_new_session=True)


def show(line: Line, project: Path) -> None:
    """Type a command and compare what it prints."""
    # A request has to wait for its server, and for the work that the server does afterwards.
    until = time.monotonic() + (PATIENCE if line.command.startswith("curl") else 0.0)
    while True:
        done = subprocess.run(
            ["sh", "-c", line.command],
            cwd=project,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        missing = unseen(line.told, done.stdout)
        if (done.returncode == 0 and not missing) or time.monotonic() > until:
            break
        time.sleep(0.2)
    print(done.stdout.rstrip("\n"), flush=True)
    if done.returncode or "Traceback" in done.stderr:
        raise Failure(f"{line.command!r} ended with {done.returncode}: {done.stderr.strip()[-600:]}")
    if missing:
        raise Failure(f"{line.command!r} does not print {missing!r}")


def unseen(told: list[str], printed: str) -> str | None:
    """The first line that should have been printed and was not."""
    lines = iter(printed.splitlines())
    for each in told:
        parts = (r"\s+".join(re.escape(word) for word in part.split()) for part in each.split("..."))
        pattern = re.compile(".*".join(parts))
        if not any(pattern.search(line) for line in lines):
            return each
    return None


def must(*words: str) -> None:
    """Run a program that has to succeed."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"{' '.join(words[:4])} ended with {done.returncode}: {done.stderr.strip()[-600:]}")


if __name__ == "__main__":
    sys.exit(main())
