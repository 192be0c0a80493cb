"""Who keeps N workers running? A process that starts them, and starts again what dies."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from windlass.clock import Clock
from windlass.loop import pause_after
from windlass.worker.children import tree
from windlass.worker.command import told_end
from windlass.worker.exposing import expose
from windlass.worker.health import Health
from windlass.worker.supervised import VARIABLE, Supervised

log = logging.getLogger("windlass.supervisor")

# A worker that asks to be started anew, such as one whose threads do not end.
RESTART = 75
WRONG_COMMAND_LINE = 2
NO_STORE = 3
# One that died sooner than this after its start died young; so many in a row that never came to work, and
# nothing will mend it. Those that did work may have died of a job, which the store keeps count of.
YOUNG_SECONDS = 10.0
MOST_YOUNG_DEATHS = 5
_LONGEST_PAUSE = 30.0
_LOOK_SECONDS = 0.1
_STALE_SECONDS = 10.0
# What a worker may take beyond the time in which it promises to be gone.
_MARGIN_SECONDS = 5.0
_CHUNK = 65_536


class Supervisor:
    """Starts `count` workers by the same command line and keeps them running until it is asked to stop."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        *,
        exit_after: float,
        died: Callable[[int], bool],
        changed: Callable[[], str | None] | None = None,
        environment: Mapping[str, str] | None = None,
        clock: Clock,
    ) -> None:
        """`died` is told the number of a worker that died, and answers whether it had come to work.

        `changed` tells of a file to start anew for; with it nothing is given up: the next one may mend it.
        """
        self._command = list(command)
        self._places = [_Place(number) for number in range(1, count + 1)]
        self._exit_after = exit_after
        self._died = died
        self._changed = changed
        self._environment = {**os.environ, **(environment or {})}
        self._clock = clock
        # As in Worker: a signal's handler may put to it.
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._asked = False
        self._kill_at: float | None = None
        self._young_deaths = 0
        self._code = 0
        self.begun = True
        self.restarts = 0

    def run(self) -> int:
        """Keep the workers running; the exit code, when all of them are gone."""
        while not self._over():
            self._look()
            with contextlib.suppress(Empty):
                self._bell.get(timeout=_LOOK_SECONDS)
        return self._code

    def request_stop(self) -> None:
        """Ask for the end; may be called within a signal's handler."""
        self._asked = True
        self._bell.put(None)

    def abandon(self) -> None:
        """End every worker at once; may be called within a signal's handler. Their guards end the rest."""
        for place in self._places:
            place.signal(signal.SIGKILL)

    def health(self) -> tuple[bool, Any]:
        """Whether every worker is well, and how each one is."""
        told = self._told()
        ok = bool(told) and all(each.ok for each in told)
        return ok, {"ok": ok, "restarts": self.restarts, "workers": told}

    def expose(self) -> str:
        """The metrics of its workers."""
        return expose(self._told())

    def _told(self) -> list[Health]:
        now = self._clock.monotonic()
        return [place.health(now) for place in self._places if not place.done]

    def _over(self) -> bool:
        return all(place.process is None for place in self._places) and (
            self._asked or all(place.done for place in self._places)
        )

    def _look(self) -> None:
        now = self._clock.monotonic()
        for pid, code in _ended():
            for place in self._places:
                if place.process is not None and place.process.pid == pid:
                    self._bury(place, code, now)
        for place in self._places:
            place.listen(now)
            if place.process is None and not place.done and not self._asked and now >= place.start_at:
                self._start(place, now)
        if self._asked:
            self._see_them_off(now)
        elif self._changed is not None and (path := self._changed()) is not None:
            self._start_anew(path)

    def _start(self, place: _Place, now: float) -> None:
        try:
            place.start(self._command, self._environment, now)
        except OSError as error:
            # The machine has no room for another process just now; those that run go on.
            place.failures += 1
            place.start_at = now + pause_after(place.failures, _LONGEST_PAUSE)
            fields = {"place": place.number, "error": str(error), "again_in": place.start_at - now}
            log.warning("worker.not_started", extra=fields)

    def _bury(self, place: _Place, code: int, now: float) -> None:
        """A worker ended: was that its own will, and when shall another take its place?"""
        process, lived = place.process, now - place.started
        if process is None:
            return
        place.bury(code)
        fields = {
            "pid": process.pid,
            "place": place.number,
            "ending": told_end(code),
            "lived": round(lived, 1),
        }
        if code == 0 and not place.anew:
            # It was asked to, by a signal or an operator; so it is not missed.
            place.done = True
            log.info("worker.ended", extra=fields)
            return
        worked = True
        if code not in (0, RESTART):
            # What it left running ends first: then its jobs may run elsewhere.
            tree.end_marked(place.mark)
            worked = self._died(process.pid)
        if not self._asked:
            self._plan(place, code, lived, now, fields, hopeless=not worked and code != NO_STORE)

    def _plan(
        self, place: _Place, code: int, lived: float, now: float, fields: dict[str, Any], *, hopeless: bool
    ) -> None:
        young = lived < YOUNG_SECONDS and code not in (0, RESTART)
        place.failures = place.failures + 1 if young else 0
        self._young_deaths = self._young_deaths + 1 if young and hopeless else 0
        # A file that changed while it failed to begin may have mended it already.
        anew, place.anew = place.anew, False
        if not anew and (code == WRONG_COMMAND_LINE or self._young_deaths >= MOST_YOUNG_DEATHS):
            if self._changed is not None:
                place.start_at = math.inf
                log.warning("supervisor.waits_for_change", extra=fields)
                return
            log.error("supervisor.gives_up", extra=fields | {"deaths": self._young_deaths})
            self._code = WRONG_COMMAND_LINE if code == WRONG_COMMAND_LINE else 1
            self.request_stop()
            return
        pause = pause_after(place.failures, _LONGEST_PAUSE) if young else 0.0
        place.start_at = now + pause
        self.restarts += 1
        level = logging.INFO if code in (0, RESTART) else logging.WARNING
        log.log(level, "worker.restarting", extra=fields | {"again_in": pause, "restarts": self.restarts})

    def _see_them_off(self, now: float) -> None:
        if self._kill_at is None:
            self._kill_at = now + self._exit_after + _MARGIN_SECONDS
            for place in self._places:
                place.signal(signal.SIGTERM)
        elif now >= self._kill_at:
            self._kill_at = now + _MARGIN_SECONDS
            log.error("supervisor.kills", extra={"places": [each.number for each in self._places]})
            self.abandon()

    def _start_anew(self, path: str) -> None:
        log.info("supervisor.reloads", extra={"changed": path})
        for place in self._places:
            if place.process is not None and not place.anew:
                place.anew = True
                place.signal(signal.SIGTERM)
            place.done = False
            place.start_at, place.failures = 0.0, 0
        self._young_deaths = 0


class _Place:
    """Where one worker runs, and after it the next."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.mark = ""
        self.started = 0.0
        self.start_at = 0.0
        self.failures = 0
        # It ended by its own will; or it ends because another shall take its place.
        self.done = False
        self.anew = False
        self._reports = -1
        self._heard = b""
        self._last: tuple[float, Health] | None = None

    def start(self, command: Sequence[str], environment: Mapping[str, str], now: float) -> None:
        reports, theirs = os.pipe()
        os.set_blocking(reports, False)
        # The mark is the beginning of all marks of its processes.
        self.mark = secrets.token_hex(8)
        told = Supervised(os.getpid(), self.mark, theirs).told()
        try:
            # A group of its own: Ctrl-C comes to the supervisor alone, which passes it on once.
            self.process = subprocess.Popen(
                command, env={**environment, VARIABLE: told}, pass_fds=(theirs,), process_group=0
            )
        except BaseException:  # wall: whatever kept it from starting, no pipe is left open
            os.close(reports)
            raise
        finally:
            os.close(theirs)
        self._reports = reports
        self.started = now
        self._last = None

    def bury(self, code: int) -> None:
        if self.process is not None:
            # Reaped by us and not by it: else it would be missed.
            self.process.returncode = code
        self.process = None
        os.close(self._reports)
        self._heard = b""

    def signal(self, number: signal.Signals) -> None:
        process = self.process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def listen(self, now: float) -> None:
        """Take in what the worker tells of itself."""
        if self.process is None:
            return
        with contextlib.suppress(BlockingIOError):
            self._heard += os.read(self._reports, _CHUNK)
        *whole, self._heard = self._heard.split(b"\n")
        if whole:
            self._last = (now, msgspec.json.decode(whole[-1], type=Health))

    def health(self, now: float) -> Health:
        if self.process is None or self._last is None:
            return Health(ok=False, why="starting" if self.process else "waits to be started again")
        at, told = self._last
        if now - at > _STALE_SECONDS:
            return msgspec.structs.replace(told, ok=False, why=f"has said nothing for {now - at:.0f} s")
        return told


def _ended() -> list[tuple[int, int]]:
    """Whoever ended since the last look; also orphans, if this process is the one who adopts them."""
    found: list[tuple[int, int]] = []
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            found.append((pid, os.waitstatus_to_exitcode(status)))
    return found
