"""Membership: this worker's id in the fleet, and whether the fleet still counts it as alive."""

from __future__ import annotations

import secrets

from windlass.clock import Clock
from windlass.upkeep.place import Place
from windlass.upkeep.watchman import WELL_WITHIN, Pulse

# Below the time after which others declare it dead: what it starts must be its own for a while yet.
SURE_WITHIN = 6.0


class Membership:
    """The worker's id, and when its last confirmed beat was sent.

    Beats are timed by when they were *sent*, on a clock that counts a machine's sleep: an answer that came
    late, or a process that was frozen, proves nothing about now.
    """

    def __init__(self, place: Place, clock: Clock) -> None:
        self.place = place
        self.id = _new_id(place)
        self._clock = clock
        self._sent = clock.uptime()
        self._gaps = 0
        self._joined = False
        # The file of the store in which the last beat was written. Claims from any other file are refused.
        self.generation = 0
        # In which file of the store each of its ids was entered.
        self._files: dict[str, int] = {}

    @property
    def sent(self) -> float:
        """When the last confirmed beat was sent."""
        return self._sent

    @property
    def pulse(self) -> Pulse:
        """What the reaper must know of its own worker before it judges others."""
        return Pulse(self._sent, self._gaps)

    def sure(self) -> bool:
        """Whether jobs may be claimed and started; asked before each start."""
        return self._joined and self._clock.uptime() - self._sent <= SURE_WITHIN

    def confirm(self, sent: float, generation: int) -> bool:
        """A beat sent at `sent` was written to this file of the store.

        True if it is the first one after a gap, or the first one in this file.
        """
        gap = self._joined and (sent - self._sent > WELL_WITHIN or generation != self.generation)
        if gap:
            self._gaps += 1
        self._sent = sent
        self.generation = generation
        self._joined = True
        return gap

    def enter(self, generation: int) -> None:
        """The worker is about to join the fleet in this file of the store."""
        self._files[self.id] = generation

    def left_behind(self, worker: str, generation: int) -> bool:
        """Whether one of its ids belongs to a file that was replaced since."""
        return self._files.get(worker, generation) != generation

    def take_new_id(self) -> str:
        """The fleet declared this worker dead: go on under a new id. Returns the old one."""
        old, self.id = self.id, _new_id(self.place)
        self._joined = False
        self._gaps += 1
        return old


def _new_id(place: Place) -> str:
    tail = f"-{place.pid}-{secrets.token_hex(4)}"
    return place.host[: _LONGEST - len(tail)] + tail


_LONGEST = 128
