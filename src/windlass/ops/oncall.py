"""What does an operator ask when something is wrong?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass.errors import JobNotFound, must_be
from windlass.ops.actions import Verbs
from windlass.ops.explain import explain
from windlass.ops.local import with_the_gone_dead
from windlass.ops.search import WITHIN, find_within

if TYPE_CHECKING:
    from windlass.job import Job
    from windlass.ops.explanation import Explanation
    from windlass.store.explain import Facts
    from windlass.store.jobs import Filter, Page
    from windlass.store.oncall import DatabaseHealth, DeadGroups


class OncallVerbs(Verbs):
    """The verbs that only look. None of them costs more when more jobs wait, or it ends early and says so."""

    def find(
        self, where: Filter, *, limit: int = 50, cursor: str | None = None, within: timedelta = WITHIN
    ) -> Page:
        """Jobs, newest first. A search that is not over in time ends early: its `next` goes on with it."""
        if not 1 <= limit <= LONGEST_PAGE:
            raise must_be("limit", limit, f"between 1 and {LONGEST_PAGE}")
        return find_within(self.store, where, limit=limit, cursor=cursor, within=within, clock=self._clock)

    def failures(self, *, since: datetime | None = None, limit: int = 50) -> list[Job]:
        """Jobs whose last attempt failed, dead or to be tried again; the last to change first."""
        return self.store.failures(since=since, limit=limit)

    def dead_groups(self, types: Sequence[str] = ()) -> DeadGroups:
        """The dead letters by type and error, the largest group first."""
        return self.store.dead_groups(types)

    def database(self) -> DatabaseHealth:
        """How the database is: sizes, dead rows, who keeps them, settings, room."""
        return self.store.database()

    def explain(self, name: str, *, tenant: str | None = None) -> Explanation:
        """Why a job does not run, or what became of it, in one sentence."""
        return explain(self._facts(name, tenant))

    def explain_own(self, name: str) -> Explanation:
        """The same for a caller who may see only some jobs: names none that may belong to others."""
        return explain(self._facts(name, None).without_others())

    def _facts(self, name: str, tenant: str | None) -> Facts:
        job = self.store.get(name, caller=None, tenant=tenant)
        facts = None if job is None else self.store.facts(job.id)
        if facts is None:
            raise JobNotFound(name)
        return msgspec.structs.replace(facts, workers=tuple(with_the_gone_dead(facts.workers)))


LONGEST_PAGE = 1000
