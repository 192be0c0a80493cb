"""The process of a command that stays: signals, exit, restart."""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import FrameType
from typing import Protocol

import click
import msgspec

from windlass import connect
from windlass.cli.logs import STDERR, log_to_stderr, write
from windlass.cli.session import Session
from windlass.config import WorkerConfig
from windlass.ops.bulk import carrying
from windlass.queue import Queue
from windlass.registry import SHELL
from windlass.store.store import Store
from windlass.worker.health import Health, HealthAddress, StoreWait, expose
from windlass.worker.supervisor import Supervised
from windlass.worker.watchdog import Watched
from windlass.worker.worker import Remaining, Worker, within

# As Python has it: this is loaded before the application. And as we have it: jobs come and go with a dozen
# objects each, and the search takes a tenth of a no-op job.
_USUAL = gc.get_threshold()
_RARELY = 5_000


def collect_rarely() -> None:
    """Search for garbage less often, and not in what is loaded by now, unless somebody has set that."""
    if gc.isenabled() and gc.get_threshold() == _USUAL:
        gc.collect()
        gc.freeze()
        gc.set_threshold(_RARELY)


log = logging.getLogger("windlass.worker")

# Before any job changes the folder.
_PYTHON = str(Path(sys.executable).absolute())


def work_here(
    here: Session,
    queue: Queue,
    *,
    until_empty: bool = False,
    address: tuple[str, int] | None = None,
    supervised: Supervised | None = None,
    succession: Callable[[Worker], Succession] | None = None,
    started: Callable[[Worker], None] = lambda _: None,
) -> Remaining | None:
    """Be a worker until a signal, an operator or, if asked, an empty queue ends it.

    `succession` makes what starts a new process when only that helps; a supervisor does so by itself.
    """
    connect.check_direct(queue.url, "a worker")
    config = msgspec.structs.replace(chosen(here), tag=supervised.tag if supervised else None)
    log_to_stderr(as_json=here.log_json, verbose=here.verbose)
    arrival = StoreWait()
    # How this process is: first while it waits for its store, then as a worker.
    tells = [arrival.health]

    def health() -> Health:
        return tells[-1]()

    if address is not None:
        HealthAddress(address, lambda: ((told := health()).ok, told), lambda: expose([health()])).start()
    if supervised is not None:
        supervised.report(health).start()
    # A server may come up after its workers; a file is there or can be made, and a single pass waits for
    # nothing. A URL that is wrong, or a driver that is missing, is told here and at once.
    waits = connect.is_postgres(connect.shown(queue.url)) and not until_empty
    store = arrival.await_store(lambda: queue.store) if waits else queue.store
    box = supervised.box if supervised else None
    config = with_shell(config, queue, store)
    watched = Watched(box, expendable=here.own_process, log_json=here.log_json)
    worker = Worker(store, queue.wakeup, queue.registry, config, watched=watched)
    if not worker.types:
        raise click.UsageError("there is nothing to serve: name an APP, or say --shell for shell jobs")
    tells.append(worker.health)
    signals.serve(worker)
    here.works = True
    if here.own_process:
        _be_gone_in_time(worker, config.exit_after.total_seconds(), ends_by_itself=until_empty)
        collect_rarely()
    with carrying(store, queue.wakeup):
        if until_empty:
            started(worker)
            return worker.run_until_empty()
        if succession is None or not here.own_process:
            started(worker)
            worker.run()
            return None
        successor = succession(worker)
        tells.append(successor.health)
        signals.serve(successor)
        started(worker)
        worker.run(successor.look, successor.may_go)
        successor.end()
    return None


def restart_process(here: Session, more: Mapping[str, str] | None = None) -> None:
    """Replace this process by a new one of the same number, where and with what it was started.

    Returns only if a signal has come, which must end this process, or if the system refuses.
    """
    within(_FAREWELL_SECONDS, _farewell, "farewell")
    with contextlib.suppress(OSError):
        os.chdir(here.folder or ".")
    # A signal that comes from here on waits for the new process, which lets it through in `signals.obey`.
    signal.pthread_sigmask(signal.SIG_BLOCK, _NUMBERS)
    if not signals.first:
        try:
            os.execve(_PYTHON, command_line(here), {**here.environment, **(more or {})})  # noqa: S606 - no shell is wanted
        except OSError as error:
            log.error("worker.not_replaced", extra={"error": str(error)})  # noqa: TRY400 - its message says all
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _NUMBERS)


def command_line(here: Session) -> list[str]:
    """What starts this very command once more."""
    return [_PYTHON, "-m", "windlass", *here.arguments]


class _Obedient(Protocol):
    """Whoever can be ended by signals, once it has begun; the second one ends the process at once."""

    @property
    def begun(self) -> bool: ...
    def request_stop(self) -> None: ...
    def abandon(self) -> None: ...


class Succession:
    """Starts a new process for a worker that needs one. Signals go to both."""

    def __init__(self, here: Session, worker: Worker) -> None:
        self._here = here
        self._worker = worker

    @property
    def begun(self) -> bool:
        """Whether there is anything to shut down yet."""
        return self._worker.begun

    def request_stop(self) -> None:
        """The worker ends, with the usual grace for its jobs."""
        self._worker.request_stop()

    def abandon(self) -> None:
        """The same at once."""
        self._worker.abandon()

    def look(self) -> None:
        """See how the worker and its successor are."""
        raise NotImplementedError

    def may_go(self) -> bool:
        """Whether a worker that has retired may leave yet."""
        return True

    def health(self) -> Health:
        """The health of the process that claims jobs."""
        return self._worker.health()

    def end(self) -> None:
        """The worker has ended: start the new process, or see it off if a signal ended both."""
        raise NotImplementedError


def leave(here: Session, code: int = 0) -> None:
    """End this process, if it is a worker's, without the interpreter's farewell: that waits for every thread.

    What handlers leave behind may never end: a thread in a sleep, a coroutine that swallows its cancellation.
    """
    if here.own_process and here.works:
        within(_FAREWELL_SECONDS, _farewell, "farewell")
        os._exit(code)


def _farewell() -> None:
    """What the application has registered for the exit, and what it has printed."""
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no other way to have it run within a time
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()


def _be_gone_in_time(worker: Worker, seconds: float, *, ends_by_itself: bool) -> None:
    """Whatever holds up the ending, such as a hook for the stop, the process is gone by its time."""

    def wait_and_go() -> None:
        worker.stopping.wait()
        threading.Event().wait(seconds)
        worker.abandon()
        os._exit(signals.code if ends_by_itself else 0)

    threading.Thread(target=wait_and_go, name="windlass-last-resort", daemon=True).start()


def with_shell(config: WorkerConfig, queue: Queue, store: Store) -> WorkerConfig:
    """Whether shell jobs run, where nobody said: a user who may write the file is one of this machine."""
    if config.shell is not None:
        return config
    if queue.shell:
        return msgspec.structs.replace(config, shell=True)  # noqa: S604 - the app says so
    why = None
    if connect.is_postgres(queue.url):
        why = "the store is a database that other machines may write to"
    elif store.api_keys():
        why = "the store has API keys"
    if why is not None:
        log.info("worker.no_shell", extra={"note": f"shell jobs are not run: {why}; --shell runs them"})
    return msgspec.structs.replace(config, shell="local" if why is None else False)


def chosen(here: Session) -> WorkerConfig:
    """Shell jobs are a type like any other: a choice of types that leaves them out leaves them out."""
    config = here.config.worker()
    if config.types and not any(fnmatchcase(SHELL, pattern) for pattern in config.types):
        config = msgspec.structs.replace(config, shell=False)
    return config


class Signals:
    """The first signal begins the shutdown, a second one ends the process at once.

    A hangup only ever begins it: when a terminal is closed, the kernel and the shell both send one, and
    a session's manager may send SIGTERM as well.
    As long as the worker has not begun there is nothing to shut down: then the first one is the end.
    """

    _process: int | None = None
    _worker: _Obedient | None = None
    # The signal that came first; and whether the next one ends the process at once.
    first = 0
    _warned = _patient = _ends_by_itself = False
    _masks = threading.local()

    def obey(self, *, supervised: bool = False, adopts: bool = False, ends_by_itself: bool = False) -> None:
        """From now on a signal ends this process as it ends a worker; call it before anything that may wait.

        Where a process `ends_by_itself`, a signal before its work has begun shows in the exit code.
        One that has a supervisor is never forced by a second signal: a stop may reach it twice, such as a
        reload and then Ctrl-C, and the supervisor kills whom it wants gone at once. One that adopts a worker
        from its former image would take it along: there, signals wait until they can be passed on.
        """
        self._process = os.getpid()
        self._worker = None
        self._warned, self.first = False, 0
        self._patient = supervised
        self._ends_by_itself = ends_by_itself
        for number in _NUMBERS:
            # nohup: a process that was started to outlive its terminal does.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._came)
        # `restart_process` keeps them back for the new process.
        if not adopts:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _NUMBERS)

    @property
    def code(self) -> int:
        """The exit code for the signal that began the end, as shells have it; 0 if none came."""
        return _SIGNALLED + self.first if self.first else 0

    def serve(self, worker: _Obedient) -> None:
        """Signals go to this one from now on."""
        self._worker = worker
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _NUMBERS)

    def before_fork(self) -> None:
        """A signal that comes to a child before it is one of its own would be lost: let it wait."""
        self._masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _NUMBERS if self._process else ())

    def after_fork_in_parent(self) -> None:
        """What waited comes."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.before)

    def after_fork_in_child(self) -> None:
        """A child that a handler made is no worker: it ends by signals as any other process does."""
        if self._process is not None:
            self._process = None
            # Its signals are not this worker's.
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
                signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.before)

    def _came(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A fork that Python was not told of.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif self._worker is None or not self._worker.begun:
            os._exit(_SIGNALLED + number if self._ends_by_itself else 0)
        elif self._warned and number != signal.SIGHUP:
            if self._patient:
                return
            self._worker.abandon()
            # Without the interpreter's own farewell, which would wait for threads.
            os._exit(_SIGNALLED + number)
        else:
            self.first = self.first or number
            self._warned = self._warned or number != signal.SIGHUP
            if number == signal.SIGINT:
                write(STDERR, b"\n", 0.0)
            self._worker.request_stop()


_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
signals = Signals()
os.register_at_fork(
    before=signals.before_fork,
    after_in_parent=signals.after_fork_in_parent,
    after_in_child=signals.after_fork_in_child,
)

_SIGNALLED = 128
_FAREWELL_SECONDS = 2.0
