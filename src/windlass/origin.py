"""Where does a function stand, so that another process can find it?"""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec

MAIN = "__main__"
# What the main file is called where it is not the program: its `if __name__ == "__main__":` stays shut.
_MAIN_ELSEWHERE = "__mp_main__"


class Origin(msgspec.Struct, frozen=True):
    """A module, and a name within it."""

    module: str
    name: str


class Main(msgspec.Struct, frozen=True):
    """How the program was started: as a module, or as a file."""

    module: str | None = None
    path: str | None = None


def origin_of(function: Callable[..., Any]) -> Origin | None:
    """Where another process finds this function; None if it cannot: it was made inside another one."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<lambda>")
    if not module or "<" in name or (module == MAIN and main_here() is None):
        return None
    return Origin(MAIN if module == _MAIN_ELSEWHERE else module, name)


def main_here() -> Main | None:
    """How to load this program's main file elsewhere; None if there is none, as with `python -c`."""
    main = sys.modules.get(MAIN)
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return Main(module=spec.name)
    path = getattr(main, "__file__", None)
    return None if path is None else Main(path=str(path))


def load_main(main: Main) -> None:
    """Run another program's main file here, under a name that does not start the program."""
    module = ModuleType(_MAIN_ELSEWHERE)
    if main.module is not None:
        content = runpy.run_module(main.module, run_name=_MAIN_ELSEWHERE, alter_sys=True)
    else:
        content = runpy.run_path(main.path or "", run_name=_MAIN_ELSEWHERE)
    module.__dict__.update(content)
    sys.modules[MAIN] = sys.modules[_MAIN_ELSEWHERE] = module


def find(origin: Origin) -> Any:
    """What stands at an origin; ImportError or AttributeError if nothing does."""
    found: Any = sys.modules[MAIN] if origin.module == MAIN else importlib.import_module(origin.module)
    for part in origin.name.split("."):
        found = getattr(found, part)
    return found


def told_class(kind: type) -> str:
    """A class by its full name, the same in every process."""
    module = MAIN if kind.__module__ == _MAIN_ELSEWHERE else kind.__module__
    return f"{module}.{kind.__qualname__}"
