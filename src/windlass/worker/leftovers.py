"""Is there anything left to do, and what stays behind?"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.errors import StoreError
from windlass.job import JobState, View
from windlass.store.store import Store
from windlass.worker.parts import Parts


class Remaining(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of the served types that are not waited for, by why they do not run now."""

    scheduled: int
    retrying: int
    # For other jobs to end.
    waiting: int = 0
    # No live worker can read their payload.
    unreadable: int = 0
    # Due, but of a type that is held back.
    paused: int = 0


class Leftovers:
    """Looks for the end of a run that lasts until nothing is left."""

    def __init__(self, store: Store, parts: Parts) -> None:
        self._store = store
        self._parts = parts

    def done(self) -> bool:
        """Whether results are written, nothing of these types runs anywhere, and nothing is claimable."""
        if not self._parts.idle() or not self._parts.settler.empty:
            return False
        try:
            # In this order: what is claimed between the two looks is seen as running by the second.
            return not self._claimable() and not self._running()
        except StoreError:
            # Not knowing is not the end; the worker's own loops tell what is wrong with the store.
            return False

    def remaining(self) -> Remaining:
        """What stays behind."""
        counts = self._counts()
        shut = self._parts.types.keys() - self._open().keys()
        pending = {view: counts.get((JobState.PENDING, view), 0) for view in View}
        return Remaining(
            scheduled=pending[View.SCHEDULED],
            retrying=pending[View.RETRYING],
            waiting=pending[View.WAITING],
            unreadable=pending[View.UNREADABLE],
            paused=pending[View.DUE] if shut else 0,
        )

    def _running(self) -> bool:
        return any(state is JobState.PROCESSING for state, _ in self._counts())

    def _counts(self) -> dict[tuple[JobState, str | None], int]:
        found: dict[tuple[JobState, str | None], int] = {}
        for each in self._store.counts().counts:
            if each.type in self._parts.types and each.count:
                key = (each.state, each.view)
                found[key] = found.get(key, 0) + each.count
        return found

    def _claimable(self) -> bool:
        look = self._store.look(self._parts.membership.id, self._open(), self._parts.releases.reader)
        return look.claimable or look.unread

    def _open(self) -> Mapping[str, int]:
        return self._parts.admission.open(self._parts.types)
