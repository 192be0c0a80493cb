"""How do threads that enqueue at one moment share a statement, and with it a commit?"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from windlass.errors import StoreBusy, StoreUnavailable
from windlass.store.caller import wanted_check

if TYPE_CHECKING:
    from windlass.job import NewJob
    from windlass.store.engine import Enqueued

    Accept = Callable[[Sequence[NewJob]], list[Enqueued]]

# A call with more jobs than this gains nothing from company, and would hold it up.
_LARGE = 100
_MOST_AT_ONCE = 1000
# So long whoever writes waits for those who wrote together the last time: they are about to come again, and
# without it one half of them would write while the other comes, in turns.
_GATHER_SECONDS = 0.0002
_LOOK_SECONDS = 0.05


class _Call:
    """The jobs of one caller, and what became of them."""

    __slots__ = ("answer", "error", "following", "jobs", "leads", "over", "turn")

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs
        self.answer: list[Enqueued] | None = None
        self.error: BaseException | None = None
        self.leads = False
        # It has led, and another leads now.
        self.over = False
        self.turn = threading.Lock()
        self.turn.acquire()
        # Of those who were written for together, whom this one wakes.
        self.following: _Call | None = None

    def wait(self) -> None:
        """Wait for the lead or for an answer, then wake the next.

        Woken all at once, ten threads would only wait for the interpreter's lock: twice as many switches, and
        a third more of the processor's time. If whoever should wake us was interrupted, we find out.
        """
        while not self.turn.acquire(timeout=_LOOK_SECONDS):
            if self.answer is not None or self.error is not None:
                break
        if self.following is not None:
            self.following.turn.release()


class Gathering:
    """Whoever comes first writes; those who come meanwhile wait, and one of them writes for all of them."""

    def __init__(self, together: Accept, alone: Accept) -> None:
        self._together = together
        self._alone = alone
        self._lock = threading.Lock()
        self._waiting: list[_Call] = []
        self._busy = False
        # How many wrote together the last time.
        self._company = 1
        self._pause = threading.Event()

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store the jobs of one caller, all or none, whatever becomes of the others."""
        if len(jobs) > _LARGE or wanted_check() is not None:
            # Nobody writes for a caller that may leave: only its own thread asks whether it is still there.
            return self._alone(jobs)
        call = _Call(jobs)
        with self._lock:
            self._waiting.append(call)
            call.leads = not self._busy
            self._busy = True
        try:
            if not call.leads:
                call.wait()
            if call.leads:
                self._lead(call)
        except BaseException:  # wall: whoever is interrupted must not keep the lead; the interrupt goes on
            self._abandon(call)
            raise
        if call.error is not None:
            raise call.error
        assert call.answer is not None  # noqa: S101 - answered or failed
        return call.answer

    def _lead(self, call: _Call) -> None:
        """Write for all who wait, then hand over to the first of those who came meanwhile."""
        group: list[_Call] = []
        try:
            if len(self._waiting) < self._company:
                self._pause.wait(_GATHER_SECONDS)
            group = self._take()
            self._company = len(group)
            self._write(group)
        except BaseException:  # wall: the leader is interrupted; the others must not wait for it for ever
            for each in group:
                if each.answer is None and each.error is None:
                    # Nobody wakes them: they find it when they look.
                    each.error = StoreUnavailable("who wrote for several was interrupted; try again")
            raise
        finally:
            self._hand_over(call)

    def _hand_over(self, call: _Call) -> None:
        with self._lock:
            if call.over:
                return
            call.over = True
            following = self._waiting[0] if self._waiting else None
            self._busy = following is not None
            if following is not None:
                following.leads = True
                following.turn.release()

    def _abandon(self, call: _Call) -> None:
        """Somebody waits no more."""
        with self._lock:
            if call in self._waiting:
                self._waiting.remove(call)
        if call.leads:
            self._hand_over(call)

    def _take(self) -> list[_Call]:
        group: list[_Call] = []
        total = 0
        with self._lock:
            while self._waiting and total < _MOST_AT_ONCE:
                group.append(self._waiting.pop(0))
                total += len(group[-1].jobs)
        return group

    def _write(self, group: list[_Call]) -> None:
        if len(group) == 1:
            self._write_alone(group[0])
            return
        try:
            answers = self._together([new for call in group for new in call.jobs])
        except (StoreUnavailable, StoreBusy) as error:
            for call in group:
                # Each caller raises its own: one exception raised in many threads would mix their tracebacks.
                call.error = copy.copy(error)
                self._tell(call)
        except Exception:  # noqa: BLE001 # wall: what one of them brought must not fail the others
            for call in group:
                self._write_alone(call)
        else:
            self._answer(group, answers)

    def _answer(self, group: list[_Call], answers: list[Enqueued]) -> None:
        others = [call for call in group if not call.leads]
        for call, following in itertools.pairwise(others):
            call.following = following
        place = 0
        for call in group:
            call.answer = answers[place : place + len(call.jobs)]
            place += len(call.jobs)
        if others:
            self._tell(others[0])

    def _write_alone(self, call: _Call) -> None:
        try:
            call.answer = self._alone(call.jobs)
        except Exception as error:  # noqa: BLE001 # wall: the caller raises it
            call.error = error
        self._tell(call)

    def _tell(self, call: _Call) -> None:
        # The leader does not wait for itself.
        if not call.leads:
            call.turn.release()
