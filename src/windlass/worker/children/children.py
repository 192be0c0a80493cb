"""Which children does a worker have, and which one runs the next job?"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from windlass.origin import MAIN, main_here, origin_of
from windlass.worker.children import messages
from windlass.worker.children.child import Child, ChildFailed
from windlass.worker.children.messages import levels
from windlass.worker.children.process_tree import OomWatch
from windlass.worker.run import Env, Run
from windlass.worker.watchdog import Guard

log = logging.getLogger("windlass.children")

_LEAST_SUSPECTS = 2
_LOOK_SECONDS = 0.1

_encode_job = msgspec.json.Encoder().encode


class Children:
    """Warm processes, kept between jobs; in those of suspects nothing else ever runs."""

    def __init__(self, env: Env, tags: Iterator[str], guard: Guard) -> None:
        self._handlers = env.handlers
        self._most_jobs = env.config.child_jobs
        self._most_grown = env.config.child_growth
        self._tags = tags
        self._guard = guard
        self._clock = env.clock
        self.oom = OomWatch()
        self._owner = os.getpid()
        self._lock = threading.Lock()
        # Those of suspects apart.
        self._idle: dict[bool, list[Child]] = {False: [], True: []}
        # As many suspects as there are slots, with a process each, would be more than a machine bears.
        self._most_suspects = max(_LEAST_SUSPECTS, env.config.processes)
        self._suspects = 0
        self._waiting_suspects = 0
        self._suspect_left = threading.Condition()
        self._all: set[Child] = set()
        # One thread begins every child: the system ends a child with the thread that began it.
        self._spawner = ThreadPoolExecutor(1, "windlass-spawner")
        self._closed = False

    @contextlib.contextmanager
    def one_for(self, run: Run) -> Iterator[Child]:
        """A child for this run alone; afterwards it is kept if it is fit. ChildFailed if none starts."""
        with self._room_for_suspect(run) if run.suspect else contextlib.nullcontext():
            child = self._take(suspect=run.suspect)
            try:
                yield child
            except BaseException:  # wall: a child that was left in the middle of a job is fit for no other
                self._end(child)
                raise
            self._give_back(child, suspect=run.suspect)

    def work(self, run: Run) -> messages.Work:
        job, handler = run.lease.job, run.handler
        wanted = handler.signature.context is not None
        return messages.Work(
            type=job.type,
            payload=bytes(run.payload),
            job=_encode_job(job) if wanted else None,
            deadline=run.store_time(run.ends) if wanted else None,
            seconds=run.timeout.total_seconds(),
            memory=handler.memory,
            cpu_time=None if handler.cpu_time is None else handler.cpu_time.total_seconds(),
            keep=handler.result,
            fields=run.lease.fields,
            span=None if run.trace is None else run.trace.parent,
        )

    def kill_all(self) -> None:
        """End every child at once; takes no lock, so that a signal's handler may ask."""
        if self._owner == os.getpid():
            for child in tuple(self._all):
                child.kill()

    def close(self) -> None:
        """Let idle children end by themselves, all at once; whatever runs in others is ended."""
        with self._lock:
            self._closed = True
            idle = [*self._idle[False], *self._idle[True]]
            self._idle = {False: [], True: []}
        for child in idle:
            child.bid_farewell()
        for child in idle:
            self._dismiss(child)
        for child in tuple(self._all):
            self._end(child)
        # By now nobody is left who would die of it.
        self._spawner.shutdown(wait=False)

    @contextlib.contextmanager
    def _room_for_suspect(self, run: Run) -> Iterator[None]:
        """Wait until few enough suspects run; ChildFailed if nobody waits for this one any more."""
        with self._suspect_left:
            self._waiting_suspects += 1
            try:
                while self._suspects >= self._most_suspects:
                    if self._closed or not run.open:
                        raise ChildFailed("it was given back")
                    self._suspect_left.wait(_LOOK_SECONDS)
            finally:
                self._waiting_suspects -= 1
            self._suspects += 1
        try:
            yield
        finally:
            with self._suspect_left:
                self._suspects -= 1
                self._suspect_left.notify()

    def _take(self, *, suspect: bool) -> Child:
        while True:
            with self._lock:
                child = self._idle[suspect].pop() if self._idle[suspect] else None
            if child is None:
                return self._start()
            if not child.has_ended():
                return child
            # It died between two jobs: what it left running is ended, its number and its pipes are given up.
            self._end(child)

    def _start(self) -> Child:
        try:
            child = Child(next(self._tags), guard=self._guard, clock=self._clock)
            self._spawner.submit(child.start).result()
        except (OSError, RuntimeError) as error:
            raise ChildFailed(str(error)) from None
        self._all.add(child)
        try:
            child.meet(self._hello())
        except BaseException:  # wall: whatever broke off the greeting, no child is left behind
            self._end(child)
            raise
        log.info("child.started", extra={"pid": child.pid})
        return child

    def _hello(self) -> messages.Hello:
        origins = {name: handler.origin for name, handler in self._handlers.items() if handler.origin}
        in_main = any(origin.module == MAIN for origin in origins.values())
        asked = {
            name: origin_of(handler.policy.rules)
            for name, handler in self._handlers.items()
            if callable(handler.policy.rules)
        }
        return messages.Hello(origins, main_here() if in_main else None, levels(), asked)

    def _give_back(self, child: Child, *, suspect: bool) -> None:
        used_up = child.jobs >= self._most_jobs or child.grown() > self._most_grown
        unwanted = suspect and not self._waiting_suspects
        with self._lock:
            keep = not (child.ended or unwanted or used_up or self._closed)
            if keep:
                self._idle[suspect].append(child)
        if not keep:
            self._dismiss(child)

    def _dismiss(self, child: Child) -> None:
        child.dismiss()
        self._all.discard(child)

    def _end(self, child: Child) -> None:
        child.end()
        self._all.discard(child)
