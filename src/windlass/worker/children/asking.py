"""How does a job in a child reach the store? It asks its worker, over the pipe between them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from datetime import datetime
from queue import SimpleQueue
from typing import Any, NoReturn

from windlass import errors
from windlass.job import NewJob
from windlass.worker.attendant import Attendant
from windlass.worker.children import words

_NO_TRANSACTION = (
    "ctx.transaction() and ctx.set_result() need a handler that runs in the worker itself: no process can use"
    " another one's connection; ctx.once() and ctx.enqueue() work here too"
)


class Asking:
    """In the child: what its context asks for, one question a call. Each waits for its answer."""

    def __init__(self, say: Callable[[words.FromChild], None]) -> None:
        self._say = say
        self._numbers = itertools.count(1)
        self._open: dict[int, SimpleQueue[words.Answered]] = {}

    def hear(self, answer: words.Answered) -> None:
        """An answer came; from the thread that listens."""
        waiting = self._open.get(answer.number)
        if waiting is not None:
            waiting.put(answer)

    def transaction(self) -> NoReturn:
        """Refused: the connection is the worker's."""
        raise errors.Refused(_NO_TRANSACTION)

    transaction_async = transaction

    def keep_result(self, _: Any) -> NoReturn:
        """Refused: it belongs to a transaction."""
        raise errors.Refused(_NO_TRANSACTION)

    def enqueue(self, drafts: tuple[NewJob, ...]) -> None:
        """To be stored with the completion."""
        self._ask("enqueue", drafts=drafts)

    def progress(self, done: int, total: int | None) -> None:
        """How far the job has come."""
        self._ask("progress", done=done, total=total)

    def extend(self, seconds: float) -> tuple[float, datetime] | None:
        """The new end, by the clock that all processes of a machine share, and by the store's."""
        answer = self._ask("extend", seconds=seconds)
        return None if answer.deadline is None else (answer.ends, answer.deadline)

    def begin_once(self, key: str) -> str:
        """Begin a side effect, or say what became of it."""
        return self._ask("begin_once", key=key).word

    def end_once(self, key: str) -> None:
        """It is done."""
        self._ask("end_once", key=key)

    def undo_once(self, key: str) -> None:
        """It surely did not happen."""
        self._ask("undo_once", key=key)

    async def on_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        """For async handlers: the worker may take its time, the loop must not."""
        return await asyncio.to_thread(call, *args)

    def _ask(self, verb: words.Verb, **given: Any) -> words.Answered:
        number = next(self._numbers)
        waiting: SimpleQueue[words.Answered] = SimpleQueue()
        self._open[number] = waiting
        try:
            self._say(words.Asked(number=number, verb=verb, **given))
            answer = waiting.get()
        finally:
            del self._open[number]
        if answer.error:
            raise _error(answer)
        return answer


def _error(answer: words.Answered) -> Exception:
    """What the worker met, as its own context would have raised it."""
    kind = getattr(errors, answer.error, errors.Refused)
    error: Exception = kind.__new__(kind)
    Exception.__init__(error, answer.message)
    return error


def answer(asked: words.Asked, attendant: Attendant) -> words.Answered:
    """In the worker: do for a child's job what it asks for."""
    number = asked.number
    try:
        match asked.verb:
            case "enqueue":
                attendant.enqueue(asked.drafts)
            case "progress":
                attendant.progress(asked.done, asked.total)
            case "extend":
                ends, deadline = attendant.extend(asked.seconds) or (0.0, None)
                return words.Answered(number=number, ends=ends, deadline=deadline)
            case "begin_once":
                return words.Answered(number=number, word=attendant.begin_once(asked.key))
            case "end_once":
                attendant.end_once(asked.key)
            case "undo_once":
                attendant.undo_once(asked.key)
    except Exception as error:  # noqa: BLE001 # wall: the job is told, and decides
        return words.Answered(number=number, error=type(error).__name__, message=str(error))
    return words.Answered(number=number)
