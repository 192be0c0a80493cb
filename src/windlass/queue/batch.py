"""How are many jobs enqueued as one, and how far have they come?"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from windlass.checks import check_text
from windlass.clock import uuid7
from windlass.errors import JobNotFound, Refused, must_be
from windlass.job import MAX_BATCH_NAME, NewJob
from windlass.store.chains import BatchInfo, NewBatch

if TYPE_CHECKING:
    from windlass.queue.handle import JobHandle
    from windlass.queue.producer import Producer

MOST = 10_000


class Batch:
    """Jobs that are stored together when the block ends, all or none, and whose progress can be asked for."""

    def __init__(self, producer: Producer, name: str) -> None:
        check_text("name", name, MAX_BATCH_NAME, least=0)
        self.id = uuid7()
        self.name = name
        self.jobs: list[JobHandle] = []
        self._producer = producer
        self._then: NewJob | None = None
        self._drafts: list[NewJob] = []
        self._stored = False

    def add(self, *drafts: NewJob) -> None:
        """Put drafts into the batch; they are stored when the block ends."""
        self._check_open()
        self._drafts += [self._producer.check_ours(draft, "draft") for draft in drafts]
        if len(self._drafts) > MOST:
            raise must_be("batch", f"{len(self._drafts)} jobs", f"at most {MOST} jobs")

    def then(self, draft: NewJob) -> None:
        """Enqueue this draft when all jobs of the batch have ended: completed, dead, cancelled or discarded.

        Give it the batch's id, and it can ask `queue.batch_status(id)` how many did which.
        """
        self._check_open()
        self._producer.check_ours(draft, "then")
        if draft.key is not None or draft.unique is not None or draft.depends_on:
            # What could be refused then would keep the last job of the batch from ending.
            allowed = "a draft without key, unique and depends_on: it is stored later"
            raise must_be("then", draft.type, allowed)
        self._then = draft

    def status(self) -> BatchInfo:
        """How many of its jobs stand in which state."""
        return self._producer.batch_status(self.id)

    def _check_open(self) -> None:
        if self._stored:
            raise Refused("the batch is stored already; make another one")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            batch = NewBatch(id=self.id, name=self.name, then=self._then)
            self.jobs = self._producer.enqueue_batch(batch, self._drafts)
            self._stored = True


def not_found(batch_id: str) -> JobNotFound:
    """No batch has that id."""
    return JobNotFound(batch_id, "batch")
