"""Do one action to every job that a filter chooses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from windlass.errors import JobNotFound, Refused, WrongState, must_be
from windlass.ops.actions import Action, bulk_actions
from windlass.ops.jobs import JobVerbs
from windlass.ops.search import WITHIN, count_within
from windlass.pace import Pace
from windlass.store.engine import Acted
from windlass.store.jobs import Filter
from windlass.store.store import Store


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the jobs that a filter chose."""

    # The action's name.
    verb: str
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


class BulkVerbs(JobVerbs):
    """One action for many jobs."""

    def bulk(
        self,
        verb: str,
        where: Filter,
        *,
        limit: int | None = None,
        dry_run: bool = False,
        rate: float | Pace | None = None,
        progress: Callable[[int], None] = lambda _: None,
        why: str = "",
        **arguments: Any,
    ) -> Bulk:
        """Do an action to every job that matches, to the oldest `limit` of them, at most `rate` per second.

        `arguments` are the action's own, such as `confirm` for a replay. A dry run only counts, for at most
        two seconds. `progress` gets the number of jobs done so far. A Pace that is stopped ends it early.
        """
        if limit is not None and limit < 1:
            raise must_be("limit", limit, "at least 1")
        declared = bulk_action(verb)
        where = narrowed(declared, where)
        if dry_run:
            matched, all_of_them = self._matching(where, limit or MOST_COUNTED)
            # Asked for so many, one gets so many, however many more there are.
            more = not all_of_them and matched != limit
            return Bulk(verb=verb, dry_run=True, matched=matched, at_least=more)
        act = partial(declared.of(self), why=why, **arguments)
        pace = rate if isinstance(rate, Pace) else Pace(rate, clock=self._clock)
        reached = act_on_all(act, matching(self.store, where, limit), pace, progress)
        return Bulk(
            verb=verb,
            dry_run=False,
            matched=reached.matched,
            done=reached.done,
            asked=reached.asked,
            moved_on=reached.moved_on,
            refused=len(reached.refusals),
            refusals=tuple(reached.refusals[:_QUOTED]),
        )

    def _matching(self, where: Filter, limit: int) -> tuple[int, bool]:
        return count_within(self.store, where, limit=limit, within=WITHIN, clock=self._clock)


def bulk_action(name: str) -> Action:
    """The action of that name, if it can be done to many jobs."""
    known = bulk_actions()
    if name not in known:
        raise must_be("action", name, "one of " + ", ".join(known))
    return known[name]


def narrowed(declared: Action, where: Filter) -> Filter:
    """The filter, held to the states that the action is for; one that asks for others is refused."""
    states = where.states or declared.states
    if not set(states) <= set(declared.states):
        wrong = ", ".join(state for state in states if state not in declared.states)
        allowed = " or ".join(declared.states)
        raise must_be("state", wrong, f"{allowed}: others cannot be {declared.participle}")
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


MOST_COUNTED = 1_000_000
_QUOTED = 5
_PAGE = 500
_CHUNK = 200
_THREADS = 16
