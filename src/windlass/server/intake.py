"""Let requests that come at one moment share a commit, without a thread for each.

The event loop only puts a call into the line. One thread takes all that wait there, makes their drafts, and
stores them in one transaction; meanwhile the next ones line up (`group_commit.py`). A call is answered after
that commit, and whatever one of them brought does not fail the others.

A call whose caller has left is dropped, unless its write has begun. One that has waited as long as the
server's patience is answered that the store is away; if its write has not begun, it never does.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from windlass.config import PATIENCE
from windlass.errors import StoreBusy, StoreError, StoreUnavailable
from windlass.job import Job, NewJob
from windlass.queue import Queue
from windlass.server import problems
from windlass.store.engine import Enqueued
from windlass.store.group_commit import Call, Caller, GroupCommit, Withdrawn, fail, on_behalf_of
from windlass.store.jobs import Filter
from windlass.store.store import Store

log = logging.getLogger("windlass.server")

Make = Callable[[], Sequence[NewJob]]
_MOST_CALLS = 500
_MOST_JOBS = 2_000
_MOST_FOUND = 1_000
# The clock looks this often within the patience at calls that still wait.
_TICKS = 8


class Stored(NamedTuple):
    """What became of the jobs of one call; and those that were there before, by id, as they stand now."""

    done: Sequence[Enqueued]
    before: Mapping[str, Job]


# What hears of a call's end: what is stored, or why nothing is.
Told = Callable[[Stored | Exception], None]
# Whether a call's caller has left; asked on any thread.
Gone = Callable[[], bool]


class _Post(Call):
    """The jobs of one request, and what became of them."""

    __slots__ = ("drafts", "gone", "make", "over", "since", "told")

    def __init__(self, make: Make, told: Told, gone: Gone, weight: int, since: float) -> None:
        super().__init__(weight=weight, awaited=False)
        self.make = make
        self.told = told
        self.gone = gone
        # When it came, by the loop's clock.
        self.since = since
        # Whether it has its answer: then nothing of it may begin any more.
        self.over = False
        self.drafts: Sequence[NewJob] = ()

    def unsettled(self) -> bool:
        """Whether it is neither stored nor refused."""
        return self.result is None and self.error is None

    def is_awaited(self) -> bool:
        """Whether somebody waits for it."""
        return not self.over and not self.gone()

    def answer(self, answer: Stored | Exception) -> None:
        """Answer its caller, once."""
        if self.over:
            return
        self.over = True
        try:
            self.told(answer)
        except Exception:  # wall: an answer that cannot be sent must not keep back the others
            log.exception("server.untold")


class Intake:
    """The line in which jobs wait for the next commit."""

    def __init__(
        self,
        queue: Queue,
        *,
        patience: float = PATIENCE,
        doubt: Callable[[float | None], None] = lambda _: None,
    ) -> None:
        """`doubt` hears since when the store has been waited for in vain; None: it has just refused."""
        self._queue = queue
        self._doubt = doubt
        self._patience = patience
        self._tick = patience / _TICKS
        self._clock: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Posts without an answer, the oldest first; and those of them that are not in the line yet.
        self._open: dict[_Post, None] = {}
        self._coming: list[_Post] = []
        self._line = GroupCommit(
            "windlass-intake", self._write_group, most=_MOST_JOBS, most_calls=_MOST_CALLS
        )

    def put(self, make: Make, told: Told, gone: Gone = lambda: False, weight: int = 1) -> None:
        """Store what `make` drafts, all or none; `told` hears of it on the loop, after the durable commit.

        `make` runs where the store may be waited for.
        """
        self._loop = loop = asyncio.get_running_loop()
        post = _Post(make, told, gone, weight, loop.time())
        self._open[post] = None
        self._coming.append(post)
        if len(self._coming) == 1:
            # Not at once: others come at the same moment.
            loop.call_soon(self._line_up)
        if self._clock is None:
            self._clock = loop.call_later(self._tick, self._look_at_clock, loop)

    def _line_up(self) -> None:
        coming, self._coming = self._coming, []
        self._line.put(coming)

    async def accept(self, make: Make, gone: Gone = lambda: False, weight: int = 1) -> Stored:
        """The same for who waits: comes back after the durable commit."""
        answer: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        self.put(make, partial(_settle, answer), gone, weight)
        return await answer

    def refuse_all(self) -> None:
        """The store is known to be away: nobody waits for it any longer."""
        self._refuse(list(self._open))

    def close(self) -> None:
        """Let go of the thread; what it writes is written to the end."""
        self._line.close()

    # --- on the loop ---

    def _look_at_clock(self, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = None
        posts = list(self._open)
        if not posts:
            return
        waited = loop.time() - posts[0].since
        if waited >= self._patience / 2:
            self._doubt(posts[0].since)
        # Those whose time is over before the next look.
        self._refuse([post for post in posts if loop.time() - post.since + self._tick > self._patience])
        self._clock = loop.call_later(self._tick, self._look_at_clock, loop)

    def _refuse(self, posts: Sequence[_Post]) -> None:
        """Answer them that the store is away; those that are not being written are never begun."""
        for post in posts:
            self._open.pop(post, None)
            post.answer(problems.store_away(maybe_stored=not self._line.give_up(post)))

    def _answer(self, group: Sequence[_Post], away: StoreError | None) -> None:
        for post in group:
            self._open.pop(post, None)
            post.answer(post.result if post.error is None else post.error)
        if away is not None:
            self._doubt(None)

    # --- on the thread ---

    def _write_group(self, group: list[_Post]) -> None:
        """Write for all who are still there; the loop answers each of them."""
        posts = self._line.begin(group)
        away: StoreError | None
        try:
            away = self._write(posts)
        except Exception as error:  # noqa: BLE001 # wall: nobody waits for an answer that never comes
            away = StoreUnavailable(f"the jobs could not be stored: {error!r}")
            _fail(posts, away)
        # A loop that has ended waits for nothing.
        with contextlib.suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._answer, group, away)

    def _write(self, group: Sequence[_Post]) -> StoreBusy | StoreUnavailable | None:
        """Write for all who are still there; answers the error if the store cannot be had."""
        away: StoreBusy | StoreUnavailable | None = None
        try:
            while not self._written([call for call in group if call.unsettled() and call.is_awaited()]):
                # Somebody left before the write began: the others are written without them.
                pass
        except (StoreBusy, StoreUnavailable) as error:
            _fail(group, error)
            away = error
        # Some may have been stored before the store went away.
        self._look_at_known(group)
        if any(each.due for call in group if call.result for each in call.result.done):
            self._queue.wakeup.notify()
        _fail(group, Withdrawn())
        return away

    def _written(self, calls: list[_Post]) -> bool:
        """Draft and store them; False if one of them left before its write began."""

        def wanted() -> bool:
            return all(call.is_awaited() for call in calls)

        with on_behalf_of(Caller(wanted, self._patience, self._patience)):
            try:
                ready = [call for call in calls if self._drafted(call)]
                if ready:
                    self._store(ready)
            except Withdrawn:
                return False
        return True

    def _drafted(self, call: _Post) -> bool:
        try:
            call.drafts = call.make()
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 # wall: what one call brought must not fail the others
            call.error = error
            return False
        return True

    def _store(self, calls: list[_Post]) -> None:
        """All in one transaction; if something in it is refused, each half alone, and so on."""
        try:
            answers = self._queue.store.enqueue([draft for call in calls for draft in call.drafts])
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 # wall: what one call brought must not fail the others
            if len(calls) == 1:
                calls[0].error = error
                return
            half = len(calls) // 2
            self._store(calls[:half])
            self._store(calls[half:])
            return
        place = 0
        for call in calls:
            call.result = Stored(answers[place : place + len(call.drafts)], {})
            place += len(call.drafts)

    def _look_at_known(self, calls: Sequence[_Post]) -> None:
        """How those jobs stand that were there before: all of the group in one look."""
        known = [call for call in calls if call.result and not all(each.created for each in call.result.done)]
        if not known:
            return
        try:
            before = standing(self._queue.store, [each for call in known for each in call.result.done])
        except Exception as error:  # noqa: BLE001 # wall: it is about these calls alone
            for call in known:
                call.error = copy.copy(error)
            return
        for call in known:
            call.result = Stored(call.result.done, before)


def standing(store: Store, done: Sequence[Enqueued]) -> dict[str, Job]:
    """How those jobs stand that were there before."""
    ids = tuple({each.id for each in done if not each.created})
    # A group may hold more than one look finds.
    looks = (ids[start : start + _MOST_FOUND] for start in range(0, len(ids), _MOST_FOUND))
    return {job.id: job for part in looks for job in store.find(Filter(ids=part), limit=len(part)).jobs}


def _fail(calls: Sequence[_Post], error: StoreError) -> None:
    """What has neither been stored nor refused shares the fate of the store."""
    fail([call for call in calls if call.unsettled()], error)


def _settle(answer: asyncio.Future[Stored], stored: Stored | Exception) -> None:
    if answer.done():
        return
    if isinstance(stored, Exception):
        answer.set_exception(stored)
    else:
        answer.set_result(stored)
