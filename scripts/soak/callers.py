"""Services that use the SDK: they enqueue a job, and look at one that they enqueued before.

A call counts with all that the SDK does by itself. Whether it succeeded is what PERF-12 asks.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from soak.app import NAMES
from soak.notes import Note, Notes
from tests.history.record import Verb, from_environment
from windlass import Client
from windlass.errors import InvalidValue, Refused, WindlassError

THREADS = 4
# Jobs are looked at after this many more were accepted.
_BEHIND = 20
_recorder = from_environment()


def run(url: str, key: str, rate: float, until: float) -> None:
    """One thread's calls, in turn: at most at that rate, and slower while the server is away."""
    notes, accepted = Notes(), deque[str]()
    number = 0
    with Client(url, key) as client:

        def enqueue() -> None:
            draft = client.draft(NAMES[number % len(NAMES)], {"n": number + 1})
            with _recorder.call(Verb.ENQUEUE, draft.id, refused=(InvalidValue, Refused)) as call:
                call.ids = [handle.id for handle in client.enqueue_many([draft])]
            accepted.append(draft.id)

        def look() -> None:
            client.get(accepted.popleft())

        due = time.time()
        while due < until:
            time.sleep(max(0.0, due - time.time()))
            if len(accepted) > _BEHIND:
                _noted(notes, "sdk-status", look)
            else:
                _noted(notes, "sdk-enqueue", enqueue)
                number += 1
            due = max(due + 1 / rate, time.time())
    notes.flush()


def _noted(notes: Notes, kind: str, call: Callable[[], None]) -> None:
    begun, done = time.time(), True
    try:
        call()
    except WindlassError as error:
        done = False
        print(f"{kind}: {error!r}", file=sys.stderr, flush=True)
    notes.add(Note(kind, begun, (time.time() - begun) * 1000, 1, done))


def main() -> None:
    """Run with what the environment says."""
    told = json.loads(os.environ["SOAK_LOAD"])
    until = time.time() + told["seconds"]
    threads = [
        threading.Thread(target=run, args=(told["url"], key, told["rate"] / THREADS, until))
        for key in told["keys"][:THREADS]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
