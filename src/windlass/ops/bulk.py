"""How does one verb reach many jobs?"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from itertools import islice

import msgspec

from windlass.errors import JobNotFound, Refused, WrongState, must_be
from windlass.job import JobState
from windlass.pace import Pace
from windlass.store.engine import Acted
from windlass.store.jobs import Filter
from windlass.store.store import Store


class Verb(StrEnum):
    """What can be done to many jobs at once."""

    CANCEL = "cancel"
    REPLAY = "replay"
    DISCARD = "discard"
    BURY = "bury"

    @property
    def states(self) -> tuple[JobState, ...]:
        """The states whose jobs the verb is for."""
        return _STATES[self]


_STATES = {
    Verb.CANCEL: (JobState.PENDING, JobState.PROCESSING),
    Verb.REPLAY: (JobState.DEAD,),
    Verb.DISCARD: (JobState.DEAD,),
    Verb.BURY: (JobState.PENDING, JobState.PROCESSING),
}


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the jobs that a filter chose."""

    verb: Verb
    dry_run: bool
    matched: int
    # Of a dry run: there are more, which were not counted in time.
    at_least: bool = False
    # The verb took effect.
    done: int = 0
    # The jobs were running: the verb waits for their workers.
    asked: int = 0
    # The jobs had left the verb's states before it reached them, such as by completing.
    moved_on: int = 0
    # The rules said no; `refusals` quotes the first few.
    refused: int = 0
    refusals: tuple[str, ...] = ()


def narrowed(verb: Verb, where: Filter) -> Filter:
    """The filter, held to the states that the verb is for; one that asks for others is refused."""
    states = where.states or verb.states
    if not set(states) <= set(verb.states):
        wrong = ", ".join(state for state in states if state not in verb.states)
        raise must_be("state", wrong, f"{' or '.join(verb.states)}: others cannot be {_PARTICIPLES[verb]}")
    return msgspec.structs.replace(where, states=states)


def matching(store: Store, where: Filter, limit: int | None) -> Iterator[str]:
    """The ids of matching jobs; with a limit, the oldest ones."""
    found = _all(store, where)
    return found if limit is None else reversed(deque(found, maxlen=limit))


class Reached(msgspec.Struct):
    """What became of the jobs so far; each refusal in words."""

    done: int = 0
    asked: int = 0
    moved_on: int = 0
    refusals: list[str] = []

    @property
    def matched(self) -> int:
        """How many jobs were reached."""
        return self.done + self.asked + self.moved_on + len(self.refusals)

    def add(self, answer: Acted | Refused) -> None:
        """Count one more job."""
        if isinstance(answer, WrongState | JobNotFound):
            self.moved_on += 1
        elif isinstance(answer, Refused):
            self.refusals.append(str(answer))
        elif answer.done:
            self.done += 1
        else:
            self.asked += 1


def act_on_all(
    act: Callable[[str], Acted], ids: Iterator[str], pace: Pace, progress: Callable[[int], None]
) -> Reached:
    """Do it to each job.

    The store commits what waits together, so several threads are many times faster than one.
    """
    reached = Reached()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="bulk") as threads:
        while not pace.stopped and (chunk := list(islice(ids, min(pace.step or _CHUNK, _CHUNK)))):
            for answer in threads.map(lambda job_id: _outcome(act, job_id), chunk):
                reached.add(answer)
            progress(reached.matched)
            pace.passed(len(chunk))
    return reached


def _all(store: Store, where: Filter) -> Iterator[str]:
    """Newest first by number, which no verb changes: a job met once is not met again."""
    cursor: str | None = None
    while True:
        page = store.find(where, limit=_PAGE, cursor=cursor)
        yield from (job.id for job in page.jobs)
        cursor = page.next
        if cursor is None:
            return


def _outcome(act: Callable[[str], Acted], job_id: str) -> Acted | Refused:
    try:
        return act(job_id)
    except Refused as error:
        return error


_PARTICIPLES = {
    Verb.CANCEL: "cancelled",
    Verb.REPLAY: "replayed",
    Verb.DISCARD: "discarded",
    Verb.BURY: "buried",
}
_PAGE = 500
_CHUNK = 200
_THREADS = 16
