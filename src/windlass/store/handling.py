"""What may a running handler write? The part of the seam behind its context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from windlass.job import Lease

if TYPE_CHECKING:
    from windlass.store.protocol import Settlement


class Once(StrEnum):
    """What is known of a side effect that shall happen once."""

    NEW = "new"
    DONE = "done"
    # Begun by an attempt that never said how it ended.
    IN_DOUBT = "in doubt"


class Progress(msgspec.Struct, frozen=True):
    """How far a job said that it had come, and when."""

    done: int
    total: int | None
    noted_at: datetime


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


class Handling(Transacting, Protocol):
    """What running handlers write. The lease's token is the fence here, too."""

    def shared_address(self) -> str:
        """By which a child process reaches this store for a transaction; may carry a password.

        Refused if no other process can.
        """

    def note_progress(self, said: Sequence[tuple[Lease, int, int | None]]) -> None:
        """Keep how far jobs have come: (lease, done, of how many)."""

    def progress(self, job_id: str) -> Progress | None:
        """How far a job said that it had come."""

    def begin_once(self, lease: Lease, key: str) -> Once:
        """Begin a side effect, or say what became of it before. LeaseLost if the job is another's."""

    def end_once(self, lease: Lease, key: str) -> None:
        """The side effect is done."""

    def undo_once(self, lease: Lease, key: str) -> None:
        """The side effect surely did not happen."""
