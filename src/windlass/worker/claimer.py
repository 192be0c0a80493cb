"""The claimer: asks the store for jobs when a trigger fires, as many as there is room for."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Mapping, Sequence

from windlass.clock import Clock
from windlass.job import Lease
from windlass.loop import Loop
from windlass.observe import names
from windlass.outcome import Released, Unstarted
from windlass.store.engine import Claimed, Settlement, Want
from windlass.store.fleet import Look
from windlass.worker.admission import Admission
from windlass.worker.memory import MemoryReservation
from windlass.worker.pool import PollTriggers, Pool, Trigger
from windlass.worker.run import Env
from windlass.worker.runner import Runner
from windlass.worker.settler import MOST_UNSETTLED, Settler

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

    def __init__(
        self,
        env: Env,
        triggers: PollTriggers,
        admission: Admission,
        runner: Runner,
        settler: Settler,
        reader: str,
    ) -> None:
        """`reader`: which payloads it can read, see other_releases.py."""
        self._store = env.store
        self._ledger = env.ledger
        self._clock = env.clock
        self._membership = env.membership
        self._runs = env.runs
        self._lease = env.config.lease
        self._triggers = triggers
        self._admission = admission
        self._runner = runner
        self._settler = settler
        self._reader = reader
        self._reservation = MemoryReservation(env.store, list(triggers.pools), clock=env.clock)
        # Whether jobs are there that others could not read, and we have not tried.
        self._unread = False
        # The longest that it goes without a tick when all is well; and when the last one was.
        self.patience = self._unasked = env.config.poll.total_seconds() * _POLLS_MISSED
        self.ticked = self._looked = self._clock.monotonic()
        # The tenant served last, by type.
        self._turns: dict[str, str] = {}
        # How many jobs of the lowest priority are due their share.
        self._owed = 0.0
        # Types of limited jobs that the present tick has claimed.
        self._taken: list[str] = []
        self._doubt = _Doubt(self._clock)
        self.loop = Loop("claimer", self.tick, every=env.config.poll, woken=triggers.woken)

    def saw(self, look: Look) -> None:
        """A look at the store shows whether a claim would find anything, now or soon."""
        now = self._clock.monotonic()
        self._looked = now
        if look.next_due is not None:
            at = now + look.next_due.total_seconds()
            for trigger in (each for pool in self._triggers.pools for each in pool.both):
                trigger.due_at = min(trigger.due_at, at)
        self._unread = look.unread
        if look.claimable or look.unread:
            self._triggers.hint()

    def close(self, timeout: float) -> None:
        """Claim nothing more; what has not started is given back, also what a claim under way brings yet."""
        self._triggers.closed = self._runner.closed = True
        self.loop.stop(timeout)
        if self._triggers.ended:
            # They came free before we closed, and no tick came after.
            self._triggers.notify()
        self._give_back(received_before=math.inf)

    def tick(self) -> float:
        """Claim for each pool that has room and may find something; returns when to ask again."""
        triggers, admission, unread = self._triggers, self._admission, self._unread
        self._taken.clear()
        ended: list[str] = []
        while triggers.ended:
            ended.append(triggers.ended.popleft())
        try:
            wait = self._claim_all()
        except BaseException:  # wall: no other worker knows of them yet; the error goes on
            triggers.ended.extendleft(reversed(ended))
            raise
        if unread:
            # They were asked for once; the next look shows whether there are more.
            self._unread = False
        # Limit by limit: a permit of one is not used by a job that waited for another's.
        if ended and admission.permits(ended) - admission.permits(self._taken):
            triggers.notify()
        return wait

    def _claim_all(self) -> float:
        triggers, now = self._triggers, self._clock.monotonic()
        self.ticked = now
        self._give_back(math.inf if triggers.closed else now - GIVEN_BACK_AFTER)
        if triggers.switched:
            triggers.switched = False
            # What waits for a slot and was shut meanwhile must not start.
            for run in [run for pool in triggers.pools for run in pool.take_back_those(self._admission.shut)]:
                self._runner.give_back(run)
        if triggers.closed or len(self._settler.queue) > MOST_UNSETTLED or not self._membership.sure():
            return self._unasked
        if self._membership.generation != self._store.generation:
            # The new file does not know this worker yet. The heartbeat joins it, then its look wakes us.
            return self._unasked
        if now >= self._doubt.next_look:
            self._release_unknown()
        if self._reservation.active and self._reservation.look(self._admission.shut):
            triggers.memory_freed()
        unasked = now - self._looked >= self._unasked
        for pool in triggers.pools:
            if pool.types:
                self._claim(pool, unasked=unasked)
        if unasked:
            self._looked = now
        return self._next(now)

    def _next(self, now: float) -> float:
        """Seconds until there is something to do without being woken."""
        wait = min(self._looked + self._unasked, self._doubt.next_look) - now
        for pool in self._triggers.pools:
            limited, others = pool.limited, pool.others
            restricted = bool(self._admission.restricted) and pool.vacant > 0
            # Limited jobs need not wait for what is claimed ahead.
            if restricted or pool.room(now) > 0:
                wait = 0.0 if others.fired and pool.low else min(wait, others.due_at - now)
            if restricted:
                wait = min(wait, max(0.0, (pool.limits_at if limited.fired else limited.due_at) - now))
            if pool.waiting or self._runner.coroutines.unstarted:
                wait = min(wait, GIVEN_BACK_AFTER / 2)
        return wait

    def _claim(self, pool: Pool, *, unasked: bool) -> None:
        """Claim for one pool what its triggers ask for; all, if nothing else has asked for too long."""
        now, admission = self._clock.monotonic(), self._admission
        for each in pool.both:
            if unasked or each.due_at <= now:
                each.fired, each.due_at = True, math.inf
        restricted = bool(admission.restricted)
        # Limited jobs need not wait for what is claimed ahead.
        if pool.room(now) <= 0 and not (restricted and pool.vacant > 0):
            return
        # Once for all portions: what one of them does not find says nothing about the others.
        limited = restricted and pool.may_start_limited(now)
        # Enough of the others wait: a permit that came free is no reason to ask for a few more of them.
        others = pool.others.fired and (not restricted or pool.low)
        asked = [each for each, wanted in ((pool.limited, limited), (pool.others, others)) if wanted]
        for each in asked:
            # A hint that comes while we ask fires it again: it may be about what our claim did not see.
            each.fired = each.blocked = False
            each.due_at = math.inf
        for types, room in pool.portions(now) if asked else ():
            chosen = admission.choose(types, limited=limited, others=others)
            limit = room if others or pool.shares_memory else max(room, pool.vacant)
            if chosen and limit > 0:
                self._claim_portion(pool, asked, chosen, limit)
            elif chosen:
                # What does not fit now may fit when something ends.
                for each in asked:
                    each.blocked = True

    def _claim_portion(
        self, pool: Pool, asked: Sequence[Trigger], types: Mapping[str, int], limit: int
    ) -> None:
        received, news = self._clock.monotonic(), (self._triggers.hints, self._triggers.permits)
        try:
            want = self._want(pool, asked, types, limit)
            claimed = self._store.claim(want)
            if claimed.leases:
                self._ledger.count(names.CLAIM_TAKEN)
                self._ledger.measure(names.CLAIM, len(claimed.leases))
                self._ledger.measure(names.RECEIVE, self._clock.monotonic() - received)
                self._take(pool, want, claimed.leases, received)
            else:
                self._ledger.count(names.CLAIM_CONTENDED if claimed.contended else names.CLAIM_EMPTY)
        except BaseException:  # wall: whatever lost the answer, leases may have been made
            for each in asked:
                each.fired = True
            self._doubt.begin()
            self._ledger.count(names.CLAIM_FAILED)
            raise
        if self._reservation.active and self._reservation.asked(types, claimed.leases):
            self._triggers.memory_freed()
        if want.restricted:
            self._see_limits(pool, want, claimed, received, news)
        self._owed += self._admission.low_share * len(claimed.leases) - min(want.lowest, len(claimed.leases))
        if len(claimed.leases) >= limit:
            for each in asked:
                each.fired = True
        if claimed.next_due is not None:
            # Some may be due that were not taken: a claim promotes a limited number.
            at = self._clock.monotonic() + max(claimed.next_due.total_seconds(), _LEAST_WAIT)
            pool.others.due_at = min(pool.others.due_at, at)

    def _see_limits(
        self, pool: Pool, want: Want, claimed: Claimed, received: float, news: tuple[int, int]
    ) -> None:
        """When to ask for limited jobs again, unless there was news of them meanwhile."""
        found = [each.job.type for each in claimed.leases if each.job.type in want.restricted]
        self._taken += found
        hints, permits = news
        told = permits != self._triggers.permits if claimed.held_back else hints != self._triggers.hints
        wait = None if claimed.permit_due is None else claimed.permit_due.total_seconds()
        # What filled every slot may have gone before limited jobs that have permits.
        if not found and not told and (claimed.held_back or len(claimed.leases) < want.slots):
            pool.limits_at = received + min(_LIMITS_AGAIN, _LIMITS_AGAIN if wait is None else wait)
            pool.held_back = claimed.held_back
        if len(claimed.leases) >= want.slots:
            # They take no more than can start at once: there may be more for the next free slot.
            pool.limited.blocked = True
        if wait is not None:
            first = found or claimed.contended
            later = 0.0 if first else random.uniform(0.5, 1.0) * _OTHERS_LATER
            at = self._clock.monotonic() + max(wait, _LEAST_WAIT) + later
            pool.limited.due_at = min(pool.limited.due_at, at)

    def _want(self, pool: Pool, asked: Sequence[Trigger], types: Mapping[str, int], limit: int) -> Want:
        # Where only some of the types are asked for, the lowest of all is not known.
        whole = self._owed >= 1.0 and pool.others in asked and pool.low
        return Want(
            types=types,
            # Before the id: a worker that joins a new file takes its new id first.
            generation=self._membership.generation,
            worker=self._membership.id,
            limit=limit,
            slots=min(limit, pool.vacant),
            lease=self._lease,
            turns=self._turns,
            restricted=self._admission.restrictions(types) if self._admission.restricted else {},
            lowest=min(int(self._owed), limit) if whole else 0,
            reader=self._reader if self._unread else "",
        )

    def _take(self, pool: Pool, want: Want, leases: Sequence[Lease], received: float) -> None:
        if self._reservation.active:
            self._reservation.took(leases)
        for lease in leases:
            self._turns[lease.job.type] = lease.job.tenant
        self._runner.take(pool, leases, received, want.restricted)
        if self._triggers.closed:
            self._give_back(received_before=math.inf)

    def _give_back(self, received_before: float) -> None:
        for pool in self._triggers.pools:
            if pool.waiting and (stale := pool.take_back(received_before)):
                for run in stale:
                    self._runner.give_back(run)
                pool.prefetch.miss(self._clock.monotonic())
        if self._runner.coroutines.unstarted:
            # What was handed to the loop and has not started; that frees its slot.
            for run in self._runner.coroutines.take_back(received_before):
                self._runner.done(run, Unstarted())

    def _release_unknown(self) -> None:
        """Give back leases in our name that we never learned of; no claim is under way on this thread."""
        unknown = [
            lease for lease in self._store.held_by(self._membership.id) if lease.token not in self._runs
        ]
        if unknown:
            rates = {name: each.tokens for name, each in self._admission.restricted.items()}
            given_back = [
                Settlement(each, Released(), tokens=rates.get(each.job.type, ())) for each in unknown
            ]
            self._store.settle(given_back)
            log.warning("claim.released_unknown", extra={"jobs": [lease.id for lease in unknown]})
            self._triggers.hint()
        self._doubt.looked()


class _Doubt:
    """Whether there may be leases in our name that we never learned of, and when to look for them.

    A claim whose answer was lost may be written long after.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: float | None = None
        self.next_look = math.inf
        self._gap = _DOUBT_FIRST

    def begin(self) -> None:
        """A claim was sent and not answered: look at once, and again for as long as it may be written."""
        self.next_look = self._clock.monotonic()
        self._until = None
        self._gap = _DOUBT_FIRST

    def looked(self) -> None:
        """One look is done."""
        now = self._clock.monotonic()
        if self._until is None:
            self._until = now + _DOUBT_SECONDS
        self.next_look = now + self._gap if now < self._until else math.inf
        self._gap = min(2 * self._gap, _DOUBT_EVERY)
