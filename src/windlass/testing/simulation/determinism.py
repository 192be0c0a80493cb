"""Chance, ids and clocks come from the seed."""

from __future__ import annotations

import random
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Self
from unittest import mock
from uuid import UUID, uuid4

from windlass import clock as clocks
from windlass.clock import ManualClock, SystemClock
from windlass.ops import bulk
from windlass.store.sqlite import storefile
from windlass.store.sqlite.connection import Connection, open_connection
from windlass.store.sqlite.writer import Checkpointer
from windlass.worker import settler, verifier


class _Time:
    """The standard library's clocks, by the clock of the world."""

    def __init__(self, clock: ManualClock) -> None:
        self.time_ns = lambda: clock.micros() * 1000
        self.monotonic = clock.monotonic


@contextmanager
def seeded(clock: ManualClock) -> Iterator[None]:
    """Within the block nothing depends on this machine: not its time, not its chance, and on no thread."""
    with (
        mock.patch.multiple(SystemClock, monotonic=clock.monotonic, uptime=clock.uptime, micros=_wall(clock)),
        _patched("monotonic", time.monotonic, clock.monotonic),
        _patched("uuid4", uuid4, lambda: UUID(int=random.getrandbits(128), version=4)),
        mock.patch.object(clocks, "time", _Time(clock)),
        mock.patch.object(secrets, "token_hex", _token_hex),
        mock.patch.object(secrets, "token_urlsafe", _token_hex),
        mock.patch.object(secrets, "randbits", random.getrandbits),
        # What would run on a thread beside runs at once, and no real second ends a transaction.
        mock.patch.object(bulk, "ThreadPoolExecutor", _AtOnce),
        mock.patch.object(verifier, "_Asked", _AskedHere),
        mock.patch.object(threading, "Timer", mock.MagicMock()),
        # It works on the writer's own thread; the world has a step of its own for it.
        mock.patch.object(Checkpointer, "is_due", return_value=False),
        mock.patch.object(settler, "_GATHER_SECONDS", 0.0),
        # The tokens of leases are made in SQL.
        mock.patch.object(storefile, "open_connection", _open),
    ):
        # Ids rise within a process, and those made before came from a real clock.
        clocks.uuid7.begin()
        before = random.getstate()
        try:
            yield
        finally:
            random.setstate(before)
            clocks.uuid7.begin()


def reseed(seed: int) -> None:
    """Begin a step: what it draws does not depend on the steps before it."""
    random.seed(seed)
    clocks.uuid7._chance = Random(seed).getrandbits  # noqa: SLF001


def by_chance(share: float) -> bool:
    """True in so large a share of cases."""
    return random.random() < share


class Openings:
    """What is done to each connection that any process opens from now on."""

    prepare: Callable[[Connection], object] = staticmethod(lambda _: None)


def _open(*args: Any, **options: Any) -> Connection:
    connection = open_connection(*args, **options)
    connection.create_function("randomblob", 1, random.randbytes)
    Openings.prepare(connection)
    return connection


class _AtOnce:
    """In the place of a pool of threads."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, act: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """One after the other."""
        return [act(item) for item in items]


class _AskedHere(verifier._Asked):  # noqa: SLF001
    """In the place of a thread that asks the application."""

    def start(self) -> None:
        """Ask now."""
        self.run()

    def join(self, timeout: float | None = None) -> None:
        """It has ended."""

    def is_alive(self) -> bool:
        """It has ended."""
        return False


def _wall(clock: ManualClock) -> Any:
    return lambda _: clock.micros()


def _token_hex(count: int) -> str:
    return f"{random.getrandbits(8 * count):0{2 * count}x}"


@contextmanager
def _patched(name: str, before: object, after: object) -> Iterator[None]:
    """Change a name in every module of ours that has imported it."""
    found = [
        m for key, m in sys.modules.items() if key.startswith("windlass") and vars(m).get(name) is before
    ]
    for module in found:
        setattr(module, name, after)
    try:
        yield
    finally:
        for module in found:
            setattr(module, name, before)
