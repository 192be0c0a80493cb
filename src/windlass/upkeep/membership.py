"""Membership of the fleet: where a worker runs, whether it counts as alive, and which workers are dead."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from windlass.clock import Clock
from windlass.job import Lease
from windlass.store.fleet import WorkerInfo

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
        # When the last confirmed beat was sent.
        self.sent = clock.uptime()
        self._gaps = 0
        self._joined = False
        # The file of the store in which the last beat was written. Claims from any other file are refused.
        self.generation = 0
        # In which file of the store each of its ids was entered.
        self._files: dict[str, int] = {}

    @property
    def pulse(self) -> Pulse:
        """What the reaper must know of its own worker before it judges others."""
        return Pulse(self.sent, self._gaps)

    def sure(self) -> bool:
        """Whether jobs may be claimed and started; asked before each start."""
        return self._joined and self._clock.uptime() - self.sent <= SURE_WITHIN

    def confirm(self, sent: float, generation: int) -> bool:
        """A beat sent at `sent` was written to this file of the store.

        True if it is the first one after a gap, or the first one in this file.
        """
        gap = self._joined and (sent - self.sent > WELL_WITHIN or generation != self.generation)
        self._gaps += gap
        self.sent = sent
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


_UNKNOWN = ""
# Fields of /proc/PID/stat behind the command's name: the state, and when the process started.
_STATE = 0
_STARTED = 19
_GONE_STATES = frozenset({"Z", "X"})


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What tells one process from every other, on this machine and on others."""

    host: str
    boot: str
    pid_space: str
    pid: int
    pid_started: int


def here() -> Place:
    """The place of this process. Where the system does not tell, the parts stay empty."""
    return Place(
        host=socket.gethostname(),
        boot=_look(Path("/proc/sys/kernel/random/boot_id").read_text).strip(),
        pid_space=_look(Path("/proc/self/ns/pid").readlink),
        pid=os.getpid(),
        pid_started=_started(os.getpid()),
    )


def is_gone(worker: WorkerInfo, seen_from: Place) -> bool:
    """Whether that worker's process surely exists no more; False whenever that cannot be known from here."""
    same_boot = worker.boot == seen_from.boot != _UNKNOWN
    if not same_boot or worker.pid_space != seen_from.pid_space or worker.pid <= 0:
        return False
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # somebody else's process, but there it is
    fields = _stat(worker.pid)
    if fields is None:
        return False
    # A killed process whose parent has not asked for it runs nothing; a number used again is another process.
    return fields[_STATE] in _GONE_STATES or int(fields[_STARTED]) != worker.pid_started


def _started(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[_STARTED]) if fields else 0


def _stat(pid: int) -> list[str] | None:
    text = _look(partial(Path(f"/proc/{pid}/stat").read_text, encoding="utf-8", errors="replace"))
    # The command's name stands in brackets and may hold spaces and brackets itself.
    return text.rpartition(")")[2].split() or None


def _look(at: Callable[[], object]) -> str:
    try:
        return str(at())
    except OSError:
        return _UNKNOWN


DEAD_AFTER = 10.0
UNRENEWED_AFTER = 10.0
MOST_PER_CHECK = 2.0
WELL_WITHIN = 3.0


class Pulse(msgspec.Struct, frozen=True):
    """How the watching worker itself is: when its last committed beat was sent, and how many gaps it had."""

    sent: float
    gaps: int


class Losses(msgspec.Struct, frozen=True):
    """Who is dead, and which leases of living workers nobody renews."""

    dead: list[WorkerInfo]
    unrenewed: list[Lease]


class Watchman:
    """Watches beats and expired leases from one check to the next."""

    def __init__(self, *, gone: Callable[[WorkerInfo], bool]) -> None:
        self._gone = gone
        # For how many seconds each beat of a worker, and each end of a lease, was seen unmoved.
        self._unmoved: dict[tuple[str, object], float] = {}
        self._checked: float | None = None
        self._gaps = 0

    def check(
        self, me: str, workers: Iterable[WorkerInfo], expired: Sequence[Lease], *, pulse: Pulse, now: float
    ) -> Losses:
        """What this check adds up to; `now` and the pulse are on one clock that only rises."""
        step = self._step(pulse, now)
        others = {(each.id, each.beat): each for each in workers if each.id != me}
        leases = {(each.token, each.until): each for each in expired}
        known = self._unmoved
        # One that moved, or is new, starts at zero.
        silent = {each: known[each] + step if each in known else 0.0 for each in (*others, *leases)}
        self._unmoved = silent
        return Losses(
            [each for of, each in others.items() if silent[of] >= DEAD_AFTER or self._gone(each)],
            [each for of, each in leases.items() if silent[of] >= UNRENEWED_AFTER],
        )

    def _step(self, pulse: Pulse, now: float) -> float:
        """How much silence this check may add to whoever stands still."""
        elapsed = 0.0 if self._checked is None else now - self._checked
        self._checked = now
        if now - pulse.sent > WELL_WITHIN or pulse.gaps != self._gaps:
            self._gaps = pulse.gaps
            self._unmoved = dict.fromkeys(self._unmoved, 0.0)
            return 0.0
        return min(elapsed, MOST_PER_CHECK)
