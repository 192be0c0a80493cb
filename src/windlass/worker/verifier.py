"""Did completed jobs do what they should? Samples of them are checked here, some time after their end.

The sample was written with the completion, so none is forgotten: whoever takes it has five minutes, and if no
verdict has come by then, the next one takes it. A check that does not end is left to itself on its thread;
until it does end, nothing of its type is checked here, so there is at most one such thread for each type.
"""

from __future__ import annotations

import inspect
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from windlass.job import Job, named
from windlass.loop import Loop
from windlass.observe import names
from windlass.observe.ledger import Ledger
from windlass.payload import Ring
from windlass.registry import Handler
from windlass.store.oncall import Check, Verdict
from windlass.store.store import Store
from windlass.worker.coroutines import Coroutines

log = logging.getLogger("windlass.verifier")

_EVERY = timedelta(seconds=10)
_JITTER = 0.2
# A check that brings no verdict is taken again after so long, or sooner if it raised; not more often than so.
_TAKEN_FOR = timedelta(minutes=5)
_AFTER_ERROR = timedelta(minutes=1)
_MOST_TAKES = 5
# So long is waited for one, which is much less than the time for which it is ours.
PATIENCE_SECONDS = 60.0
# One on the loop is cancelled a little sooner, so that its thread ends in time.
_SHARE_ON_LOOP = 0.9


@dataclass(eq=False)
class Verifier:
    """Takes samples that are due, asks the application, and counts what it says."""

    store: Store
    handlers: Mapping[str, Handler]
    coroutines: Coroutines
    ring: Callable[[], Ring]
    ledger: Ledger
    patience: float = PATIENCE_SECONDS

    def __post_init__(self) -> None:
        self._checks = {name: each.verify for name, each in self.handlers.items() if each.verify is not None}
        self._next = tuple(self._checks)
        # Checks that have not ended in time, by type.
        self._hung: dict[str, _Asked] = {}
        self.loop = Loop("verifier", self.tick, every=_EVERY, jitter=_JITTER)

    @property
    def wanted(self) -> bool:
        return bool(self._checks)

    @property
    def needs_loop(self) -> bool:
        return any(inspect.iscoroutinefunction(each.function) for each in self._checks.values())

    def tick(self) -> float | None:
        """Make one check, at once again if there may be more: others may take what waits meanwhile."""
        self._hung = {name: asked for name, asked in self._hung.items() if asked.is_alive()}
        open_types = tuple(name for name in self._next if name not in self._hung)
        checks = self.store.take_checks(open_types, limit=1, again=_TAKEN_FOR) if open_types else []
        for check in checks:
            # The next time it is the others' turn first, however much there is to check of this type.
            behind = self._next.index(check.type) + 1
            self._next = self._next[behind:] + self._next[:behind]
            self._check(check)
        return 0.0 if checks else None

    def _check(self, check: Check) -> None:
        job = self.store.get(check.job_id, caller=None)
        if job is None or check.takes > _MOST_TAKES:
            # Its record is gone, or too many workers died of it.
            self._end(check, job, Verdict.UNKNOWN)
            return
        # On the loop that the jobs share, whose clients and connections it may use.
        wait = lambda coroutine: self.coroutines.wait(coroutine, _SHARE_ON_LOOP * self.patience)  # noqa: E731
        asked = _Asked(lambda: ask(self.handlers[check.type], job, self.ring, wait))
        asked.join(self.patience)
        if asked.is_alive():
            self._hung[check.type] = asked
            self.ledger.count_each([check.type], names.CHECKS_HUNG)
            frame = sys._current_frames().get(asked.ident or 0)  # noqa: SLF001 - the only way to see it
            stack = "".join(traceback.format_stack(frame)) if frame else ""
            log.warning("check.hung", extra=named(job) | {"seconds": self.patience, "stack": stack})
            self._failed(check, job, TimeoutError(f"it has not ended after {self.patience:g} s"))
        elif asked.error is not None:
            self._failed(check, job, asked.error)
        else:
            self._end(check, job, Verdict.MATCHED if asked.matched else Verdict.MISMATCHED)

    def _failed(self, check: Check, job: Job, error: BaseException) -> None:
        told = {"error": f"{type(error).__name__}: {error}", "tries": check.takes}
        log.warning("check.failed", extra=named(job) | told)
        if check.takes >= _MOST_TAKES:
            self._end(check, job, Verdict.UNKNOWN)
        else:
            self.store.put_off_check(check, _AFTER_ERROR)

    def _end(self, check: Check, job: Job | None, verdict: Verdict) -> None:
        fields = {"job": check.job_id, "type": check.type} if job is None else named(job)
        if self.store.end_check(check, verdict) and verdict is not Verdict.MATCHED:
            mismatched = verdict is Verdict.MISMATCHED
            log.warning("check.mismatched" if mismatched else "check.given_up", extra=fields)


class _Asked(threading.Thread):
    """One question to the application, on a thread that keeps nobody waiting or alive."""

    matched = False
    error: BaseException | None = None

    def __init__(self, question: Callable[[], bool]) -> None:
        super().__init__(name="windlass-check", daemon=True)
        self._question = question
        self.start()

    def run(self) -> None:
        try:
            self.matched = self._question()
        except BaseException as error:  # noqa: BLE001 # wall: the application's own code may raise anything
            self.error = error


def ask(
    handler: Handler, job: Job, ring: Callable[[], Ring], awaited: Callable[[Coroutine[Any, Any, Any]], Any]
) -> bool:
    """Whether a completed job did what it should, as its type's check says; what else that raises goes on."""
    assert handler.verify is not None  # noqa: S101 - others have nothing to ask
    result = None if job.result is None else msgspec.json.decode(job.result)
    arguments = {"job": job, "result": result} | handler.signature.decode(handler.current(job, ring))
    try:
        answer = handler.verify.call(arguments)
        if inspect.iscoroutine(answer):
            answer = awaited(answer)
    except AssertionError:
        return False
    if not isinstance(answer, bool):
        raise TypeError(f"a check answers True or False, not {type(answer).__name__}")
    return answer
