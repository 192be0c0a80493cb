"""What waits for the writer's thread, and how is its caller told?"""

from __future__ import annotations

import threading
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any

from windlass.store.caller import Withdrawn, wanted_check

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windlass.store.sqlite.connection import SqliteTx

_LOOK_SECONDS = 0.05


class Operation:
    """One verb on its way through the writer."""

    __slots__ = (
        "args",
        "awaited",
        "begun",
        "done",
        "ended",
        "error",
        "following",
        "given_up",
        "joins",
        "result",
        "urgent",
        "verb",
        "wanted",
    )

    def __init__(
        self, verb: Callable[..., Any], args: tuple[Any, ...], *, urgent: bool = False, joins: bool = False
    ) -> None:
        self.verb = verb
        self.args = args
        self.urgent = urgent
        # Whether the verb takes a list and answers with one as long: then many callers' are done as one.
        self.joins = joins
        self.result: Any = None
        self.error: BaseException | None = None
        self.begun = False
        self.given_up = False
        self.ended = False
        # Whether anybody waits for it.
        self.awaited = True
        # What tells whether its caller is still there; None: it is.
        self.wanted = wanted_check()
        # Of those that were written together, whom the caller of this one wakes.
        self.following: Operation | None = None
        # A bare lock is the cheapest thing to wait on; it is let go when the operation is done.
        self.done = threading.Lock()
        self.done.acquire()

    def wait(self, seconds: float) -> bool:
        """Whether it is done within so many seconds. Looks now and then: who should wake us may be struck."""
        # Most are done at the first look, and every step more is one that all of a group have to wait for.
        if self.done.acquire(timeout=min(_LOOK_SECONDS, seconds)):
            return True
        until = monotonic() + seconds
        while not self.done.acquire(timeout=max(0.0, min(_LOOK_SECONDS, until - monotonic()))):
            if self.ended:
                break
            if monotonic() >= until:
                return False
        return True

    def is_wanted(self) -> bool:
        """Whether it may begin; one whose caller has left fails."""
        if self.wanted is None or self.wanted():
            return True
        self.error = Withdrawn()
        return False

    def wake_next(self) -> None:
        """Pass it on. Woken all at once, ten threads would only wait for the interpreter's lock."""
        if self.ended and self.following is not None:
            self.following.done.release()


def wake_up() -> Operation:
    """One that nobody waits for, and that only wakes the writer's thread."""
    operation = Operation(_nothing, ())
    operation.awaited = False
    return operation


def _nothing(tx: SqliteTx) -> None:
    """There is nothing to write."""


def run_joined(tx: SqliteTx, group: Sequence[Operation]) -> None:
    """One call for all who want the same done to their lists."""
    for verb in {operation.verb for operation in group}:
        same = [operation for operation in group if operation.verb is verb]
        answers = iter(verb(tx, [item for operation in same for item in operation.args[0]]))
        for operation in same:
            operation.result = list(islice(answers, len(operation.args[0])))
