"""A burst by the Python API: `python -m soak.burst RATE SECONDS`, in portions of a fiftieth of a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parents[2]))

from soak.app import JOBS, queue
from soak.notes import Note, Notes
from tests.history.record import Verb, from_environment
from windlass.errors import StoreError
from windlass.job import NewJob

T = TypeVar("T")

PORTIONS = 50
PATIENCE = 60.0
_recorder = from_environment()


def insist(call: Callable[[], T], until: float) -> tuple[T | None, int]:
    """Call again while the store is away; how often that was. None if it stays away."""
    tries = 0
    while time.time() < until:
        tries += 1
        try:
            return call(), tries
        except StoreError as error:
            if not error.retryable:
                raise
            time.sleep(0.2)
    return None, tries


def make(portion: int, count: int) -> list[NewJob]:
    """The drafts of one portion."""
    return [JOBS[(portion + n) % len(JOBS)].draft(n + 1) for n in range(count)]


def send(drafts: list[NewJob]) -> bool:
    """Enqueue them; the same drafts again make no second job."""
    with _recorder.call(Verb.ENQUEUE, *(draft.id for draft in drafts), refused=()) as call:
        call.ids = [handle.id for handle in queue.enqueue_many(drafts)]
    return True


def main() -> None:
    """Send it all."""
    rate, seconds = float(sys.argv[1]), float(sys.argv[2])
    insist(queue.open, time.time() + PATIENCE)
    notes, begun, count = Notes(), time.time(), max(1, round(rate / PORTIONS))
    for portion in range(round(seconds * PORTIONS)):
        due = begun + portion / PORTIONS
        time.sleep(max(0.0, due - time.time()))
        until = time.time() + PATIENCE
        drafts, _ = insist(partial(make, portion, count), until)
        done, tries = (None, 1) if drafts is None else insist(partial(send, drafts), until)
        notes.add(Note("burst", due, (time.time() - due) * 1000, tries, bool(done)))
    notes.flush()
    print(f"{rate * seconds:.0f} jobs in {time.time() - begun:.1f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
