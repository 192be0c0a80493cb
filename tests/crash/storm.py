"""What becomes of posts while servers are killed at random, or the database behind them goes away?"""

from __future__ import annotations

import contextlib
import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from tests.server.process import ServerProcess
from tests.servers import postgres
from tests.waiting import PATIENCE
from windlass import Client, Queue
from windlass.store.jobs import Filter

LINES = 8
_PAGE = 1000
_CREATED = 201
_SOME = 100
_AWAY = "503 with Retry-After"


def post_while_killed(
    url: str, folder: Path, posts: int, *, servers: int = 1, pause: tuple[float, float], spread: float = 0.0
) -> tuple[list[str], int]:
    """Send jobs of the type `add`, each with a key: their ids as answered, and how many servers were killed.

    `pause`: between two kills, at least and at most. `spread`: so long a line may wait before it sends.
    """
    with ExitStack() as closing:
        houses = [ServerProcess(url, folder) for _ in range(servers)]
        over = threading.Event()
        # By server: how many it has accepted, and how many when it was killed last.
        done: Counter[ServerProcess] = Counter()
        before: dict[ServerProcess, int] = {}

        def kill_now_and_then() -> None:
            while not over.wait(random.uniform(*pause)):
                house = random.choice(houses)
                # One that is still starting has nothing to lose; and on a busy machine none would ever be up.
                if done[house] > before.get(house, 0):
                    before[house] = done[house]
                    house.kill()

        killer = threading.Thread(target=kill_now_and_then)
        killer.start()
        clients = [closing.enter_context(Client(each.url, patience=PATIENCE)) for each in houses]

        def send(number: int) -> str:
            over.wait(random.uniform(0, spread))
            place = number % len(clients)
            accepted = clients[place].enqueue("add", {"a": number}, key=f"k{number}").id
            done[houses[place]] += 1
            return accepted

        try:
            with ThreadPoolExecutor(LINES * servers) as lines:
                accepted = list(lines.map(send, range(posts)))
        finally:
            over.set()
            killer.join()
            codes = [each.stop() for each in houses]
        assert set(codes) == {0}, codes
        return accepted, sum(each.kills for each in houses)


def missing_or_twice(queue: Queue, accepted: Sequence[str]) -> list[str]:
    """What is wrong with the store, in words: every accepted key must be there, and once."""
    found = {}
    twice, cursor = 0, None
    while True:
        page = queue.store.find(Filter(), limit=_PAGE, cursor=cursor)
        for job in page.jobs:
            twice += job.key in found
            found[job.key] = job.id
        if (cursor := page.next) is None:
            break
    wrong = [f"{twice} keys are there twice"] if twice else []
    lost = set(accepted) - set(found.values())
    return wrong + ([f"{len(lost)} accepted jobs are lost"] if lost else [])


class Crowd:
    """Some who try again until they are answered, and some who ask once; all post until they are stopped."""

    def __init__(self, url: str, *, patient: int = 6, impatient: int = 2) -> None:
        self._address = urlsplit(url).netloc
        self._over = threading.Event()
        self.accepted: list[str] = []
        # What those who ask once were told.
        self.told: Counter[str] = Counter()
        self._client = Client(url, patience=PATIENCE)
        self._lines = ThreadPoolExecutor(patient + impatient)
        # The server is there.
        self.accepted.append(self._client.enqueue("add", {"a": 0}, key="first").id)
        plan = [self._insist] * patient + [self._ask_once] * impatient
        self._running = [self._lines.submit(self._post, send, f"{line}") for line, send in enumerate(plan)]

    def _post(self, send: Callable[[str], None], line: str) -> None:
        number = 0
        while not self._over.wait(0.02):
            number += 1
            send(f"{line}-{number}")

    def _insist(self, key: str) -> None:
        self.accepted.append(self._client.enqueue("add", {"a": 1}, key=key).id)

    def _ask_once(self, key: str) -> None:
        body = f'{{"type": "add", "payload": {{"a": 1}}, "key": "{key}"}}'
        line = http.client.HTTPConnection(self._address, timeout=PATIENCE)
        with contextlib.closing(line):
            line.request("POST", "/api/v1/jobs", body, {"Content-Type": "application/json"})
            answer = line.getresponse()
            text = answer.read().decode()
        after = answer.headers.get("Retry-After")
        self.told[f"{answer.status}" if after is None else f"{answer.status} with Retry-After"] += 1
        if answer.status == _CREATED:
            self.accepted.append(text.partition('"id":"')[2].partition('"')[0])

    def answered(self, more: int = 1) -> float:
        """Wait until so many more are accepted; how long that took."""
        begun, enough = time.monotonic(), len(self.accepted) + more
        while len(self.accepted) < enough and time.monotonic() - begun < PATIENCE:
            time.sleep(0.02)
        return time.monotonic() - begun

    def refused(self) -> None:
        """Wait until somebody was told to come again."""
        end = time.monotonic() + PATIENCE
        while not self.told[_AWAY] and time.monotonic() < end:
            time.sleep(0.02)

    def stop(self) -> None:
        """Nobody posts any more; whatever went wrong for one of them is raised."""
        self._over.set()
        for line in self._running:
            line.result()
        self._lines.shutdown()
        self._client.close()


def post_while_away(server: postgres.Server, url: str, seconds: float) -> tuple[Crowd, float]:
    """A crowd posts to a URL while PostgreSQL is stopped; and how soon one was accepted afterwards."""
    crowd = Crowd(url)
    try:
        crowd.answered(_SOME)
        server.stop()
        time.sleep(seconds)
        crowd.refused()
        server.start()
        again = crowd.answered()
        crowd.answered(_SOME)
    finally:
        crowd.stop()
    return crowd, again


def misled(crowd: Crowd) -> list[str]:
    """What those who ask once were told and should not have been."""
    wrong = [f"some were told {each}" for each in crowd.told if each not in ("201", _AWAY)]
    return wrong if crowd.told[_AWAY] else [*wrong, "nobody was told 503"]
