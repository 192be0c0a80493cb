"""What may a running handler write? The part of the seam behind its context."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from windlass.store.protocol import Settlement


class Once(StrEnum):
    """What is known of a side effect that shall happen once."""

    NEW = "new"
    DONE = "done"
    # Begun by an attempt that never said how it ended.
    IN_DOUBT = "in doubt"


class Said(NamedTuple):
    """How far a running job says that it has come, and what it does."""

    done: int
    total: int | None = None
    message: str | None = None


class Progress(msgspec.Struct, frozen=True):
    """How far a job said that it had come, and when."""

    done: int
    total: int | None
    noted_at: datetime
    message: str | None = None


class Transacting(Protocol):
    """Where a handler's own writes commit together with its job's completion."""

    def transaction(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> AbstractContextManager[Any]:
        """A connection of the handler's own in a transaction that commits together with the completion.

        That is asked for at the block's end. LeaseLost, and nothing written, if it comes too late.
        """

    def transaction_async(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> AbstractAsyncContextManager[Any]:
        """The same on the running event loop."""

    def close(self) -> None:
        """Let go of the connections."""
