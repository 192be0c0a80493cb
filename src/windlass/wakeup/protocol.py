"""How does a waiting worker learn that jobs may be there?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Wakeup(Protocol):
    """A hint, never the truth: a lost one costs latency, not a job."""

    @property
    def deaf(self) -> bool:
        """Whether hints of other processes are known not to arrive."""

    def notify(self) -> None:
        """Tell whoever waits in this process; called after a commit that made jobs claimable."""

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` at each hint, on any thread; it must be quick, such as an event's `set`."""

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        """Call it no more."""

    def close(self) -> None:
        """Stop listening."""
