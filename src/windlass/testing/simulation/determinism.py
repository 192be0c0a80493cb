"""Chance, ids and clocks come from the seed."""

from __future__ import annotations

import random
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest import mock

from windlass import clock as clocks
from windlass.clock import ManualClock, SystemClock
from windlass.store.sqlite import storefile
from windlass.store.sqlite.connection import Connection, open_connection
from windlass.store.sqlite.writer import Checkpointer
from windlass.worker import settler


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
        mock.patch.object(clocks, "time", _Time(clock)),
        mock.patch.object(secrets, "token_hex", _token_hex),
        mock.patch.object(secrets, "randbits", random.getrandbits),
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


def _open(*args: Any, **options: Any) -> Connection:
    connection = open_connection(*args, **options)
    connection.create_function("randomblob", 1, random.randbytes)
    return connection


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
