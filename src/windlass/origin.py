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


# A class may have a metaclass of its own, whose properties are code that fails or hangs: read past it.
_NAME, _QUALNAME, _MODULE, _MRO = (
    type.__dict__[name].__get__ for name in ("__name__", "__qualname__", "__module__", "__mro__")
)


def told_class(kind: type) -> str:
    """A class by its full name, the same in every process; without a module if it has none."""
    module, qualname = module_of(kind), str.__str__(_QUALNAME(kind))
    module = MAIN if module == _MAIN_ELSEWHERE else module
    return f"{module}.{qualname}" if module else qualname


def module_of(kind: type) -> str:
    """The name of a class's module; empty if the class says nonsense."""
    try:
        module: object = _MODULE(kind)
    except AttributeError:
        module = None
    return module if type(module) is str else ""


def short_name(kind: type) -> str:
    """The class's own name, without where it is defined."""
    return str.__str__(_NAME(kind))


def classes_of(value: object) -> tuple[type, ...]:
    """The class of a value and all that it inherits from, nearest first."""
    found: tuple[type, ...] = _MRO(type(value))
    return found
