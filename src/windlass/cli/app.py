"""Where is the application's queue?"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import click

from windlass.queue import Queue


class AppError(click.ClickException):
    """The application that was named cannot be loaded."""

    exit_code = 2

    def __init__(self, app: str, why: str) -> None:
        super().__init__(f"cannot load app {app!r}: {why}")


def load_queue(app: str) -> Queue:
    """The Queue that `module:name` means; the name may be left out if the module has only one."""
    module_name, _, name = app.partition(":")
    if not module_name or module_name.endswith(".py") or "/" in module_name:
        raise AppError(app, "name it as module:queue, for example myapp:queue for a Queue in myapp.py")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import(app, module_name)
    return _named(app, module, name) if name else _only(app, module)


def _import(app: str, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.partition(".")[0] == error.name.partition(".")[0]:
            raise AppError(app, f"there is no module {error.name!r} in this folder or installed") from None
        raise AppError(app, _told(error)) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 # wall: the application's own code runs at import
        raise AppError(app, _told(error)) from None


def _told(error: BaseException) -> str:
    """The error in one line, with the application's line that raised it."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    place = f" ({Path(last.tb_frame.f_code.co_filename).name}, line {last.tb_lineno})" if last else ""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}{place}"


def _named(app: str, module: ModuleType, name: str) -> Queue:
    found = getattr(module, name, None)
    if isinstance(found, Queue):
        return found
    if found is None:
        raise AppError(app, f"module {module.__name__!r} has no {name!r}; {_offer(module)}")
    raise AppError(app, f"{name!r} is not a Queue but of type {type(found).__name__}; {_offer(module)}")


def _only(app: str, module: ModuleType) -> Queue:
    queues = _queues(module)
    if len(queues) != 1:
        raise AppError(app, f"say which queue; {_offer(module)}")
    return next(iter(queues.values()))


def _offer(module: ModuleType) -> str:
    names = ", ".join(f"{module.__name__}:{name}" for name in _queues(module))
    return f"it has {names}" if names else "it has no Queue at all"


def _queues(module: ModuleType) -> dict[str, Queue]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Queue)}
