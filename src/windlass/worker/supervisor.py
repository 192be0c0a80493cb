"""The supervisor: starts workers, and replaces those that die, hang or ask for it."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import msgspec

from windlass.clock import Clock
from windlass.loop import Loop, pause_after
from windlass.worker.children.process_tree import die_with_parent
from windlass.worker.health import Health, expose
from windlass.worker.shell import told_end
from windlass.worker.watch import Box, Hang, Watch, end_tagged, kill, new_box
from windlass.worker.watchdog import tell_hang

log = logging.getLogger("windlass.supervisor")

WRONG_COMMAND_LINE = 2
NO_STORE = 3
# One that died sooner than this after its start died young; so many in a row that never came to work, and
# nothing will fix it. Those that did work may have died of a job, which the store keeps count of.
YOUNG_SECONDS = 10.0
MOST_YOUNG_DEATHS = 5
_LONGEST_PAUSE = 30.0
_LOOK_SECONDS = 0.1
_STALE_SECONDS = 10.0
# What a worker may take beyond the time in which it promises to be gone.
_MARGIN_SECONDS = 5.0
_TELL_SECONDS = 5.0
_CHUNK = 65_536
# Which files are watched, how often, and in which folders not.
_SUFFIXES = (".py", ".toml")
_FILES_SECONDS = 0.5
_OTHERS = frozenset({"node_modules", "__pycache__", "site-packages"})


class Death(NamedTuple):
    """A worker that died: its process, its number among the supervisor's workers, and how it ended."""

    pid: int
    place: int
    code: int
    # The supervisor itself killed it.
    killed_here: bool = False


class Adopted(NamedTuple):
    """A worker that this process has started already, before it became a supervisor."""

    pid: int
    tag: str
    reports: int
    # What it is watched by, see watch.py; -1 if it is not.
    box: int


class Launch(NamedTuple):
    """How a worker's process is started; with the environment and in the folder of this one, if not given."""

    command: Sequence[str]
    environment: Mapping[str, str] | None = None
    folder: Path | None = None


class Calls(NamedTuple):
    """What a supervisor calls."""

    # A worker died; returns whether it had come to work.
    died: Callable[[Death], bool]
    # A worker does not answer, or does so again.
    silent: Callable[[Hang], None] = lambda _: None
    # Asks a worker to drain, and says why; must not wait for the store.
    drain: Callable[[str, str], object] = lambda _, __: None
    # Returns a file for which to restart; with it the supervisor never gives up: the next file may fix it.
    changed: Callable[[], str | None] | None = None


@dataclass(eq=False)
class Supervisor:
    """Starts `count` workers by the same command line and keeps them running until it is asked to stop.

    A worker that says that only a new process helps is replaced: its successor is started first, and when
    that is well, the old one is told to drain. At most one old worker per place lingers: if the next one
    must be replaced as well, the old one is stopped, with the usual grace for its jobs.
    """

    launch: Launch
    count: int
    calls: Calls
    _: KW_ONLY
    exit_after: float
    # A worker that does not answer for so many seconds is killed.
    hang_limit: float | None = None
    # This process does nothing else: every child is ours to reap, and hopeless workers are given up on.
    alone: bool = True
    adopted: Adopted | None = None
    clock: Clock

    begun = True
    restarts = 0
    _asked = False
    _young_deaths = _code = 0

    def __post_init__(self) -> None:
        self._kill_at: float | None = None
        environment = self.launch.environment or os.environ.copy()
        self._launch = self.launch._replace(environment=environment)
        self._places = [_Place(number) for number in range(1, self.count + 1)]
        # By the number of their place: those that shall take over, and those that were taken over from.
        self._heirs: dict[int, _Place] = {}
        self._leaving: dict[int, _Place] = {}
        if self.adopted is not None:
            self._places[0].adopt(self.adopted, self.clock.monotonic(), self.hang_limit)
        # As in Worker: a signal's handler may put to it.
        self._bell: SimpleQueue[None] = SimpleQueue()

    def run(self) -> int:
        """Keep the workers running; the exit code, when all of them are gone."""
        while any(place.pid is not None for place in self._everyone()) or not (
            self._asked or all(place.done for place in self._places)
        ):
            self.look()
            with contextlib.suppress(Empty):
                self._bell.get(timeout=_LOOK_SECONDS)
        return self._code

    def request_stop(self) -> None:
        """Ask for the end; may be called within a signal's handler. Workers may be told more than once."""
        self._asked = True
        for place in self._everyone():
            place.signal(signal.SIGTERM)
        self._bell.put(None)

    def abandon(self) -> None:
        """End every worker at once; may be called within a signal's handler. Their guards end the rest."""
        for place in self._everyone():
            place.signal(signal.SIGKILL)

    @property
    def well(self) -> bool:
        now = self.clock.monotonic()
        return all(place.health(now).ok for place in self._places)

    def released(self) -> Adopted | None:
        """Its only worker, for the next image of this process to adopt; None while others are beside it."""
        [place] = self._places
        return None if self._heirs or self._leaving else place.released()

    def health(self) -> tuple[bool, Any]:
        """Whether every worker is well, and how each one is; those that were replaced need not be."""
        now = self.clock.monotonic()
        places = [place for place in self._places if not place.done]
        ok = bool(places) and all(place.health(now).ok for place in places)
        return ok, {"ok": ok, "restarts": self.restarts, "workers": self.told()}

    def expose(self) -> str:
        return expose(self.told())

    def told(self) -> list[Health]:
        """How each worker is; those that were taken over from come last."""
        now = self.clock.monotonic()
        places = (*self._places, *self._leaving.values())
        return [place.health(now) for place in places if not place.done]

    def _everyone(self) -> list[_Place]:
        return [*self._places, *self._heirs.values(), *self._leaving.values()]

    def look(self) -> None:
        """See who has ended and what the others say, and do what is due."""
        now = self.clock.monotonic()
        for pid, code in _ended([_ANY] if self.alone else [place.pid for place in self._everyone()]):
            for place in self._everyone():
                if place.pid == pid:
                    self._ended(place, code, now)
        for place in self._everyone():
            place.listen(now)
            self._watch(place, now)
        for place in (*self._places, *self._heirs.values()):
            if place.pid is None and not place.done and not self._asked and now >= place.start_at:
                self._start(place, now)
        if self._asked:
            self._see_them_off(now)
            return
        self._replace(now)
        changed = self.calls.changed
        if changed is not None and (path := changed()) is not None:
            self._start_anew(path)

    def _watch(self, place: _Place, now: float) -> None:
        """Has the worker answered? One that holds the interpreter lock cannot even end itself."""
        pid = place.pid
        if pid is not None and place.watch is not None and (found := place.watch.check(now)) is not None:
            hung = found.event == "hung"
            tell_hang(found, {"pid": pid, "place": place.number}, killed=hung)
            self.calls.silent(found)
            if hung:
                place.killed = True
                kill(pid)

    def _replace(self, now: float) -> None:
        """Start a successor for each worker that needs one; the old one drains when the new one is well."""
        for index, place in enumerate(self._places):
            heir = self._heirs.get(place.number)
            if heir is None:
                if place.restart:
                    self._appoint(place, now)
            elif heir.health(now).ok and not place.done:
                self._succeed(index, heir)
                self._leaving[place.number] = place
        for place in self._leaving.values():
            if not place.told.draining and now >= place.tell_at:
                place.tell_at = now + _TELL_SECONDS
                successor = self._places[place.number - 1].pid
                self.calls.drain(place.told.worker, f"process {successor} has taken over")
            if now >= place.kill_at:
                place.kill_at = math.inf
                place.signal(signal.SIGKILL)

    def _appoint(self, place: _Place, now: float) -> None:
        old = self._leaving.get(place.number)
        if old is None:
            self._heirs[place.number] = _Place(place.number)
            log.info(
                "worker.replacing", extra={"pid": place.pid, "place": place.number, "why": place.restart}
            )
        elif old.kill_at == math.inf:
            old.kill_at = now + self.exit_after + _MARGIN_SECONDS
            old.signal(signal.SIGTERM)

    def _succeed(self, index: int, heir: _Place) -> None:
        old = self._places[index]
        del self._heirs[old.number]
        self._places[index] = heir
        self.restarts += 1
        log.info("worker.succeeded", extra={"pid": old.pid, "place": old.number, "successor": heir.pid})

    def _start(self, place: _Place, now: float) -> None:
        try:
            place.start(self._launch, now, self.hang_limit)
        except OSError as error:
            # The machine has no room for another process just now; those that run go on.
            place.failures += 1
            place.start_at = now + pause_after(place.failures, _LONGEST_PAUSE)
            fields = {"place": place.number, "error": str(error), "again_in": place.start_at - now}
            log.warning("worker.not_started", extra=fields)

    def _ended(self, place: _Place, code: int, now: float) -> None:
        """A worker ended: was that its own will, and when shall another take its place?"""
        pid, lived = place.pid, now - place.started
        if pid is None:
            return
        place.ended(code)
        fields = {"pid": pid, "place": place.number, "ending": told_end(code), "lived": round(lived, 1)}
        worked = True
        if code != 0:
            # What it left running ends first: then its jobs may run elsewhere.
            end_tagged(place.tag)
            worked = self.calls.died(Death(pid, place.number, code, killed_here=place.killed))
        if self._leaving.get(place.number) is place:
            del self._leaving[place.number]
            log.info("worker.ended", extra=fields)
        elif code == 0 and not place.anew:
            # It was asked to, by a signal or an operator; so it is not missed.
            self._dismiss(place)
            log.info("worker.ended", extra=fields)
        elif not self._asked:
            self._plan(place, code, lived, now, fields, hopeless=not worked and code != NO_STORE)

    def _dismiss(self, place: _Place) -> None:
        heir = self._heirs.get(place.number)
        if heir is place:
            del self._heirs[place.number]
            return
        place.done = True
        if heir is not None:
            heir.signal(signal.SIGTERM)

    def _plan(
        self, place: _Place, code: int, lived: float, now: float, fields: dict[str, Any], *, hopeless: bool
    ) -> None:
        heir = self._heirs.get(place.number)
        if heir is not None and heir is not place:
            # Its successor is on its way already.
            self._succeed(self._places.index(place), heir)
            return
        young = lived < YOUNG_SECONDS and code != 0
        place.failures = place.failures + 1 if young else 0
        self._young_deaths = self._young_deaths + 1 if young and hopeless and heir is None else 0
        # A file that changed while it failed to begin may have fixed it already.
        anew, place.anew = place.anew, False
        hopeful = anew or heir is place or not self.alone
        if not hopeful and (code == WRONG_COMMAND_LINE or self._young_deaths >= MOST_YOUNG_DEATHS):
            if self.calls.changed is not None:
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
        level = logging.INFO if code == 0 else logging.WARNING
        log.log(level, "worker.restarting", extra=fields | {"again_in": pause, "restarts": self.restarts})

    def _see_them_off(self, now: float) -> None:
        if self._kill_at is None:
            self._kill_at = now + self.exit_after + _MARGIN_SECONDS
            for place in self._everyone():
                place.signal(signal.SIGTERM)
        elif now >= self._kill_at:
            self._kill_at = now + _MARGIN_SECONDS
            log.error("supervisor.kills", extra={"places": [each.number for each in self._everyone()]})
            self.abandon()

    def _start_anew(self, path: str) -> None:
        log.info("supervisor.reloads", extra={"changed": path})
        for heir in self._heirs.values():
            heir.signal(signal.SIGTERM)
        for place in self._places:
            if place.pid is not None and not place.anew:
                place.anew = True
                place.signal(signal.SIGTERM)
            place.done = False
            place.start_at, place.failures = 0.0, 0
        self._young_deaths = 0


class _Place:
    """Where one worker runs, and after it the next."""

    pid: int | None = None
    tag = ""
    started = start_at = 0.0
    failures = 0
    # It ended by its own will; it ends because another shall take its place; or this process killed it.
    done = anew = killed = False
    watch: Watch | None = None
    # It was taken over from: when to tell it again to drain, and when it is killed if it was stopped.
    tell_at = 0.0
    kill_at = math.inf
    # What it has said last, and when; before that it claims nothing.
    told = Health(ok=False, draining=True)
    _told_at: float | None = None
    _process: subprocess.Popen[bytes] | None = None
    _reports = -1
    _heard = b""

    def __init__(self, number: int) -> None:
        self.number = number

    @property
    def restart(self) -> str:
        """Why it wants to be replaced; empty if it does not, or leaves because somebody asked for that."""
        return "" if self.pid is None or self.told.draining else self.told.restart

    def start(self, launch: Launch, now: float, hang_limit: float | None) -> None:
        box = None if hang_limit is None else Box(new_box())
        reports, theirs = os.pipe()
        os.set_blocking(reports, False)
        # The tag is the beginning of all tags of its processes.
        self.tag = secrets.token_hex(8)
        told = Supervised(os.getpid(), self.tag, theirs, None if box is None else box.fd).told()
        inherited = (theirs,) if box is None else (theirs, box.fd)
        try:
            # A group of its own: Ctrl-C comes to the supervisor alone, which passes it on once.
            self._process = subprocess.Popen(
                launch.command,
                env={**(launch.environment or {}), VARIABLE: told},
                cwd=launch.folder,
                pass_fds=inherited,
                process_group=0,
            )
        except BaseException:  # wall: whatever kept it from starting, no pipe is left open
            os.close(reports)
            raise
        finally:
            os.close(theirs)
        self.killed = False
        self._told_at, self.told = None, _Place.told
        self._begin(self._process.pid, reports, box, now, hang_limit)

    def adopt(self, found: Adopted, now: float, hang_limit: float | None) -> None:
        self.tag = found.tag
        self._begin(found.pid, found.reports, Box(found.box) if found.box >= 0 else None, now, hang_limit)

    def _begin(self, pid: int, reports: int, box: Box | None, now: float, hang_limit: float | None) -> None:
        self.pid, self._reports, self.started = pid, reports, now
        self.watch = Watch(pid, box, hang_limit, now) if box is not None and hang_limit is not None else None

    def released(self) -> Adopted | None:
        if self.pid is None:
            return None
        return Adopted(self.pid, self.tag, self._reports, -1 if self.watch is None else self.watch.box.fd)

    def ended(self, code: int) -> None:
        if self._process is not None:
            # Reaped by us and not by it: else it would be missed.
            self._process.returncode = code
        self._process = self.pid = None
        os.close(self._reports)
        self._heard = b""

    def signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            self.killed = self.killed or number == signal.SIGKILL
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def listen(self, now: float) -> None:
        if self.pid is None:
            return
        with contextlib.suppress(BlockingIOError):
            self._heard += os.read(self._reports, _CHUNK)
        *whole, self._heard = self._heard.split(b"\n")
        if whole:
            if self.watch is not None:
                self.watch.hear()
            self._told_at, self.told = now, msgspec.json.decode(whole[-1], type=Health)

    def health(self, now: float) -> Health:
        if self.pid is None or self._told_at is None:
            return Health(ok=False, why="starting" if self.pid else "waits to be started again")
        silent = now - self._told_at
        if silent > _STALE_SECONDS:
            return msgspec.structs.replace(self.told, ok=False, why=f"has said nothing for {silent:.0f} s")
        return self.told


def _ended(only: Iterable[int | None]) -> Iterator[tuple[int, int]]:
    """Those of the processes that ended since the last look; any: also orphans that this one has adopted."""
    for asked in filter(None, only):
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(asked, os.WNOHANG))[0]:
                yield ended[0], os.waitstatus_to_exitcode(ended[1])
                if asked != _ANY:
                    break


_ANY = -1


class Changes:
    """For `--watch`: looks at the times of the application's files below a folder, twice a second."""

    def __init__(self, folder: Path, monotonic: Callable[[], float]) -> None:
        self._folder = folder
        self._monotonic = monotonic
        self._looked = monotonic()
        self._seen = dict(_files(str(folder)))

    def __call__(self) -> str | None:
        """A file that is new, gone or changed since the last look; None if there is none."""
        now = self._monotonic()
        if now - self._looked < _FILES_SECONDS:
            return None
        self._looked = now
        before, self._seen = self._seen, dict(_files(str(self._folder)))
        return next((path for path, _ in sorted(before.items() ^ self._seen.items())), None)


def _files(folder: str) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in _OTHERS:
                    yield from _files(entry.path)
            elif entry.name.endswith(_SUFFIXES):
                yield entry.path, entry.stat().st_mtime_ns
        except OSError:
            continue


# The supervisor's process, the tag that it ends this worker's processes by, and where reports go.
VARIABLE = "WINDLASS_SUPERVISED"
EVERY = timedelta(seconds=1)


class Supervised(msgspec.Struct, frozen=True):
    """What a supervisor has given this process."""

    supervisor: int
    tag: str
    reports: int
    # What it watches this process by, if it does; see watch.py.
    box: int | None = None

    def told(self) -> str:
        box = "" if self.box is None else f":{self.box}"
        return f"{self.supervisor}:{self.tag}:{self.reports}{box}"

    def report(self, health: Callable[[], Health]) -> Loop:
        def tick() -> None:
            try:
                os.write(self.reports, msgspec.json.encode(health()) + b"\n")
            except BlockingIOError:
                return
            except OSError:
                # Where the system does not end us with our supervisor, this is how we learn of it.
                os._exit(1)

        return Loop("report", tick, every=EVERY)


def take_up() -> Supervised | None:
    """Whether this process has a supervisor; from now on it dies with it. Jobs do not inherit that."""
    told = os.environ.pop(VARIABLE, None)
    if told is None:
        return None
    # A supervisor that was started by an older release gives no box.
    supervisor, tag, reports, *box = told.split(":")
    found = Supervised(int(supervisor), tag, int(reports), int(box[0]) if box else None)
    for number in (found.reports, *(() if found.box is None else (found.box,))):
        os.set_inheritable(number, False)  # noqa: FBT003 - it takes no keyword
    die_with_parent(found.supervisor)
    os.set_blocking(found.reports, False)
    return found
