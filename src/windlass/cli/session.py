"""The store, queue and configuration that one run of the command line uses."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from windlass import config, connect
from windlass.cli.screen import Row, Screen, say
from windlass.config import Config, Source, variable
from windlass.errors import must_be
from windlass.ops import Ops
from windlass.ops.document import encode
from windlass.ops.remote import verbs_on
from windlass.queue import Queue
from windlass.registry import shell_handler
from windlass.url import without_password


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
    queues = {name: value for name, value in vars(module).items() if isinstance(value, Queue)}
    if name in queues:
        return queues[name]
    if not name and len(queues) == 1:
        return next(iter(queues.values()))
    names = ", ".join(f"{module.__name__}:{each}" for each in queues)
    offer = f"it has {names}" if names else "it has no Queue at all"
    found = getattr(module, name, None) if name else None
    if not name:
        raise AppError(app, f"say which queue; {offer}")
    if isinstance(found, Queue):
        return found
    if found is None:
        raise AppError(app, f"module {module.__name__!r} has no {name!r}; {offer}")
    raise AppError(app, f"{name!r} is not a Queue but of type {type(found).__name__}; {offer}")


def _import(app: str, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 # wall: the application's own code runs at import
        why = _lines(error)
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and module_name.partition(".")[0] == missing.partition(".")[0]:
            why = f"there is no module {missing!r} in this folder or installed"
        raise AppError(app, why) from None


def _lines(error: BaseException) -> str:
    """The error in one line, with the application's line that raised it."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    place = f" ({Path(last.tb_frame.f_code.co_filename).name}, line {last.tb_lineno})" if last else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"


_URL = "database_url"


class Session:
    """What the shared flags lead to. Nothing is opened before a command asks for it."""

    def __init__(self, *, own_process: bool = False) -> None:
        """`own_process`: the process is there for this command alone, and may end with it."""
        self.flags: dict[str, object] = {}
        self.json = False
        # How the log of a process that stays is written.
        self.log_json = self.verbose = False
        self.own_process = own_process
        # The command line, for processes that are started by the same one.
        self.arguments: tuple[str, ...] = ()
        # Where and with what it was started, before any job changed that.
        self.folder: Path | None = None
        # Somebody may have removed it.
        with suppress(OSError):
            self.folder = Path.cwd()
        self.environment = dict(os.environ)
        # Whether this process has become a worker.
        self.works = False

    @cached_property
    def config(self) -> Config:
        """The effective configuration."""
        return config.load(self.flags)

    @cached_property
    def screen(self) -> Screen:
        """Where output for people goes."""
        return Screen.of_stdout()

    @property
    def place(self) -> str:
        """Where the jobs are, for people."""
        return f"app {self.config.app}" if self.config.app else without_password(self.config.database_url)

    @cached_property
    def queue(self) -> Queue:
        """The application's queue if one is named, else one on the store alone; both know shell jobs."""
        queue = self._app_queue(self.config.app) if self.config.app else Queue(self.config.database_url)
        at_end(queue.close)
        queue.registry.add(shell_handler())
        if connect.is_http(queue.url):
            connect.hear_waits(queue.front, say)
        return queue

    def ops(self, *, create: bool = False) -> Ops:
        """The operator's verbs on the store; a missing one is only made when `create` says so."""
        if self.config.app and (create or connect.is_memory(self.queue.url)):
            return self.queue_ops()
        # Not by the application's queue, which would create the store.
        url = self.queue.url if self.config.app else self.config.database_url
        opened = connect.open(url, create=create)
        at_end(opened.close)
        connect.hear_waits(opened.front, say)
        return verbs_on(opened.front, opened.wakeup)

    def queue_ops(self) -> Ops:
        """The same on the store that the queue has open."""
        return verbs_on(self.queue.front, self.queue.wakeup)

    def _app_queue(self, app: str) -> Queue:
        """The application's own queue, on its own store: on another one its jobs would never be seen.

        A flag reaches a Queue that leaves its URL open through the environment; one with a URL keeps it.
        """
        wanted = self.config.values[_URL]
        if wanted.source is not Source.FLAG:
            return load_queue(app)
        name = variable(_URL)
        before = {name: os.environ[name]} if name in os.environ else {}

        def give_back() -> None:
            os.environ.pop(name, None)
            os.environ.update(before)

        os.environ[name] = wanted.value
        at_end(give_back)
        queue = load_queue(app)
        used = queue.url
        if connect.place(used) != connect.place(wanted.value):
            allowed = f"left out: app {app} names its own store, {without_password(used)}"
            raise must_be("--db", without_password(wanted.value), allowed)
        return queue


def session() -> Session:
    """This run's session."""
    return click.get_current_context().ensure_object(Session)


def keep_log(given: dict[str, Any]) -> Session:
    """This run's session, with the log written as the options say that it takes out."""
    here = session()
    here.log_json, here.verbose = given.pop("log_json") or here.json, given.pop("verbose")
    return here


def answer(document: object, lines: str | Iterable[str]) -> None:
    """Print what a command has found: as JSON if that was asked for, else as lines for a person."""
    for line in (encode(document),) if session().json else (lines,) if isinstance(lines, str) else lines:
        click.echo(line)


def table(head: Sequence[str], rows: Iterable[Row], empty: str = "") -> Iterator[str]:
    """The lines of a table, or what is said in place of an empty one."""
    cells = list(rows)
    yield from session().screen.table(head, cells) if cells or not empty else [empty]


def facts(found: Iterable[tuple[str, str | None]], indent: str = "  ") -> Iterator[str]:
    """A line for each thing of which there is something to say."""
    return (f"{indent}{name:<12}{value}" for name, value in found if value)


def end(code: int) -> None:
    """Leave the command with this exit code, unless it is 0."""
    if code:
        click.get_current_context().exit(code)


def at_end(call: Callable[[], None]) -> None:
    """Have this done when the command is over."""
    click.get_current_context().find_root().call_on_close(call)
