"""Group commit for requests: those that come at one moment share a transaction, without a thread for each.

The event loop only queues a post. One thread takes all that wait, makes their drafts, and stores them in one
transaction; meanwhile the next ones queue up (`store/group_commit.py`). A post is answered after that commit,
and whatever one of them brought does not fail the others.

A post whose caller has left is dropped, unless its write has begun. One that has waited as long as the
server's patience is answered that the store is away; if its write has not begun, it never does.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence
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


# Whether a post's caller has left; asked on any thread.
Gone = Callable[[], bool]


class _Post(Call):
    """The jobs of one request, and what became of them."""

    __slots__ = ("answer", "drafts", "gone", "make", "since")

    def __init__(self, make: Make, gone: Gone, weight: int) -> None:
        super().__init__(weight=weight, awaited=False)
        loop = asyncio.get_running_loop()
        self.make = make
        self.gone = gone
        # When it came, by the loop's clock.
        self.since = loop.time()
        # Once it is done, nothing of the post may begin any more.
        self.answer: asyncio.Future[Stored] = loop.create_future()
        self.drafts: Sequence[NewJob] = ()

    def is_unsettled(self) -> bool:
        return self.result is None and self.error is None

    def is_awaited(self) -> bool:
        return not self.answer.done() and not self.gone()

    def reply(self, answer: Stored | Exception) -> None:
        if self.answer.done():
            return
        if isinstance(answer, Exception):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class RequestGroups:
    """Posts that wait for the next commit."""

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
            "windlass-enqueue", self._write_group, most=_MOST_JOBS, most_calls=_MOST_CALLS
        )

    async def accept(self, make: Make, gone: Gone = lambda: False, weight: int = 1) -> Stored:
        """Store what `make` drafts on the thread, all or none; comes back after the durable commit."""
        self._loop = loop = asyncio.get_running_loop()
        post = _Post(make, gone, weight)
        self._open[post] = None
        self._coming.append(post)
        if len(self._coming) == 1:
            # Not at once: others come at the same moment.
            loop.call_soon(self._line_up)
        if self._clock is None:
            self._clock = loop.call_later(self._tick, self._look_at_clock, loop)
        return await post.answer

    def _line_up(self) -> None:
        coming, self._coming = self._coming, []
        self._line.put(coming)

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
            post.reply(problems.store_away(maybe_stored=not self._line.give_up(post)))

    def _answer(self, group: Sequence[_Post], away: StoreError | None) -> None:
        for post in group:
            self._open.pop(post, None)
            post.reply(post.result if post.error is None else post.error)
        if away is not None:
            self._doubt(None)

    # --- on the thread ---

    def _write_group(self, group: list[_Post]) -> None:
        """Write for all who are still there; the loop answers each of them."""
        posts = self._line.begin(group)
        away: StoreError | None = None
        try:
            away = self._write(posts)
        except Exception as error:  # noqa: BLE001 # wall: nobody waits for an answer that never comes
            away = StoreUnavailable(f"the jobs could not be stored: {error!r}")
            _fail(posts, away)
        # A loop that has ended waits for nothing.
        with contextlib.suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._answer, group, away)

    def _write(self, posts: Sequence[_Post]) -> StoreError | None:
        """Answers the error if the store cannot be had."""
        away: StoreError | None = None
        try:
            while not self._written([post for post in posts if post.is_unsettled() and post.is_awaited()]):
                # Somebody left before the write began: the others are written without them.
                pass
        except (StoreBusy, StoreUnavailable) as error:
            _fail(posts, error)
            away = error
        # Some may have been stored before the store went away.
        self._look_at_known(posts)
        if any(each.due for post in posts if post.result for each in post.result.done):
            self._queue.wakeup.notify()
        _fail(posts, Withdrawn())
        return away

    def _written(self, posts: list[_Post]) -> bool:
        """Draft and store them; False if one of them left before its write began."""

        def wanted() -> bool:
            return all(post.is_awaited() for post in posts)

        with on_behalf_of(Caller(wanted, self._patience, self._patience)):
            try:
                ready = [post for post in posts if self._drafted(post)]
                if ready:
                    self._store(ready)
            except Withdrawn:
                return False
        return True

    def _drafted(self, post: _Post) -> bool:
        try:
            post.drafts = post.make()
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 # wall: what one post brought must not fail the others
            post.error = error
            return False
        return True

    def _store(self, posts: list[_Post]) -> None:
        """All in one transaction; if something in it is refused, each half alone, and so on."""
        try:
            answers = self._queue.store.enqueue([draft for post in posts for draft in post.drafts])
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 # wall: what one post brought must not fail the others
            if len(posts) == 1:
                posts[0].error = error
                return
            half = len(posts) // 2
            self._store(posts[:half])
            self._store(posts[half:])
            return
        place = 0
        for post in posts:
            post.result = Stored(answers[place : place + len(post.drafts)], {})
            place += len(post.drafts)

    def _look_at_known(self, posts: Sequence[_Post]) -> None:
        """How those jobs stand that were there before: all of the group in one look."""
        known = [post for post in posts if post.result and not all(each.created for each in post.result.done)]
        if not known:
            return
        try:
            before = standing(self._queue.store, [each for post in known for each in post.result.done])
        except Exception as error:  # noqa: BLE001 # wall: it is about these posts alone
            for post in known:
                post.error = copy.copy(error)
            return
        for post in known:
            post.result = Stored(post.result.done, before)


def standing(store: Store, done: Sequence[Enqueued]) -> dict[str, Job]:
    """How those jobs stand that were there before."""
    ids = tuple({each.id for each in done if not each.created})
    # A group may hold more than one look finds.
    looks = (ids[start : start + _MOST_FOUND] for start in range(0, len(ids), _MOST_FOUND))
    return {job.id: job for part in looks for job in store.find(Filter(ids=part), limit=len(part)).jobs}


def _fail(posts: Sequence[_Post], error: StoreError) -> None:
    """What has neither been stored nor refused shares the fate of the store."""
    fail([post for post in posts if post.is_unsettled()], error)
