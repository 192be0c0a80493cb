"""What if a job is sent a second time?"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from windlass.errors import Conflict, IdConflict, Refused
from windlass.store.protocol import Enqueued

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windlass.job import Job, NewJob


def found(job: Job | NewJob) -> Enqueued:
    """There was such a job before."""
    return Enqueued(job.id, job.key, created=False, due=False)


def existing(new: NewJob, known: Job | NewJob | None) -> Enqueued:
    """The id is known: the same request sent again finds its job, anything else is refused."""
    same = (
        known is not None
        and known.type == new.type
        and bytes(known.payload) == new.payload
        and known.key == new.key
        and known.caller == new.caller
        and known.tenant == new.tenant
    )
    if known is None or not same:
        raise IdConflict(new.id)
    return found(known)


@contextmanager
def of_batch(jobs: Sequence[NewJob], new: NewJob) -> Iterator[None]:
    """Let a refusal say which job of a batch it is about."""
    try:
        yield
    except Refused as error:
        if len(jobs) > 1:
            places = {each.id: place for place, each in reversed(list(enumerate(jobs)))}
            error.index = next(place for place, each in enumerate(jobs) if each is new)
            twin = places.get(getattr(error, "job_id", None) or "")
            if isinstance(error, Conflict) and twin not in (None, error.index):
                error.clashes(twin)
        raise
