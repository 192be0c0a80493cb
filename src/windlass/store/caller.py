"""Who waits for what a verb does? A server says so, so that nothing is stored for a caller that has left.

Everybody else waits as long as the store was opened to wait, and is there until the verb has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from windlass.errors import StoreBusy


class Caller(NamedTuple):
    """Somebody who may leave, and how long they wait."""

    # Asked on any thread, while the verb waits and right before it begins.
    wanted: Callable[[], bool]
    # Seconds to wait for a connection or for the write lock.
    patience: float
    # Seconds that a statement may run; None: as long as the store was opened to wait.
    run: float | None = None


class Withdrawn(StoreBusy):
    """The caller left before the verb began; nothing was written."""

    def __init__(self) -> None:
        super().__init__("the caller has left; nothing was written")


_caller: ContextVar[Caller | None] = ContextVar("windlass_caller", default=None)


@contextmanager
def on_behalf_of(caller: Caller) -> Iterator[None]:
    """Verbs called within the block, on this thread, are that caller's."""
    token = _caller.set(caller)
    try:
        yield
    finally:
        _caller.reset(token)


def check_wanted() -> None:
    """Raise `Withdrawn` if the caller has left."""
    caller = _caller.get()
    if caller is not None and not caller.wanted():
        raise Withdrawn


def wanted_check() -> Callable[[], bool] | None:
    """What tells whether the caller is still there, for another thread; None: it always is."""
    caller = _caller.get()
    return None if caller is None else caller.wanted


def patience(usual: float) -> float:
    """How many seconds the caller waits for the store to be there."""
    caller = _caller.get()
    return usual if caller is None else min(usual, caller.patience)


def run_limit(usual: float, left: float) -> float:
    """How many seconds a statement may run: `left` of the store's usual patience, or what the caller says."""
    caller = _caller.get()
    if caller is None:
        return left
    return usual if caller.run is None else caller.run
