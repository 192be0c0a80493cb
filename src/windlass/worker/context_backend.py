"""Carry out what a running handler asks of its context."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from windlass.context import Backend, OnceStep
from windlass.errors import Refused
from windlass.job import MAX_PROGRESS_MESSAGE, NewJob
from windlass.observe import tracing
from windlass.outcome import Done, Returned, clean
from windlass.store.engine import Settlement
from windlass.store.running import Said, Transacting
from windlass.worker.children.messages import Completion
from windlass.worker.run import Env, Run, kept, settlement
from windlass.worker.timeouts import Deadlines


class ContextBackend(Backend):
    """Between one run's context and the store."""

    def __init__(self, run: Run, env: Env, deadlines: Deadlines) -> None:
        self._run = run
        self._env = env
        self._store = env.store
        self._clock = env.clock
        self._deadlines = deadlines
        self._said = Said(0)

    def lend(self) -> tuple[Transacting, timedelta]:
        return self._store.handlers(), timedelta(seconds=max(0.001, self._run.ends - self._clock.monotonic()))

    def completion(self) -> Settlement:
        self._run.completing = True
        return settlement(self._run, self._run.result, self._clock.monotonic(), self._env.app)

    def committed(self) -> None:
        self._run.completed = True

    def undone(self) -> None:
        self._run.completing = False

    def keep_result(self, value: Any) -> None:
        self.keep(kept(value, self._run.handler.result))

    def keep(self, result: Returned) -> None:
        """The same for what is JSON already, or cannot be."""
        self._check_open("set_result")
        self._run.result = Done(result.value, missing=result.missing)

    def enqueue(self, drafts: tuple[NewJob, ...]) -> None:
        self._check_open("enqueue")
        self._run.enqueues += tracing.carrying(drafts)

    def progress(self, done: int | None, total: int | None, message: str | None) -> None:
        # Written with the worker's next look, once a second.
        before = self._said
        if done is None:
            done, total = before.done, before.total
        message = before.message if message is None else clean(message, MAX_PROGRESS_MESSAGE)
        self._run.progress = self._said = Said(done, total, message or None)

    def extend(self, seconds: float) -> tuple[float, datetime] | None:
        ends = self._clock.monotonic() + seconds
        if not self._run.extend(ends):
            return None
        self._deadlines.watch(ends)
        return ends, self._run.store_time(ends)

    def once(self, key: str, step: OnceStep) -> str:
        lease, store = self._run.lease, self._store
        if step == "begin":
            return store.begin_once(lease, key).value
        write = store.end_once if step == "end" else store.undo_once
        write(lease, key)
        return step

    # --- for a child, which has connections of its own ---

    def lend_address(self) -> tuple[str, timedelta]:
        """Where the store is, which is told to nobody else, and how long the transaction may take."""
        return self._store.shared_address(), self.lend()[1]

    def tell_completion(self) -> Completion:
        found = self.completion()
        done = found.outcome if isinstance(found.outcome, Done) else Done()
        lease = msgspec.json.encode(found.lease)
        return Completion(lease, done, found.ran, found.enqueues, found.check_in, found.app)

    def _check_open(self, verb: str) -> None:
        if self._run.completed:
            # It would be lost without a word.
            raise Refused(f"the job is completed; ctx.{verb}() belongs into the block of ctx.transaction()")
