"""When are jobs claimed, and how many?"""

from __future__ import annotations

import logging
import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from windlass.clock import Clock
from windlass.job import Lease
from windlass.loop import Loop
from windlass.observe import names, tracing
from windlass.observe.ledger import Ledger
from windlass.outcome import Policy, Unstarted, decide
from windlass.registry import Handler
from windlass.store.engine import Claimed, Settlement, Want
from windlass.store.fleet import Look
from windlass.store.store import Store
from windlass.worker.caller import Caller
from windlass.worker.feed import Feed, Hunger
from windlass.worker.gates import Gates
from windlass.worker.keeping import Keeping
from windlass.worker.pool import Pool
from windlass.worker.run import Run, Runs
from windlass.worker.runner import Runner
from windlass.worker.settler import Settler
from windlass.worker.standing import Standing

log = logging.getLogger("windlass.claimer")

GIVEN_BACK_AFTER = 1.0
# A claim whose answer was lost may be written as long after: a server that stood still ends what it began.
_DOUBT_SECONDS = 20.0
# Most are written in a moment, and then jobs wait for us: the looks are close together at first.
_DOUBT_FIRST = 0.25
_DOUBT_EVERY = 2.0
# Jobs without limits shall not pay with each claim for those whose limit is used up.
_LIMITS_AGAIN = 0.05
# What is due and was not found is locked by somebody: asked for again soon, and not all the time.
_LEAST_WAIT = 0.01
# Who took the last token of a rate asks first for the next one. The others come up to so much later, and no
# token is lost by that: rates make up for as much.
_OTHERS_LATER = 0.05
# Looks come each `poll`; only when they stay away does the claimer ask unbidden.
_POLLS_MISSED = 2.0


class Claimer:
    """Free slots to leases. Asks at a hint, at a due time, or when a look says so; by itself if all fail."""

    def __init__(  # noqa: PLR0913 - wired once, in parts.py
        self,
        store: Store,
        pools: Sequence[Pool],
        handlers: Mapping[str, Handler],
        *,
        runs: Runs,
        runner: Runner,
        settler: Settler,
        standing: Standing,
        gates: Gates,
        caller: Caller,
        tell: Callable[[], None],
        ledger: Ledger,
        keeping: Keeping,
        reader: str = "",
        lease: timedelta,
        poll: timedelta,
        clock: Clock,
    ) -> None:
        """`tell` lets other workers know that there may be something for them."""
        self._store = store
        self._feeds = {pool: Feed(pool) for pool in pools}
        # Only a pool whose types declare their memory is ever blocked by others.
        self._blocked = [feed for feed in self._feeds.values() if feed.pool.shares_memory]
        self._handlers = handlers
        self._runs = runs
        self._runner = runner
        self._settler = settler
        self._standing = standing
        self._gates = gates
        self._caller = caller
        self._tell = tell
        self._ledger = ledger
        self._keeping = keeping
        # Which payloads we can read; and whether jobs are there that others could not, and we have not tried.
        self._reader = reader
        self._unread = False
        self._lease = lease
        # The longest that it goes without a tick when all is well; and when the last one was.
        self.patience = self._unasked = poll.total_seconds() * _POLLS_MISSED
        self.ticked = clock.monotonic()
        self._clock = clock
        # The tenant served last, by type.
        self._turns: dict[str, str] = {}
        # How many jobs of the lowest priority are due their share.
        self._owed = 0.0
        self._hints = self._permits = 0
        # Types of limited jobs that have ended here, of which nobody else knows; the settler appends to them.
        self._ended: deque[str] = deque()
        # Those that the present tick has claimed.
        self._taken: list[str] = []
        self._looked = clock.monotonic()
        # Until when a claim may still be written whose answer never came, and when to look for it next.
        self._doubt = _Doubt(clock)
        self._closed = False
        self.loop = Loop("claimer", self.tick, every=poll)

    def hint(self) -> None:
        """Jobs may be there; or permits, of which others have had theirs first."""
        self._hints += 1
        for feed in self._feeds.values():
            feed.hint()
        self.loop.wake()

    def permit(self, ended: Sequence[str] = ()) -> None:
        """Limited jobs of these types have ended here: nobody is nearer to their permits.

        The others are told only of what we do not use ourselves: else each end would send the whole fleet to
        count, and to look for jobs of which nothing new is known.
        """
        self._permits += 1
        self._ended.extend(ended)
        for feed in self._feeds.values():
            feed.permit()
        if ended and self._closed:
            self._tell()
        self.loop.wake()

    def saw(self, look: Look) -> None:
        """A look at the store tells whether a claim would find anything, now or soon."""
        now = self._clock.monotonic()
        self._looked = now
        if look.next_due is not None:
            for feed in self._feeds.values():
                feed.due(now + look.next_due.total_seconds())
        self._unread = look.unread
        if look.claimable or look.unread:
            self.hint()

    def switched(self) -> None:
        """Something was shut or opened: what waits for a slot and must not start is given back."""
        for feed in self._feeds.values():
            for run in feed.pool.take_back_those(self._gates.shut):
                self._runner.give_back(run)
        self.permit()
        self.hint()

    def freed(self, pool: Pool) -> None:
        """A slot came free."""
        # Not of this pool alone: what has ended may have left memory to another one's jobs.
        feeds = (self._feeds[pool], *self._blocked) if self._blocked else (self._feeds[pool],)
        for feed in feeds:
            feed.unblock()
        for feed in feeds:
            if (feed.others.hungry and feed.pool.low) or self._may_start_limited(feed):
                self.loop.wake()

    def close(self, timeout: float) -> None:
        """Claim nothing more; what has not started is given back, also what a claim under way brings yet."""
        self._closed = True
        self._runner.closed = True
        self.loop.stop(timeout)
        if self._ended:
            # They came free before we closed, and no tick came after.
            self._tell()
        self._give_back(received_before=math.inf)

    def tick(self) -> float:
        """Claim for each pool that has room and may find something; answers when to ask again."""
        self._taken.clear()
        unread = self._unread
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        try:
            wait = self._claim_all()
        except BaseException:  # wall: nobody knows of them yet; the error goes on
            self._ended.extendleft(reversed(ended))
            raise
        if unread:
            # They were asked for once; the next look tells whether there are more.
            self._unread = False
        # Limit by limit: a permit of one is not used by a job that waited for another's.
        if ended and self._gates.permits(ended) - self._gates.permits(self._taken):
            self._tell()
        return wait

    def _claim_all(self) -> float:
        now = self.ticked = self._clock.monotonic()
        self._give_back(received_before=math.inf if self._closed else now - GIVEN_BACK_AFTER)
        if self._closed or self._settler.overloaded or not self._standing.sure():
            return self._unasked
        if self._standing.generation != self._store.generation:
            # The new file does not know this worker yet. The heartbeat joins it, then its look wakes us.
            return self._unasked
        if self._doubt.due():
            self._release_unknown()
        if self._keeping.look(self._gates.shut):
            self._unblock()
        unasked = now - self._looked >= self._unasked
        for feed in self._feeds.values():
            feed.grow(now, unasked=unasked)
            self._claim(feed)
        if unasked:
            self._looked = now
        return self._next(now)

    def _claim(self, feed: Feed) -> None:
        now = self._clock.monotonic()
        if not feed.pool.types or not self._has_room(feed.pool, now):
            return
        # Once for all portions: what one of them does not find says nothing about the others.
        limited = self._may_start_limited(feed)
        # Enough of the others wait: a permit that came free is no reason to ask for a few more of them.
        others = feed.others.hungry and (feed.pool.low or not self._gates.restricted)
        asked = [each for each, wanted in ((feed.limited, limited), (feed.others, others)) if wanted]
        for each in asked:
            each.ask()
        for types, room in feed.pool.portions(now) if asked else ():
            chosen = self._gates.open(types)
            if self._gates.restricted and not limited:
                chosen = self._gates.unrestricted(chosen)
            if not others:
                chosen = self._gates.among(chosen)
            limit = room if others or feed.pool.shares_memory else max(room, feed.pool.vacant)
            if chosen and limit > 0:
                self._claim_portion(feed, asked, chosen, limit)
            elif chosen:
                # What does not fit now may fit when something ends.
                for each in asked:
                    each.blocked = True

    def _claim_portion(
        self, feed: Feed, asked: Sequence[Hunger], types: Mapping[str, int], limit: int
    ) -> None:
        received, news = self._clock.monotonic(), (self._hints, self._permits)
        try:
            want = self._want(feed.pool, types, limit, whole=feed.others in asked and feed.pool.low)
            claimed = self._store.claim(want)
            self._ledger.count(_result(claimed))
            if claimed.leases:
                self._ledger.measure(names.CLAIM, len(claimed.leases))
                self._ledger.measure(names.RECEIVE, self._clock.monotonic() - received)
                self._take(feed.pool, want, claimed.leases, received)
        except BaseException:  # wall: whatever lost the answer, leases may have been made
            for each in asked:
                each.hungry = True
            self._doubt.begin()
            self._ledger.count(names.CLAIM_FAILED)
            raise
        if self._keeping.asked(types, claimed.leases):
            self._unblock()
        if want.restricted:
            self._see_limits(feed, want, claimed, received, news)
        self._owed += self._gates.low_share * len(claimed.leases) - min(want.lowest, len(claimed.leases))
        if len(claimed.leases) >= limit:
            for each in asked:
                each.hungry = True
        if claimed.next_due is not None:
            # Some may be due that were not taken: only so many are promoted at once.
            wait = max(claimed.next_due.total_seconds(), _LEAST_WAIT)
            feed.others.due(self._clock.monotonic() + wait)

    def _see_limits(
        self, feed: Feed, want: Want, claimed: Claimed, received: float, news: tuple[int, int]
    ) -> None:
        """When to ask for limited jobs again, unless there was news of them meanwhile."""
        found = [each.job.type for each in claimed.leases if each.job.type in want.restricted]
        self._taken += found
        hints, permits = news
        told = permits != self._permits if claimed.held_back else hints != self._hints
        wait = None if claimed.permit_due is None else claimed.permit_due.total_seconds()
        # What filled every slot may have gone before limited jobs that have permits.
        if not found and not told and (claimed.held_back or len(claimed.leases) < want.slots):
            feed.limits_at = received + min(_LIMITS_AGAIN, _LIMITS_AGAIN if wait is None else wait)
            feed.held_back = claimed.held_back
        if len(claimed.leases) >= want.slots:
            # They take no more than can start at once: there may be more for the next free slot.
            feed.limited.blocked = True
        if wait is not None:
            first = found or claimed.contended
            later = 0.0 if first else random.uniform(0.5, 1.0) * _OTHERS_LATER
            feed.limited.due(self._clock.monotonic() + max(wait, _LEAST_WAIT) + later)

    def _want(self, pool: Pool, types: Mapping[str, int], limit: int, *, whole: bool) -> Want:
        return self._gates.want(
            types,
            # Before the id: a worker that joins a new file takes its new id first.
            generation=self._standing.generation,
            worker=self._standing.id,
            limit=limit,
            slots=min(limit, pool.vacant),
            lease=self._lease,
            turns=self._turns,
            # Where only some of the types are asked for, the lowest of all is not known.
            lowest=max(0, min(int(self._owed), limit)) if whole else 0,
            reader=self._reader if self._unread else "",
        )

    def _take(self, pool: Pool, want: Want, leases: Sequence[Lease], received: float) -> None:
        runs = [
            Run(
                lease,
                self._handlers[lease.job.type],
                pool,
                received,
                limited=lease.job.type in want.restricted,
            )
            for lease in leases
        ]
        if tracing.on():
            waited = self._clock.monotonic() - received
            for run in runs:
                run.trace = tracing.Trace(run.lease, waited, self._runner.app)
        self._runs.add(runs)
        self._keeping.took(leases)
        for lease in leases:
            self._turns[lease.job.type] = lease.job.tenant
        self._caller.start(pool.offer(runs))
        if self._closed:
            self._give_back(received_before=math.inf)

    def _give_back(self, received_before: float) -> None:
        for feed in self._feeds.values():
            stale = feed.pool.take_back(received_before)
            for run in stale:
                self._runner.give_back(run)
            if stale:
                feed.pool.pace.miss(self._clock.monotonic())
        self._caller.take_back(received_before)

    def _unblock(self) -> None:
        """Memory is kept no more: no job ends now that would tell those who wait for it."""
        for feed in self._blocked:
            feed.unblock()

    def _release_unknown(self) -> None:
        """Give back leases in our name that we never learned of; no claim is under way on this thread."""
        unknown = [
            lease for lease in self._store.held_by(self._standing.id) if self._runs.get(lease.token) is None
        ]
        if unknown:
            self._store.settle([_unstarted(lease) for lease in unknown])
            log.warning("claim.released_unknown", extra={"jobs": [lease.id for lease in unknown]})
            self.hint()
        self._doubt.looked()

    def _has_room(self, pool: Pool, now: float) -> bool:
        """Whether there is anything to claim for; limited jobs need not wait for what is claimed ahead."""
        return pool.room(now) > 0 or (bool(self._gates.restricted) and pool.vacant > 0)

    def _may_start_limited(self, feed: Feed) -> bool:
        hungry = feed.limited.hungry and bool(self._gates.restricted)
        return hungry and feed.may_start_limited(self._clock.monotonic())

    def _next(self, now: float) -> float:
        """Seconds until there is something to do without being woken."""
        wait = self._looked + self._unasked - now
        for feed in self._feeds.values():
            room = self._has_room(feed.pool, now)
            wait = min(wait, feed.wait(now, room=room, restricted=bool(self._gates.restricted)))
            if feed.pool.waiting or self._caller.waiting:
                wait = min(wait, GIVEN_BACK_AFTER / 2)
        return min(wait, self._doubt.wait())


class _Doubt:
    """Whether there may be leases in our name that we never learned of, and when to look for them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: float | None = None
        self._next = math.inf
        self._gap = _DOUBT_FIRST

    def begin(self) -> None:
        """A claim was sent and not answered: look at once, and again for as long as it may be written."""
        self._next = self._clock.monotonic()
        self._until = None
        self._gap = _DOUBT_FIRST

    def due(self) -> bool:
        """Whether it is time to look."""
        return self._clock.monotonic() >= self._next

    def looked(self) -> None:
        """One look is done."""
        now = self._clock.monotonic()
        if self._until is None:
            self._until = now + _DOUBT_SECONDS
        self._next = now + self._gap if now < self._until else math.inf
        self._gap = min(2 * self._gap, _DOUBT_EVERY)

    def wait(self) -> float:
        """Seconds until the next look."""
        return self._next - self._clock.monotonic()


def _result(claimed: Claimed) -> str:
    if claimed.leases:
        return names.CLAIM_TAKEN
    return names.CLAIM_CONTENDED if claimed.contended else names.CLAIM_EMPTY


def _unstarted(lease: Lease) -> Settlement:
    """What a claim whose answer was lost amounts to: nothing ran."""
    outcome = decide(lease.job, Unstarted(), Policy(), now=lease.until, chance=random.random)
    return Settlement(lease, outcome, None)
