"""The program of a child process: it runs one handler after the other for a worker."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import faulthandler
import inspect
import itertools
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime, timedelta
from functools import partial
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

import msgspec

from windlass import connect, errors
from windlass.clock import SystemClock
from windlass.context import Backend, Context, Notice, OnceStep, Stopping
from windlass.job import Job, Keep, Lease
from windlass.observe import tracing
from windlass.origin import Origin, find, load_main
from windlass.outcome import Raised, failure
from windlass.policy import Rules
from windlass.registry import Handler, Options, make_handler
from windlass.store.engine import Settlement
from windlass.store.running import Transacting
from windlass.worker.children import messages
from windlass.worker.children.messages import Forward
from windlass.worker.children.process_tree import adopt_orphans, die_with_parent, limited
from windlass.worker.run import kept, returned

log = logging.getLogger("windlass.child")

_job = msgspec.json.Decoder(Job)


def main(parent: int, link: int) -> None:
    """The child's whole life; `link` is the number of the socket that leads to the worker."""
    die_with_parent(parent)
    adopt_orphans()
    os.set_inheritable(link, False)  # noqa: FBT003 - it takes no keyword
    faulthandler.enable(all_threads=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=link) as made:
        os.register_at_fork(after_in_child=made.close)
        Program(made).run()


class Program:
    """Runs jobs on the main thread; if they have contexts, another one listens to the worker meanwhile."""

    # Whether a signal may break the main thread off, and whether one waits until it may.
    _open = _struck = False
    _undisturbed = 0
    _task: asyncio.Task[Any] | None = None

    def __init__(self, link: socket.socket) -> None:
        self._mouth = messages.Mouth(link)
        self._ear = messages.Ear(link)
        self._process = os.getpid()
        self._main = threading.main_thread()
        self._clock = SystemClock()
        self._inbox: SimpleQueue[messages.Work | None] = SimpleQueue()
        self._asking = Asking(self._say)
        self._notice = Notice()
        self._handlers: dict[str, Handler] = {}
        self._rules: dict[str, Rules | None] = {}
        self._runner = asyncio.Runner()
        self.forward = Forward(self._say)

    def run(self) -> None:
        incoming = self._messages()
        hello = next(incoming)
        assert isinstance(hello, messages.Hello)  # noqa: S101 - always the first word
        try:
            self._import(hello)
        except BaseException as error:  # noqa: BLE001 # wall: the application's own code runs at import
            described = failure(error).error
            self._say(messages.Unfit(described.traceback or f"{described.kind}: {described.message}"))
            return
        self._say(messages.Ready())
        for work in self._works(incoming):
            self._do(work)
        self._asking.close()
        self._runner.close()

    # --- on the main thread ---

    def _works(self, incoming: Iterator[messages.FromWorker]) -> Iterator[messages.Work]:
        """Job after job, until the worker says no more.

        A handler without a context hears nothing while it runs: it is stopped by a signal, and ends with its
        worker by the system and the guard. So the main thread listens by itself, which spares each job a hop
        between threads, until the first job comes that has one.
        """
        for message in incoming:
            if not isinstance(message, messages.Work):
                continue
            if message.job is not None:
                self._receive(message)
                listen = partial(self._listen, incoming)
                threading.Thread(target=listen, name="windlass-listen", daemon=True).start()
                break
            yield message
        else:
            return
        while (work := self._inbox.get()) is not None:
            yield work

    def _import(self, hello: messages.Hello) -> None:
        self.forward.install(hello.levels)
        if hello.main is not None:
            load_main(hello.main)
        self._handlers = {name: handler_at(origin, name) for name, origin in hello.types.items()}
        self._rules = {name: self._rules_of(name, origin) for name, origin in hello.rules.items()}
        # The application may have set up logging of its own.
        self.forward.install(hello.levels)

    def _rules_of(self, name: str, origin: Origin | None) -> Rules | None:
        """The function that a type asks about exceptions: its handler's own here, or what is imported."""
        handler = self._handlers.get(name)
        if handler is not None and callable(handler.policy.rules):
            return handler.policy.rules
        try:
            rules: Rules | None = None if origin is None else find(origin)
        except (ImportError, AttributeError):
            rules = None
        if rules is None:
            note = "define the function at a module's top level; defaults hold"
            log.warning("rules.not_found", extra={"type": name, "note": note})
        return rules

    def _do(self, work: messages.Work) -> None:
        self.forward.fields = work.fields
        if signal.getsignal(signal.SIGTERM) != self._strike:
            signal.signal(signal.SIGTERM, self._strike)
        try:
            message = self._result(work)
        except BaseException as error:  # noqa: BLE001 # wall: a stop may strike between two steps of ours
            message = self._broke(error, work)
        self._open = False
        self.forward.fields = {}
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        self._say(message)

    def _result(self, work: messages.Work) -> messages.Finished | messages.Broke:
        handler = self._handlers[work.type]
        try:
            payload = handler.signature.decode(work.payload)
            if handler.signature.context is not None:
                payload[handler.signature.context] = self._context(work, handler)
            with limited(work.memory, work.cpu_time):
                with tracing.under(work.span):
                    value = self._call(handler, payload)
                kept = returned(value, work.keep)
        except BaseException as error:  # noqa: BLE001 # wall: nothing that a handler raises may end its child
            return self._broke(error, work)
        if isinstance(kept, Raised):
            return self._broke(kept.exception, work)
        return messages.Finished(kept.value, kept.missing)

    def _broke(self, error: BaseException, work: messages.Work) -> messages.Broke:
        no_memory = work.memory is not None and issubclass(type(error), MemoryError)
        return messages.Broke(failure(error, self._rules.get(work.type), work.fields), no_memory)

    def _call(self, handler: Handler, payload: dict[str, Any]) -> Any:
        self._struck = False
        self._open = True
        try:
            if inspect.iscoroutinefunction(handler.function):
                # In the context of this moment, which may carry a span, and not in that of the first job.
                here = contextvars.copy_context()
                return self._runner.run(self._carried(handler.function(**payload)), context=here)
            return handler.function(**payload)
        finally:
            self._open = False
            self._task = None
            if os.getpid() != self._process:
                # The handler forked, and let the copy return.
                os._exit(0)

    async def _carried(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        self._task = asyncio.current_task()
        return await coroutine

    def _context(self, work: messages.Work, handler: Handler) -> Context:
        job = _job.decode(work.job or b"")
        self._asking.keep = work.keep
        ends = self._clock.monotonic() + work.seconds
        return Context(
            job,
            self._notice,
            deadline=work.deadline or job.updated_at,
            ends=ends,
            clock=self._clock,
            worker=self._asking,
            check_draft=handler.check_draft,
        )

    def _strike(self, _: int, __: FrameType | None) -> None:
        """SIGTERM: break the handler off, unless it is in the middle of a word of ours."""
        if not self._open:
            return
        if self._undisturbed:
            self._struck = True
        elif self._task is not None:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)
        else:
            self._open = False
            raise Stopping

    def _say(self, message: messages.FromChild) -> None:
        """Send a message whole: one that a signal tore in two would make everything after it unreadable."""
        on_main = threading.current_thread() is self._main
        self._undisturbed += on_main
        try:
            self._mouth.say(message)
        except OSError:
            self._end()
        finally:
            self._undisturbed -= on_main
        if on_main and self._struck and not self._undisturbed:
            self._struck = False
            self._strike(signal.SIGTERM, None)

    # --- on the listening thread ---

    def _listen(self, incoming: Iterator[messages.FromWorker]) -> None:
        for message in incoming:
            if isinstance(message, messages.Work):
                self._receive(message)
            elif isinstance(message, messages.Told):
                notice = self._notice
                notice.lose() if message.lease_lost else notice.give()
            elif isinstance(message, messages.Answered):
                self._asking.hear(message)
        self._inbox.put(None)
        if self._open:
            self._end()

    def _receive(self, work: messages.Work) -> None:
        self._notice = Notice()
        self._inbox.put(work)

    def _messages(self) -> Iterator[messages.FromWorker]:
        with contextlib.suppress(EOFError, OSError):
            while True:
                for body in self._ear.listen():
                    yield messages.from_worker.decode(body)

    def _end(self) -> None:
        """The worker is gone: nothing that was begun for it goes on."""
        with contextlib.suppress(OSError):
            if os.getpgrp() == self._process:
                os.killpg(self._process, signal.SIGKILL)
        os._exit(1)


def handler_at(origin: Origin, name: str) -> Handler:
    """The handler of a type, from what stands at its origin: decorated there, or a plain function."""
    found = find(origin)
    each = found
    while each is not None:
        handler = getattr(each, "handler", None)
        if isinstance(handler, Handler) and handler.name == name:
            return handler
        each = getattr(each, "__wrapped__", None)
    return make_handler(inspect.unwrap(found), Options(name=name))


# A transaction holds locks while its worker is asked what to write; one that is frozen never answers.
_MOST_SECONDS = 5.0


def _asks(verb: messages.Verb) -> Callable[..., None]:
    """What has no answer but that it is done."""

    def ask(self: Asking, *arguments: Any) -> None:
        self._ask(verb, *arguments)

    return ask


class Asking(Backend):
    """In the child: what its context asks for, one question a call. Each waits for its answer."""

    remote = True

    def __init__(self, say: Callable[[messages.FromChild], None]) -> None:
        self._say = say
        self._numbers = itertools.count(1)
        self._open: dict[int, SimpleQueue[messages.Answered]] = {}
        self._stores: dict[str, Transacting] = {}
        # Whether the present job's result is kept.
        self.keep: Keep = True

    def hear(self, answer: messages.Answered) -> None:
        waiting = self._open.get(answer.number)
        if waiting is not None:
            waiting.put(answer)

    def close(self) -> None:
        """Let go of the connections; no job runs any more."""
        for store in self._stores.values():
            store.close()

    # On a connection of this process; the worker says what completes the job, and hears that it is.

    def lend(self) -> tuple[Transacting, timedelta]:
        lent: tuple[str, timedelta] = self._ask("lend_address", kind=tuple[str, timedelta])
        address, within = lent
        if address not in self._stores:
            self._stores[address] = connect.handlers(address)
        return self._stores[address], within

    def completion(self) -> Settlement:
        found = self._ask("tell_completion", kind=messages.Completion, most=_MOST_SECONDS)
        return Settlement(msgspec.json.decode(found.lease, type=Lease), *found[1:])

    def committed(self) -> None:
        self._ask("committed")

    def undone(self) -> None:
        self._ask("undone")

    def keep_result(self, value: Any) -> None:
        self._ask("keep", kept(value, self.keep))

    enqueue = _asks("enqueue")
    progress = _asks("progress")

    def extend(self, seconds: float) -> tuple[float, datetime] | None:
        found: tuple[float, datetime] | None = self._ask(
            "extend", seconds, kind=tuple[float, datetime] | None
        )
        return found

    def once(self, key: str, step: OnceStep) -> str:
        return str(self._ask("once", key, step))

    def _ask(self, verb: messages.Verb, *arguments: Any, kind: Any = Any, most: float | None = None) -> Any:
        number = next(self._numbers)
        waiting = self._open[number] = SimpleQueue()
        try:
            raw = tuple(msgspec.Raw(messages.encode(each)) for each in arguments)
            self._say(messages.Asked(number, verb, raw))
            answer = waiting.get(timeout=most)
        except Empty:
            raise errors.StoreUnavailable(f"the worker has not answered for {most} s; try again") from None
        finally:
            del self._open[number]
        if answer.error:
            # What the worker met, as its own context would have raised it.
            kind = getattr(errors, answer.error, errors.Refused)
            error: Exception = kind.__new__(kind)
            Exception.__init__(error, answer.message)
            raise error
        return msgspec.msgpack.decode(answer.value, type=kind)
