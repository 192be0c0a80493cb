"""What does a worker do for a job in a child that asks for something?"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from windlass.outcome import Done
from windlass.store.engine import Settlement
from windlass.worker.attendant import Attendant
from windlass.worker.children.words import Answered, Asked, Completion, Verb


def answer(asked: Asked, attendant: Attendant) -> Answered:
    """Do what it asks for; what went wrong is told as well."""
    try:
        return _VERBS[asked.verb](asked, attendant)
    except Exception as error:  # noqa: BLE001 # wall: the job is told, and decides
        return Answered(number=asked.number, error=type(error).__name__, message=str(error))


def _done(do: Callable[[Asked, Attendant], None]) -> Callable[[Asked, Attendant], Answered]:
    """For what has no answer but that it is done."""

    def answered(asked: Asked, attendant: Attendant) -> Answered:
        do(asked, attendant)
        return Answered(number=asked.number)

    return answered


def _extend(asked: Asked, attendant: Attendant) -> Answered:
    ends, deadline = attendant.extend(asked.seconds) or (0.0, None)
    return Answered(number=asked.number, ends=ends, deadline=deadline)


def _begin_once(asked: Asked, attendant: Attendant) -> Answered:
    return Answered(number=asked.number, word=attendant.begin_once(asked.key))


def _transaction(asked: Asked, attendant: Attendant) -> Answered:
    address, within = attendant.lend()
    return Answered(number=asked.number, address=address, within=within)


def _completion(asked: Asked, attendant: Attendant) -> Answered:
    return Answered(number=asked.number, completion=_told(attendant.completion()))


def _told(completion: Settlement) -> Completion:
    done = completion.outcome if isinstance(completion.outcome, Done) else Done()
    lease = msgspec.json.encode(completion.lease)
    return Completion(
        lease=lease,
        value=done.value,
        missing=done.missing,
        ran=completion.ran,
        drafts=completion.enqueues,
        check_in=completion.check_in,
        app=completion.app,
    )


_VERBS: Mapping[Verb, Callable[[Asked, Attendant], Answered]] = {
    "enqueue": _done(lambda asked, attendant: attendant.enqueue(asked.drafts)),
    "progress": _done(lambda asked, attendant: attendant.progress(asked.done, asked.total, asked.message)),
    "extend": _extend,
    "begin_once": _begin_once,
    "end_once": _done(lambda asked, attendant: attendant.end_once(asked.key)),
    "undo_once": _done(lambda asked, attendant: attendant.undo_once(asked.key)),
    "keep_result": _done(lambda asked, attendant: attendant.keep(asked.value, asked.missing)),
    "transaction": _transaction,
    "completion": _completion,
    "completed": _done(lambda _, attendant: attendant.completed()),
    "undone": _done(lambda _, attendant: attendant.undone()),
}
