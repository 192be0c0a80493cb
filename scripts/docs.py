#!/usr/bin/env python3
"""How is the documentation site made? The reference from docstrings, then the pages by zensical."""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import windlass
import windlass.testing

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference.md"
HEADER = """# Reference

Every public name, from its docstring.
"""


def main() -> int:
    """Write the reference and build the site; any warning is a failure."""
    REFERENCE.write_text(reference(), encoding="utf-8")
    zensical = Path(sys.executable).with_name("zensical")
    return subprocess.run([zensical, "build", "--clean", "--strict"], cwd=ROOT, check=False).returncode


def reference() -> str:
    """The whole page."""
    parts = [HEADER]
    for title, module in (("windlass", windlass), ("windlass.testing", windlass.testing)):
        parts.append(f"## `{title}`\n")
        parts += [described(name, getattr(module, name)) for name in module.__all__]
    return "\n".join(parts)


def described(name: str, thing: Any) -> str:
    """One public name: what it is, how it is called, what it offers."""
    lines = [f"### `{name}`\n"]
    if inspect.isfunction(thing):
        lines.append(f"```text\n{name}{signature(thing)}\n```\n")
    elif inspect.isclass(thing) and "__init__" in vars(thing) and inspect.isfunction(thing.__init__):
        lines.append(f"```text\n{name}{signature(thing.__init__, bound=True)}\n```\n")
    lines.append(docstring(thing))
    if inspect.isclass(thing):
        lines += ["", *(f"- `{shown}`: {docstring(member)}" for shown, member in members(thing))]
    return "\n".join(lines) + "\n"


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class of ours offers besides what every exception or value has, in the order of the code."""
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("windlass"):
            continue
        for name, member in vars(base).items():
            if name.startswith("_"):
                continue
            if isinstance(member, property):
                yield name, member.fget
            elif inspect.isfunction(member):
                yield f"{name}{signature(member, bound=True)}", member


def signature(function: Any, *, bound: bool = False) -> str:
    """How to call it, in short."""
    found = inspect.signature(function)
    parameters = list(found.parameters.values())[1 if bound else 0 :]
    return re.sub(r"\bwindlass(\.\w+)+\.", "", str(found.replace(parameters=parameters))).replace("'", "")


def docstring(thing: Any) -> str:
    """The docstring as one paragraph after another."""
    text = inspect.getdoc(thing) or ""
    return re.sub(r"\n(?!\n)(?! )", " ", text).replace("\n ", "\n\n    ", 1).strip()


if __name__ == "__main__":
    sys.exit(main())
