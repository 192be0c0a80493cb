"""Which jobs may be in the store although nobody was told so?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.job import NewJob

_MOST = 100_000


class Unanswered:
    """Ids of enqueues that got no answer. Sent again, they may have been written, and may even have ended.

    Only of this process: the ids of another one's drafts are its own.
    """

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def note(self, jobs: Sequence[NewJob]) -> None:
        """It is not known whether these were written."""
        self._ids |= dict.fromkeys(new.id for new in jobs)
        for old in list(self._ids)[: max(0, len(self._ids) - _MOST)]:
            self._ids.pop(old, None)

    def has(self, jobs: Sequence[NewJob]) -> bool:
        """Whether one of these was tried before."""
        known = self._ids
        return bool(known) and any(new.id in known for new in jobs)
