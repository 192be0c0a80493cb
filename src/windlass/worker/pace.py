"""How many jobs are worth claiming ahead? Only short ones: a long one would wait here in vain."""

from __future__ import annotations

import math

MOST_AHEAD = 500
SHORT_RUN = 0.020
LIGHT_RUN = 1.0
ENOUGH_RUNS = 10
FORGOTTEN_AFTER = 60.0
# As many as should be through well before they are given back.
_AHEAD_SECONDS = 0.25
_WEIGHT_OF_NEWEST = 0.1
# What was claimed ahead in vain halves what is next, once in so long; it doubles again when that stays away.
_MISS_SECONDS = 1.0
_RECOVERY_SECONDS = 5.0
_MOST_DOUBLINGS = 6
_SMALLEST_SHARE = 2.0**-_MOST_DOUBLINGS
_SHORTEST_COUNTED = 0.0001


class Pace:
    """How long the jobs of each type of a pool have taken lately.

    One type whose jobs are long, or not yet known to be short, is enough to claim nothing ahead: a claim
    takes whatever comes next, and short jobs that wait here would always be served before long ones there.
    """

    def __init__(self) -> None:
        self._types: dict[str, _Average] = {}
        # How much of what the averages promise is believed, and since when.
        self._share = 1.0
        self._missed = -math.inf

    def note(self, job_type: str, seconds: float, now: float) -> None:
        """A job of that type took so long."""
        average = self._types.get(job_type)
        if average is None:
            average = self._types[job_type] = _Average()
        average.add(seconds, now)

    def miss(self, now: float) -> None:
        """Jobs that were claimed ahead have waited in vain: slots come free more slowly than runs are long.

        A child that must be started first, or one long run among many short ones, is in no average.
        """
        if now - self._missed >= _MISS_SECONDS:
            self._share = max(_SMALLEST_SHARE, self._believed(now) / 2)
            self._missed = now

    def is_light(self, job_type: str) -> bool:
        """Whether the jobs of a type are known to take less than a second."""
        average = self._types.get(job_type)
        return average is not None and average.known and average.mean < LIGHT_RUN

    def ahead(self, slots: int, now: float) -> int:
        """How many jobs to claim beyond free slots."""
        self._types = {
            name: average for name, average in self._types.items() if now - average.seen < FORGOTTEN_AFTER
        }
        slowest = max((average.careful() for average in self._types.values()), default=SHORT_RUN)
        if slowest >= SHORT_RUN:
            return 0
        ahead = min(MOST_AHEAD, int(slots * _AHEAD_SECONDS / max(slowest, _SHORTEST_COUNTED)))
        return ahead if self._share == 1.0 else int(ahead * self._believed(now))

    def _believed(self, now: float) -> float:
        doublings = min(_MOST_DOUBLINGS, (now - self._missed) / _RECOVERY_SECONDS)
        return min(1.0, self._share * math.exp2(doublings))


class _Average:
    """A mean over the first few runs, then one that forgets."""

    __slots__ = ("_runs", "mean", "seen")

    def __init__(self) -> None:
        self._runs = 0
        self.mean = 0.0
        self.seen = 0.0

    def add(self, seconds: float, now: float) -> None:
        self._runs += 1
        self.mean += (seconds - self.mean) * max(1.0 / self._runs, _WEIGHT_OF_NEWEST)
        self.seen = now

    def careful(self) -> float:
        """The mean, or long as long as it says little."""
        return self.mean if self.known else SHORT_RUN

    @property
    def known(self) -> bool:
        """Whether the mean says something."""
        return self._runs >= ENOUGH_RUNS
