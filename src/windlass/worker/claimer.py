"""The claimer: asks the store for jobs when a trigger fires, as many as there is room for."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

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

_WAITING = attrgetter("waiting")

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


@dataclass(eq=False)
class Claimer:
    """Free slots to leases. Asks at a hint, at a due time, or when a look says so; by itself if all fail."""

    env: Env
    triggers: PollTriggers
    admission: Admission
    runner: Runner
    settler: Settler
    # Which payloads it can read, see OtherReleases.
    reader: str

    def __post_init__(self) -> None:
        self._store, self._clock, self._ledger = self.env.store, self.env.clock, self.env.ledger
        self._membership, config = self.env.membership, self.env.config
        self._reservation = MemoryReservation(self._store, self.triggers.pools, clock=self._clock)
        # Whether jobs are there that others could not read, and we have not tried.
        self._unread = False
        # The longest that it goes without a tick when all is well; and when the last one was.
        self.patience = self._unasked = config.poll.total_seconds() * _POLLS_MISSED
        self.ticked = self._looked = self._clock.monotonic()
        # The tenant served last, by type.
        self._turns: dict[str, str] = {}
        # How many jobs of the lowest priority are due their share.
        self._owed = 0.0
        # Types of limited jobs that the present tick has claimed.
        self._taken: list[str] = []
        self._doubt = _Doubt(self._clock)
        self.loop = Loop("claimer", self.tick, every=config.poll, woken=self.triggers.woken)

    def saw(self, look: Look) -> None:
        """A look at the store shows whether a claim would find anything, now or soon."""
        now = self._clock.monotonic()
        self._looked = now
        if look.next_due is not None:
            at = now + look.next_due.total_seconds()
            for trigger in (each for pool in self.triggers.pools for each in pool.both):
                trigger.due_at = min(trigger.due_at, at)
        self._unread = look.unread
        if look.claimable or look.unread:
            self.triggers.hint()

    def close(self, timeout: float) -> None:
        """Claim nothing more; what has not started is given back, also what a claim under way brings yet."""
        self.triggers.closed = self.runner.closed = True
        self.loop.stop(timeout)
        if self.triggers.ended:
            # They came free before we closed, and no tick came after.
            self.triggers.notify()
        self._give_back(received_before=math.inf)

    def tick(self) -> float:
        """Claim for each pool that has room and may find something; returns when to ask again."""
        triggers, admission, unread = self.triggers, self.admission, self._unread
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
        triggers, now = self.triggers, self._clock.monotonic()
        self.ticked = now
        if self.runner.coroutines.unstarted or any(map(_WAITING, triggers.pools)):
            self._give_back(math.inf if triggers.closed else now - GIVEN_BACK_AFTER)
        if triggers.switched:
            triggers.switched = False
            # What waits for a slot and was shut meanwhile must not start.
            for run in [run for pool in triggers.pools for run in pool.take_back_those(self.admission.shut)]:
                self.runner.give_back(run)
        overloaded = len(self.settler.queue) > MOST_UNSETTLED
        # A new file does not know this worker yet: the heartbeat joins it, then its look wakes us.
        strange = self._membership.generation != self._store.generation
        if triggers.closed or overloaded or strange or not self._membership.sure():
            return self._unasked
        if now >= self._doubt.next_look:
            self._release_unknown()
        if self._reservation.active and self._reservation.look(self.admission.shut):
            triggers.memory_freed()
        unasked = now - self._looked >= self._unasked
        for pool in triggers.pools:
            if pool.types:
                self._claim(pool, unasked=unasked)
        if unasked:
            self._looked = now
        return self._next(now)

    def _next(self, now: float) -> float:
        wait = min(self._looked + self._unasked, self._doubt.next_look) - now
        for pool in self.triggers.pools:
            limited, others = pool.limited, pool.others
            restricted = bool(self.admission.restricted) and pool.vacant > 0
            # Limited jobs need not wait for what is claimed ahead.
            if restricted or pool.room(now) > 0:
                wait = 0.0 if others.fired and pool.low else min(wait, others.due_at - now)
            if restricted:
                wait = min(wait, max(0.0, (pool.limits_at if limited.fired else limited.due_at) - now))
            if pool.waiting or self.runner.coroutines.unstarted:
                wait = min(wait, GIVEN_BACK_AFTER / 2)
        return wait

    def _claim(self, pool: Pool, *, unasked: bool) -> None:
        """Claim for one pool what its triggers ask for; all, if nothing else has asked for too long."""
        now, admission = self._clock.monotonic(), self.admission
        for each in pool.both:
            if unasked or each.due_at <= now:
                each.fired, each.due_at = True, math.inf
        restricted, room = bool(admission.restricted), pool.room(now)
        # Limited jobs need not wait for what is claimed ahead.
        if room <= 0 and not (restricted and pool.vacant > 0):
            return
        # Once for all portions: what one of them does not find says nothing about the others.
        limited = restricted and pool.may_start_limited(now)
        # Enough of the others wait: a permit that came free is no reason to ask for a few more of them.
        others = pool.others.fired and (not restricted or pool.low)
        if not limited and not others:
            return
        asked = pool.both if limited and others else (pool.limited,) if limited else (pool.others,)
        for each in asked:
            # A hint that comes while we ask fires it again: it may be about what our claim did not see.
            each.fired = each.blocked = False
            each.due_at = math.inf
        for types, most in pool.portions(now) if pool.shares_memory else ((pool.types, room),):
            chosen = admission.choose(types, limited=limited, others=others)
            limit = most if others or pool.shares_memory else max(most, pool.vacant)
            if chosen and limit > 0:
                self._claim_portion(pool, asked, chosen, limit)
            elif chosen:
                # What does not fit now may fit when something ends.
                for each in asked:
                    each.blocked = True

    def _claim_portion(
        self, pool: Pool, asked: Sequence[Trigger], types: Mapping[str, int], limit: int
    ) -> None:
        received, news = self._clock.monotonic(), (self.triggers.hints, self.triggers.permits)
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
            self.triggers.memory_freed()
        if want.restricted:
            self._see_limits(pool, want, claimed, received, news)
        self._owed += self.admission.low_share * len(claimed.leases) - min(want.lowest, len(claimed.leases))
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
        told = permits != self.triggers.permits if claimed.held_back else hints != self.triggers.hints
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
            lease=self.env.config.lease,
            turns=self._turns,
            restricted=self.admission.restrictions(types) if self.admission.restricted else {},
            lowest=min(int(self._owed), limit) if whole else 0,
            reader=self.reader if self._unread else "",
        )

    def _take(self, pool: Pool, want: Want, leases: Sequence[Lease], received: float) -> None:
        if self._reservation.active:
            self._reservation.took(leases)
        for lease in leases:
            self._turns[lease.job.type] = lease.job.tenant
        self.runner.take(pool, leases, received, want.restricted)
        if self.triggers.closed:
            self._give_back(received_before=math.inf)

    def _give_back(self, received_before: float) -> None:
        for pool in self.triggers.pools:
            if pool.waiting and (stale := pool.take_back(received_before)):
                for run in stale:
                    self.runner.give_back(run)
                pool.prefetch.miss(self._clock.monotonic())
        if self.runner.coroutines.unstarted:
            # What was handed to the loop and has not started; that frees its slot.
            for run in self.runner.coroutines.take_back(received_before):
                self.runner.done(run, Unstarted())

    def _release_unknown(self) -> None:
        """Give back leases in our name that we never learned of; no claim is under way on this thread."""
        unknown = [
            lease for lease in self._store.held_by(self._membership.id) if lease.token not in self.env.runs
        ]
        if unknown:
            rates = {name: each.tokens for name, each in self.admission.restricted.items()}
            given_back = [
                Settlement(each, Released(), tokens=rates.get(each.job.type, ())) for each in unknown
            ]
            self._store.settle(given_back)
            log.warning("claim.released_unknown", extra={"jobs": [lease.id for lease in unknown]})
            self.triggers.hint()
        self._doubt.looked()


class _Doubt:
    """When to look for leases in our name that we do not know: a lost claim may be written long after."""

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
        now = self._clock.monotonic()
        if self._until is None:
            self._until = now + _DOUBT_SECONDS
        self.next_look = now + self._gap if now < self._until else math.inf
        self._gap = min(2 * self._gap, _DOUBT_EVERY)
