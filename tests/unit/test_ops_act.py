"""An action that is one statement needs no more than its SQL section and its declaration."""

from __future__ import annotations

from typing import cast

import pytest

from windlass import Queue
from windlass.errors import WrongState
from windlass.job import JobState
from windlass.store.statements import load, spelled

URGENT = """
update windlass.jobs set priority = 10, changes = :changes, updated_at = :now
 where seq = :seq and state = 'pending';
"""


def test_a_section_is_carried_out_once_for_jobs_in_its_states(monkeypatch: pytest.MonkeyPatch) -> None:
    sections = cast("dict[str, str]", load("sqlite"))
    monkeypatch.setitem(sections, "urgent", spelled(URGENT, "sqlite"))
    with Queue("sqlite:///:memory:") as queue:

        @queue.job
        def add(a: int) -> int:
            return a

        job, store = add.enqueue(1), queue.store
        for _ in range(2):
            acted = store.act(job.id, "urgent", (JobState.PENDING,), by="ann", why="now", request_id="r1")
            assert (acted.id, acted.state, acted.done) == (job.id, JobState.PENDING, True)
        after = job.get()
        assert (after.priority, [change.verb for change in after.changes]) == (10, ["urgent"])
        assert [entry.verb for entry in store.audit(target=job.id).entries] == ["urgent"]
        store.cancel(job.id)
        with pytest.raises(WrongState, match="it is cancelled; urgent is for pending jobs"):
            store.act(job.id, "urgent", (JobState.PENDING,))
