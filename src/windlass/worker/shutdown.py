"""Stop a worker within its time, losing nothing; and what is left to do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Literal

import msgspec

from windlass.errors import StoreError, WindlassError
from windlass.job import JobState, View
from windlass.outcome import Interrupted
from windlass.store.jobs import Count
from windlass.worker.parts import Parts

log = logging.getLogger("windlass.worker")

# The time after the grace is shared out: first for jobs that were told to stop, then for writing what came
# of them; the rest is for leaving.
_SHARE_TO_END = 0.6
_SHARE_TO_WRITE = 0.8
_SHARE_TO_LEAVE = 0.9
_LEAST_MARGIN = 1.0
_LOOK_SECONDS = 0.05
_CLAIM_SECONDS = 1.0
# So long is waited for each that only tells what was seen: jobs and their results do not depend on it.
_TELLING_SECONDS = 1.0


class Shutdown:
    """Drain, wait, interrupt, write, leave: each in its share of the time, also with the store away."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._store = parts.env.store
        self._clock = parts.env.clock
        config = parts.env.config
        self._margin = max((config.exit_after - config.grace).total_seconds(), _LEAST_MARGIN)
        self._longest_grace = max(0.0, config.exit_after.total_seconds() - self._margin)
        self._over = 0.0

    def drain(self) -> None:
        if not self._parts.draining:
            self._parts.draining = True
            log.info("worker.draining", extra={"worker": self._parts.membership.id})
        self._parts.claimer.close(_CLAIM_SECONDS)

    def give_up_loop(self) -> None:
        """Give back the jobs on an event loop that is blocked for good: they cannot go on."""
        for run in self._parts.runner.coroutines.carried():
            if run.open:
                self._parts.runner.deadlines.stop(run, Interrupted(), patience=0.0)

    def end(self, grace: timedelta | None) -> None:
        """Let what runs finish for `grace` (None: as configured), stop the rest, and write every outcome."""
        seconds = self._longest_grace if grace is None else grace.total_seconds()
        margin_begins = self._clock.monotonic() + seconds
        self._over = margin_begins + _SHARE_TO_LEAVE * self._margin
        self.drain()
        if not self._wait_idle(margin_begins):
            patience = _SHARE_TO_END * self._margin
            self._interrupt(patience)
            self._wait_idle(margin_begins + patience + _LOOK_SECONDS)
        # Jobs that finished in time leave the rest of theirs to the writing.
        write_until = margin_begins + _SHARE_TO_WRITE * self._margin
        if not self._parts.settler.flush(max(0.0, write_until - self._clock.monotonic())):
            log.warning("worker.unsettled", extra={"outcomes": len(self._parts.settler.queue)})

    def close(self) -> None:
        """Stop every part and leave the fleet, as far as the time allows."""
        for loop in self._parts.loops:
            loop.stop(self.left())
        for loop in self._parts.reporting:
            loop.stop(min(self.left(), _TELLING_SECONDS))
        self._parts.runner.threads.close()
        self._parts.runner.coroutines.close(self.left())
        within(self.left(), self._parts.children.close, "children")
        self._parts.guard.close()
        self._parts.releases.log(last=True)
        within(min(self.left(), _TELLING_SECONDS), self._tell_the_rest, "ledger")
        within(self.left(), self._leave, "leave")

    def _interrupt(self, patience: float) -> None:
        left = [run for run in list(self._parts.runs.values()) if run.open]
        running = [run.lease.id for run in left if run.started is not None]
        log.warning("worker.interrupting", extra={"jobs": running})
        for run in left:
            if run.started is None:
                # Still waiting for its child: it has not begun, and will not.
                self._parts.runner.give_back(run)
            else:
                self._parts.runner.deadlines.stop(run, Interrupted(), patience=patience)

    def _wait_idle(self, until: float) -> bool:
        pause = threading.Event()
        while not self._parts.idle():
            left = until - self._clock.monotonic()
            if left <= 0:
                return False
            pause.wait(min(left, _LOOK_SECONDS))
        return True

    def _tell_the_rest(self) -> None:
        try:
            self._parts.ledger.tick()
        except WindlassError as error:
            log.warning("worker.uncounted", extra={"error": str(error)})

    def _leave(self) -> None:
        try:
            self._store.leave(self._parts.membership.id)
        except WindlassError as error:
            log.warning("worker.left_silently", extra={"error": str(error)})

    def left(self) -> float:
        """Seconds that the rest of the ending may take; always a moment."""
        return max(_LEAST_WAIT, self._over - self._clock.monotonic())


_LEAST_WAIT = 0.1


Ended = Literal["empty", "signal", "drained"]


class Remaining(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of the served types that are left, by why they do not run now; and what ended the run."""

    ended: Ended = "empty"
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

    def __init__(self, parts: Parts) -> None:
        self._store = parts.env.store
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

    def remaining(self, ended: Ended) -> Remaining:
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


def within(seconds: float, do: Callable[[], object], name: str) -> bool:
    """Do it on a daemon thread; False if it has not ended within these seconds, and goes on."""
    thread = threading.Thread(target=do, name=f"windlass-{name}", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()
