"""The shape of the source: sizes, what a job passes through, what is restated. `make shape` prints it.

`--check` fails if a bound is passed; `make check` runs it so.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from windlass.queue import JobHandle

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "windlass"
# A field that is stored with a job, and a verb of operators: how many places name them?
FIELD = "traceparent"
ACTION = "bury"
LEAST_FIELDS = 3


class Measure(NamedTuple):
    """One number, the most that it may be now, and what it should come down to; None: it is only printed."""

    what: str
    value: int
    most: int | None = None
    aim: int | None = None


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """Every Python file of the source."""
    for path in sorted(SRC.parent.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def sizes() -> list[Measure]:
    """Lines of Python, and files without migrations and caches."""
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in SRC.parent.rglob("*.py"))
    files = [
        path
        for path in SRC.parent.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and "migrations" not in path.parts
    ]
    return [
        Measure("lines of Python", lines, *LINES),
        Measure("files without migrations", len(files), *FILES),
    ]


def passing_on() -> list[str]:
    """Functions that only pass on their own parameters to another one."""
    return [
        f"{path.relative_to(ROOT)}:{each.lineno} {each.name}"
        for path, tree in modules()
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and _passes_on(each)
    ]


def _passes_on(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    body = [line for line in function.body if not _is_docstring(line)]
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    call = body[0].value
    if isinstance(call, ast.Await):
        call = call.value
    if not isinstance(call, ast.Call):
        return False
    arguments = function.args
    own = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    own = [name for name in own if name not in ("self", "cls")]
    given = [*call.args, *(each.value for each in call.keywords)]
    names = [each.id for each in given if isinstance(each, ast.Name) and each.id in own]
    others = [each for each in given if not (isinstance(each, ast.Name) and each.id in own)]
    plain = all(isinstance(each, ast.Name | ast.Attribute | ast.Constant) for each in others)
    return bool(own) and plain and sorted(names) == sorted(own)


def _is_docstring(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


def twins() -> list[str]:
    """Structs with exactly the fields of another one."""
    found: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for path, tree in modules():
        for each in ast.walk(tree):
            if isinstance(each, ast.ClassDef) and _is_struct(each):
                fields = tuple(
                    line.target.id
                    for line in each.body
                    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
                )
                found[fields].append(f"{path.relative_to(ROOT)}:{each.lineno} {each.name}")
    return [
        " = ".join(names) for fields, names in found.items() if len(fields) >= LEAST_FIELDS and len(names) > 1
    ]


def _is_struct(each: ast.ClassDef) -> bool:
    return any(ast.unparse(base) in ("msgspec.Struct", "Struct", "NamedTuple") for base in each.bases)


def naming(word: str) -> list[Path]:
    """The files that name something; without migrations, and the simulator, which plays an operator."""
    command = ["git", "grep", "-lw", word, "--", "src", ":!src/windlass/testing"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [Path(line) for line in found.stdout.splitlines() if "migrations" not in line]


class Walk:
    """Which files and functions of ours the threads that carry a job pass through."""

    # What goes on beside every job.
    BESIDE = (
        "beat",
        "settings",
        "timeouts",
        "reaper",
        "pruner",
        "scheduler",
        "ticks",
        "ledger",
        "liveness",
        "verifier",
        # Hints of other processes, and statements that take too long, are looked for all the time.
        "listen",
        "watch",
        "guard",
    )

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def see(self, frame: FrameType, event: str, _: object) -> None:
        """What `sys.setprofile` calls."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(SRC)):
            return
        name = threading.current_thread().name
        if not any(word in name for word in self.BESIDE):
            with self._lock:
                self.functions.add((code.co_filename, code.co_qualname))

    @property
    def files(self) -> set[str]:
        """The files alone."""
        return {path for path, _ in self.functions}


def _passed(seen: Walk, enqueue: Callable[[], JobHandle]) -> set[tuple[str, str]]:
    """The functions that one job passes."""
    seen.functions.clear()
    sys.setprofile(seen.see)
    handle = enqueue()
    sys.setprofile(None)
    handle.wait(30)
    return set(seen.functions)


def walk(url: str) -> Walk:
    """Enqueue one no-op job to a running worker, and wait until it is completed."""
    sys.path.insert(0, str(SRC.parent))
    from windlass.queue import Queue  # noqa: PLC0415 - only where it is measured

    seen = Walk()
    queue = Queue(url)

    @queue.job
    def nothing() -> None:
        """No work at all."""

    threading.setprofile(seen.see)
    with queue.worker(threads=1):
        # What is begun once, such as the thread that sends hints, is no part of a job's way.
        for _ in range(3):
            nothing.enqueue().wait(30)
        # Whatever ticks meanwhile is seen as well, and is no part of it either: the shortest of a few.
        found = min((_passed(seen, nothing.enqueue) for _ in range(5)), key=len)
    threading.setprofile(None)
    queue.close()
    seen.functions = found
    return seen


def postgres(stack: contextlib.ExitStack) -> str | None:
    """A new database on a server as the tests start one; None where PostgreSQL is not installed."""
    sys.path.insert(0, str(ROOT))
    from tests.servers.postgres import majors, running  # noqa: PLC0415 - as above

    if not majors():
        return None
    return stack.enter_context(running(max(majors()))).new_database()


def main() -> int:
    """Print the shape; with --check, fail where it is out of bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a bound is passed")
    parser.add_argument("--list", action="store_true", help="list what was counted")
    options = parser.parse_args()
    on, same = passing_on(), twins()
    field, action = naming(FIELD), naming(ACTION)
    with tempfile.TemporaryDirectory() as folder:
        walks = [("sqlite", walk(f"sqlite:///{folder}/shape.db"))]
    with contextlib.ExitStack() as stack:
        if (url := postgres(stack)) is not None:
            walks.append(("postgresql", walk(url)))
    measures = [
        *sizes(),
        Measure("functions that only pass on their arguments", len(on), *PASSING_ON),
        Measure("structs with the fields of another one", len(same), *TWINS),
        Measure(f"files that name a stored field ({FIELD})", len(field), *FIELD_FILES),
        Measure(f"files that name an operator's action ({ACTION})", len(action), *ACTION_FILES),
    ]
    for kind, seen in walks:
        measures += [
            Measure(f"files that a job passes on {kind}", len(seen.files), *WALK_FILES),
            Measure(f"functions that a job passes on {kind}", len(seen.functions), *WALK_FUNCTIONS[kind]),
        ]
    for each in measures:
        bound = "" if each.most is None else f"   at most {each.most:,}"
        aim = "" if each.aim in (None, each.most) else f", aim {each.aim:,}"
        print(f"{each.what:<52}{each.value:>8,}{bound}{aim}")
    if options.list:
        print(*on, *same, *field, *action, sep="\n")
        for kind, seen in walks:
            for path, name in sorted(seen.functions):
                print(kind, os.path.relpath(path, SRC), name)
    broken = [each.what for each in measures if each.most is not None and each.value > each.most]
    if broken and options.check:
        print(f"out of shape: {'; '.join(broken)}", file=sys.stderr)
    return int(bool(broken) and options.check)


# The most that each may be now, and the aim. A bound is lowered when more is reached, and never raised
# without a reason in the commit that does so.
# What there is and 1,500 more: a change that adds as much says what for.
LINES = (54_300, 50_000)
FILES = (280, 280)
PASSING_ON = (25, 25)
TWINS = (0, 0)
FIELD_FILES = (8, 8)
ACTION_FILES = (8, 8)
WALK_FILES = (26, 25)
# A few more or less on PostgreSQL: whose hint it is depends on the moment.
WALK_FUNCTIONS = {"sqlite": (110, 110), "postgresql": (112, 110)}

if __name__ == "__main__":
    raise SystemExit(main())
