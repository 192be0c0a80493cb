"""Which store, queue and configuration does this run of the command line speak of?"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

import click

from windlass import config, connect
from windlass.cli.app import load_queue
from windlass.cli.screen import Screen
from windlass.config import Config, Source, variable
from windlass.errors import must_be
from windlass.ops import Ops
from windlass.ops.remote import RemoteOps
from windlass.queue import Queue
from windlass.registry import shell_handler
from windlass.store.store import Store
from windlass.url import without_password
from windlass.wakeup import Wakeup

_URL = "database_url"


class Session:
    """What the shared flags lead to. Nothing is opened before a command asks for it."""

    def __init__(self, *, own_process: bool = False) -> None:
        """`own_process`: the process is there for this command alone, and may end with it."""
        self.flags: dict[str, object] = {}
        self.json = False
        self.own_process = own_process
        # The command line, for processes that are started by the same one.
        self.arguments: tuple[str, ...] = ()
        # Where and with what it was started, before any job changed that.
        self.folder = _folder()
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
        click.get_current_context().find_root().call_on_close(queue.close)
        queue.registry.add(shell_handler())
        return queue

    def ops(self, *, create: bool = False) -> Ops:
        """The operator's verbs on the store; a missing one is only made when `create` says so."""
        if self.config.app and (create or connect.is_memory(self.queue.url)):
            return self.queue_ops()
        # Not by the application's queue, which would create the store.
        url = self.queue.url if self.config.app else self.config.database_url
        opened = connect.open(url, create=create)
        click.get_current_context().find_root().call_on_close(opened.close)
        return _verbs(opened.store, opened.wakeup, served=opened.served)

    def queue_ops(self) -> Ops:
        """The same on the store that the queue has open."""
        return _verbs(self.queue.store, self.queue.wakeup, served=connect.is_http(self.queue.url))

    def _app_queue(self, app: str) -> Queue:
        """The application's own queue, on its own store: on another one its jobs would never be seen.

        A flag reaches a Queue that leaves its URL open through the environment; one with a URL keeps it.
        """
        wanted = self.config.values[_URL]
        if wanted.source is not Source.FLAG:
            return load_queue(app)
        _lend_variable(variable(_URL), wanted.value)
        queue = load_queue(app)
        used = queue.url
        if connect.place(used) != connect.place(wanted.value):
            allowed = f"left out: app {app} names its own store, {without_password(used)}"
            raise must_be("--db", without_password(wanted.value), allowed)
        return queue


def session() -> Session:
    """This run's session."""
    return click.get_current_context().ensure_object(Session)


def _verbs(store: Store, wakeup: Wakeup, *, served: bool) -> Ops:
    """The verbs on a store; behind a server, those that its API has."""
    return RemoteOps(store) if served else Ops(store, wakeup=wakeup)


def _folder() -> Path | None:
    try:
        return Path.cwd()
    except OSError:
        # Somebody has removed it.
        return None


def _lend_variable(name: str, value: str) -> None:
    before = os.environ.get(name)
    os.environ[name] = value

    def give_back() -> None:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before

    click.get_current_context().find_root().call_on_close(give_back)
