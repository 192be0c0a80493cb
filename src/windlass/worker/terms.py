"""Which timeout and which policy hold for a type now? The operator's word stands above the code's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec

from windlass import settings
from windlass.job import TypeInfo
from windlass.loop import Loop
from windlass.outcome import Policy
from windlass.registry import Handler
from windlass.settings import Effective, Settings
from windlass.store.store import Store
from windlass.worker.gates import Gates
from windlass.worker.tally import Tally

_TICK = timedelta(seconds=1)
# Refresh at least this often, even without a revision change.
_REFRESHED = 60
_ADOPTIONS = 2
# Where live jobs stand is looked at so often, by one of the workers; the others find that it was done.
_SAMPLED = 15
_LOOKED = timedelta(seconds=12)


class Terms:
    """What operators have set, as of the last look, applied to what the code says."""

    def __init__(
        self,
        store: Store,
        handlers: dict[str, Handler],
        gates: Gates | None = None,
        tally: Tally | None = None,
        *,
        told: bool = True,
    ) -> None:
        self._store = store
        self._handlers = handlers
        self._timeouts: dict[str, timedelta] = {}
        self._policies: dict[str, Policy] = {}
        self._gates = gates
        self._tally = tally
        # Without heartbeats to announce revisions, refresh every tick.
        self._refreshed = _REFRESHED if told else 1
        self._ticks = 0
        # Told when something was shut or opened.
        self.on_switch: Callable[[], None] = lambda: None
        # Told what operators have set, whenever that is read.
        self.on_settings: Callable[[Settings], None] = lambda _: None
        # Called about once a minute, and at once when the store's file was replaced.
        self.on_minute: Callable[[], None] = lambda: None
        self._noticed = self._read = 0
        self._generation: int | None = None
        self._adoptions = 0
        self._apply(Settings({}))
        # A thread of its own: a look at the settings may wait for a connection, and a beat must not.
        self.loop = Loop("terms", self.tick, every=_TICK, first=_TICK)

    def tick(self) -> None:
        """Tell what came of runs if something is wrong; read anew now and then, or when there is news."""
        self._ticks += 1
        generation = self._store.generation
        replaced = self._generation not in (None, generation)
        if replaced or self._noticed != self._read or self._ticks % self._refreshed == 0:
            self.refresh()
        if replaced or self._ticks % _REFRESHED == 0:
            self.on_minute()
        self._generation = generation
        # The first time at once: nobody may have looked for long.
        if self._ticks % _SAMPLED == 1:
            self._store.take_sample(_LOOKED)
        if self._tally is None or self._gates is None:
            return
        if self._tally.tell(self._settings, self._gates.switches):
            self.refresh()

    def refresh(self) -> None:
        """Read anew what operators have set and switched."""
        noticed = self._noticed
        self._apply(settings.read(self._store.settings()))
        if self._gates is not None:
            self._refresh_gates(self._gates)
        self._read = noticed

    def _refresh_gates(self, gates: Gates) -> None:
        if gates.apply(self._settings, self._store.switches()):
            self._adoptions = _ADOPTIONS
            self.on_switch()
        if gates.shares and self._handlers:
            gates.learn(self._store.types())
        if gates.restricted and self._adoptions:
            # More than once: a claim may be under way that knew of no limit.
            self._store.adopt(gates.restricted)
        self._adoptions = max(0, self._adoptions - 1)

    def notice(self, revision: int) -> None:
        """A look tells how often anything was set or switched: if that is news, it is read at once."""
        self._noticed = revision
        if revision != self._read:
            self.loop.wake()

    def timeout(self, job_type: str) -> timedelta:
        """How long a job of that type may run; a type served here."""
        return self._timeouts[job_type]

    def policy(self, job_type: str) -> Policy:
        """What follows from a failure; for types without a handler here, what the catalogue says."""
        known = self._policies.get(job_type)
        if known is not None:
            return known
        return published_policy(self._store.types().get(job_type), job_type, self._settings)

    def _apply(self, now: Settings) -> None:
        self._settings = now
        self.on_settings(now)
        for name, handler in self._handlers.items():
            effective = self._effective(handler)
            self._timeouts[name] = effective.timeout
            self._policies[name] = msgspec.structs.replace(handler.policy, retry=effective.retry)

    def _effective(self, handler: Handler) -> Effective:
        said = handler.said
        return self._settings.effective(
            handler.name,
            timeout=handler.timeout if "timeout" in said else None,
            retry=handler.policy.retry if "retry" in said else None,
        )


def published_policy(known: TypeInfo | None, job_type: str, held: Settings) -> Policy:
    """What a type's code has put into the catalogue, under what operators have set.

    Its rules are not there: they are about exceptions, and only who has the handler meets those.
    """
    options = {} if known is None else known.options
    max_age = options.get("max_age")
    return Policy(
        retry=held.published(job_type, options).retry,
        max_age=None if max_age is None else timedelta(seconds=max_age),
    )
