"""The steady load over HTTP: posts, batches and user-facing requests, each when it is due.

What a call waits counts from when it was due, two seconds at most before it was sent. A post that is not
answered is sent again, with the same id and key, as a client would.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).parents[2]))

from siege.wire import Answer, Line, request

from soak.app import NAMES
from soak.notes import Note, Notes
from soak.plan import BATCH
from tests.history.record import Outcome, Verb, from_environment
from windlass.clock import uuid7

# How long a post is sent again, and a user waits.
PATIENCE = 30.0
# At most the calls of two seconds are under way; those that would come still later are left out, and the
# result says how many were made. Without this a machine that is too slow would measure its own queue.
LAG = 2.0
_ANSWER_SECONDS = 10.0
_MOST_LINES = 40
_CREATED = 201
_OK = 200
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_TICK = 0.002
_CUT = (OSError, EOFError, asyncio.IncompleteReadError, IndexError, ValueError)


class Poster:
    """Sends requests to some servers over connections that are kept."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[Line]] = defaultdict(list)
        self._room: defaultdict[int, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_MOST_LINES))

    async def once(self, port: int, data: bytes) -> Answer:
        """Send a request and wait for its answer; an error if there is none."""
        async with self._room[port]:
            line = self._free[port].pop() if self._free[port] else await Line.open(port)
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    answer = await line.ask(data)
            except BaseException:
                line.close()
                raise
            self._free[port].append(line)
            return answer

    async def insist(self, port: int, data: bytes, due: float) -> tuple[Answer | None, int]:
        """Send it until it is answered for good, or the client gives up; how often that was."""
        tries, until = 0, due + PATIENCE
        with suppress(TimeoutError):
            async with asyncio.timeout(until - time.time()):
                while True:
                    tries += 1
                    with suppress(*_CUT):
                        answer = await self.once(port, data)
                        if answer.status not in _BUSY:
                            return answer, tries
                    await asyncio.sleep(random.uniform(0.1, 0.4))
        return None, tries


class Load:
    """All that is sent until the end."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._servers: list[int] = given["servers"]
        self._web: int = given["web"]
        self._keys: list[str] = given["keys"]
        self._rates: dict[str, float] = given["rates"]
        self._seconds: float = given["seconds"]
        self._poster = Poster()
        self._recorder = from_environment()
        self._notes = Notes()
        self._number = 0
        self._running: defaultdict[str, set[asyncio.Task[None]]] = defaultdict(set)

    async def run(self) -> None:
        """Start every call when it is due; then wait for the last answers."""
        verbs: dict[str, Callable[[float], Coroutine[Any, Any, None]]] = {
            "posts": self._post,
            "batches": self._batch,
            "orders": self._order,
        }
        begun = time.time()
        turns = dict.fromkeys(verbs, 0)
        while (now := time.time() - begun) < self._seconds:
            for name, verb in verbs.items():
                rate = self._rates[name]
                # Too far behind: what was due before is left out.
                turns[name] = max(turns[name], math.floor((now - LAG) * rate))
                while turns[name] < now * rate and len(self._running[name]) < rate * LAG:
                    self._start(name, verb(begun + turns[name] / rate))
                    turns[name] += 1
            await asyncio.sleep(_TICK)
        for running in self._running.values():
            while running:
                await asyncio.wait(running)
        self._notes.flush()

    def _start(self, name: str, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(call)
        self._running[name].add(task)
        task.add_done_callback(self._running[name].discard)

    def _job(self) -> dict[str, Any]:
        self._number += 1
        number = self._number
        # Every service sends every type.
        name = NAMES[(number // len(self._keys)) % len(NAMES)]
        job_id = uuid7()
        return {"type": name, "payload": {"n": number}, "id": job_id, "key": f"key-{job_id}"}

    async def _post(self, due: float) -> None:
        job = self._job()
        await self._send("post", "/api/v1/jobs", job, [job], due)

    async def _batch(self, due: float) -> None:
        jobs = [self._job() for _ in range(BATCH)]
        await self._send("batch", "/api/v1/jobs/batch", {"jobs": jobs}, jobs, due)

    async def _send(
        self, kind: str, path: str, document: dict[str, Any], jobs: list[dict[str, Any]], due: float
    ) -> None:
        service = self._number % len(self._keys)
        data = request("POST", path, self._keys[service], document)
        ids = tuple(job["id"] for job in jobs)
        call = self._recorder.begin(Verb.ENQUEUE, ids, keys=[job["key"] for job in jobs])
        answer, tries = await self._poster.insist(self._servers[service % len(self._servers)], data, due)
        took = (time.time() - due) * 1000
        done = answer is not None and answer.status in (_CREATED, _OK)
        if done:
            self._recorder.finish(call, Outcome.ANSWERED, answer=ids)
        else:
            refused = answer is not None
            self._recorder.finish(call, Outcome.REFUSED if refused else Outcome.UNKNOWN)
            if answer is not None:
                print(f"refused: {answer.status} {answer.body[:300]!r}", file=sys.stderr, flush=True)
        self._notes.add(Note(kind, due, took, tries, done))

    async def _order(self, due: float) -> None:
        """A user's request: sent once."""
        self._number += 1
        data, done = request("POST", "/orders", None, {"n": self._number}), False
        with suppress(*_CUT):
            done = (await self._poster.once(self._web, data)).status == _CREATED
        self._notes.add(Note("order", due, (time.time() - due) * 1000, 1, done))


def main() -> None:
    """Run with what the environment says."""
    given = json.loads(os.environ["SOAK_LOAD"])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Load(given).run())


if __name__ == "__main__":
    main()
