"""Live settings: which timeout and policy hold for each type now, as operators change them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import NamedTuple

from windlass import settings
from windlass.job import TypeInfo
from windlass.loop import Loop
from windlass.outcome import Policy
from windlass.policy import Rules
from windlass.registry import Handler
from windlass.settings import Settings
from windlass.store.store import Store
from windlass.worker.admission import Admission, BreakerCounts

_TICK = timedelta(seconds=1)
# Refreshed at least this often, also without a new revision; in ticks.
_REFRESHED = 60
_ADOPTIONS = 2
# Live jobs are sampled this often, by one of the workers; the others find that it was done.
_SAMPLED = 15
_SAMPLE_AGE = timedelta(seconds=12)


class InForce(NamedTuple):
    """What holds for a type that is served here."""

    policy: Policy
    timeout: timedelta


class LiveSettings:
    """What operators have set, as of the last look, applied to what the code says."""

    def __init__(
        self,
        store: Store,
        handlers: Mapping[str, Handler],
        admission: Admission,
        breaker_counts: BreakerCounts,
        *,
        on_read: Iterable[Callable[[Settings], None]] = (),
        on_switch: Callable[[], None] = lambda: None,
        each_minute: Iterable[Callable[[], None]] = (),
        announced: bool = True,
    ) -> None:
        """`on_read` is called with the settings whenever they are read, `on_switch` when admission changed.

        `each_minute` is also called at once when the store's file was replaced. `announced`: heartbeats
        report new revisions; without them, the settings are read each second.
        """
        self._store = store
        self.handlers = handlers
        self.admission = admission
        self._breaker_counts = breaker_counts
        self._on_read = tuple(on_read)
        self._on_switch = on_switch
        self._each_minute = tuple(each_minute)
        self._refreshed = _REFRESHED if announced else 1
        self._ticks = 0
        self._noticed = self._read = 0
        self._generation: int | None = None
        self._adoptions = 0
        # By type, of those that are served here.
        self.in_force: dict[str, InForce] = {}
        self._apply(Settings({}))
        # A thread of its own: a look at the settings may wait for a connection, and a beat must not.
        self.loop = Loop("settings", self.tick, every=_TICK, first=_TICK)

    def tick(self) -> None:
        """Report how runs end if some fail; read the settings now and then, or when there is news."""
        self._ticks += 1
        generation = self._store.generation
        replaced = self._generation not in (None, generation)
        if replaced or self._noticed != self._read or self._ticks % self._refreshed == 0:
            self.refresh()
        if replaced or self._ticks % _REFRESHED == 0:
            for call in self._each_minute:
                call()
        self._generation = generation
        # The first time at once: nobody may have looked for long.
        if self._ticks % _SAMPLED == 1:
            self._store.take_sample(_SAMPLE_AGE)
        if self._breaker_counts.report(self._settings, self.admission.switches):
            self.refresh()

    def refresh(self) -> None:
        noticed, admission = self._noticed, self.admission
        self._apply(settings.read(self._store.settings()))
        if admission.apply(self._settings, self._store.switches()):
            self._adoptions = _ADOPTIONS
            self._on_switch()
        if admission.shares and self.handlers:
            admission.learn(self._store.types())
        if admission.restricted and self._adoptions:
            # More than once: a claim may be under way that did not know of the limit.
            self._store.adopt(admission.restricted)
        self._adoptions = max(0, self._adoptions - 1)
        self._read = noticed

    def notice(self, revision: int) -> None:
        """A look shows how often anything was set or switched: if that is news, it is read at once."""
        self._noticed = revision
        if revision != self._read:
            self.loop.wake()

    def policy(self, job_type: str) -> Policy:
        """What follows from a failure; for types without a handler here, what the catalogue says."""
        known = self.in_force.get(job_type)
        if known is not None:
            return known.policy
        return policy_of(job_type, self._store.types().get(job_type), self._settings)

    def _apply(self, now: Settings) -> None:
        self._settings = now
        for call in self._on_read:
            call(now)
        for name, handler in self.handlers.items():
            info = handler.info()
            policy = policy_of(name, info, now, handler.policy.rules)
            self.in_force[name] = InForce(policy, now.of_type(name, info.options).run.timeout)


def policy_of(job_type: str, known: TypeInfo | None, now: Settings, rules: Rules | None = None) -> Policy:
    """What follows from a failure of a type, by its code's options and what operators have set.

    Rules are about exceptions and are not in the catalogue: only a process with the handler meets those.
    """
    found = now.of_type(job_type, {} if known is None else known.options)
    return Policy(retry=found.run.retry, rules={} if rules is None else rules, max_age=found.max_age)
