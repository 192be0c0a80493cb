"""Is there anything left to do, and what stays behind?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from windlass.errors import StoreError
from windlass.job import JobState, View
from windlass.store.jobs import Count
from windlass.store.store import Store
from windlass.worker.parts import Parts


class Remaining(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of the served types that are left, by why they do not run now; and what ended the run."""

    ended: Literal["empty", "signal", "drained"] = "empty"
    # Could run now, and runs now.
    due: int = 0
    processing: int = 0
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

    def remaining(self, ended: Literal["empty", "signal", "drained"]) -> Remaining:
        """What stays behind."""
        types, open_types = self._parts.types, self._open()
        pending = dict.fromkeys(View, 0)
        processing = paused = 0
        for each in self._counts():
            if each.state is JobState.PROCESSING:
                processing += each.count
            elif each.state is JobState.PENDING and each.view is not None:
                due = each.view == View.DUE
                beyond = due and each.schema_version > types[each.type]
                pending[View.UNREADABLE if beyond else View(each.view)] += each.count
                paused += each.count if due and not beyond and each.type not in open_types else 0
        return Remaining(
            ended=ended,
            due=pending[View.DUE] - paused,
            processing=processing,
            scheduled=pending[View.SCHEDULED],
            retrying=pending[View.RETRYING],
            waiting=pending[View.WAITING],
            unreadable=pending[View.UNREADABLE],
            paused=paused,
        )

    def _running(self) -> bool:
        return any(each.state is JobState.PROCESSING for each in self._counts())

    def _counts(self) -> list[Count]:
        return [each for each in self._store.counts().counts if each.type in self._parts.types and each.count]

    def _claimable(self) -> bool:
        look = self._store.look(self._parts.membership.id, self._open(), self._parts.releases.reader)
        return look.claimable or look.unread

    def _open(self) -> Mapping[str, int]:
        return self._parts.admission.open(self._parts.types)
