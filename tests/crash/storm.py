"""What becomes of posts while servers are killed at random, or the database behind them goes away?"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

from tests.history.check import Rules
from tests.history.record import Call, Outcome, Recorder, Verb
from tests.server.process import ServerProcess
from tests.servers import postgres
from tests.waiting import PATIENCE
from windlass import Client
from windlass.errors import InvalidValue, Refused, WindlassError

# No worker runs what is posted here.
RULES = Rules(all_end=False, recording=frozenset())
CLIENT = "client"
LINES = 8
_CREATED = 201
_SOME = 100
_AWAY = "503 with Retry-After"


def post_while_killed(
    url: str,
    recorder: Recorder,
    posts: int,
    *,
    servers: int = 1,
    pause: tuple[float, float],
    spread: float = 0.0,
    patience: float = PATIENCE,
) -> int:
    """Send jobs of the type `add`, each with a key, and record it: how many servers were killed.

    `pause`: between two kills, at least and at most. `spread`: the longest wait of a line before it sends.
    `patience`: for how long a client tries again.
    """
    with ExitStack() as closing:
        houses = [ServerProcess(url, recorder.path.parent) for _ in range(servers)]
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
                    with recorder.fault(Verb.KILL, house.url):
                        house.kill()

        killer = threading.Thread(target=kill_now_and_then)
        killer.start()
        clients = [closing.enter_context(Client(each.url, patience=patience)) for each in houses]

        def send(number: int) -> None:
            over.wait(random.uniform(0, spread))
            place = number % len(clients)
            if post(recorder, clients[place], f"k{number}"):
                done[houses[place]] += 1

        try:
            with ThreadPoolExecutor(LINES * servers) as lines:
                list(lines.map(send, range(posts)))
        finally:
            over.set()
            killer.join()
            codes = [each.stop() for each in houses]
        assert set(codes) == {0}, codes
        return sum(each.kills for each in houses)


def post(recorder: Recorder, client: Client, key: str) -> bool:
    """One call of a client, with all that it does by itself; whether it was accepted."""
    with (
        suppress(WindlassError),
        recorder.call(Verb.ENQUEUE, keys=[key], refused=(InvalidValue, Refused), note=CLIENT) as call,
    ):
        call.ids = [client.enqueue("add", {"a": 1}, key=key).id]
        return True
    return False


def availability(calls: Iterable[Call]) -> tuple[int, int]:
    """How many calls of clients were answered, and how many there were."""
    made = [call for call in calls if call.note == CLIENT]
    return sum(call.answered for call in made), len(made)


class Crowd:
    """Some who try again until they are answered, and some who ask once; all post until they are stopped."""

    def __init__(self, url: str, recorder: Recorder, *, patient: int = 6, impatient: int = 2) -> None:
        self._address = urlsplit(url).netloc
        self._recorder = recorder
        self._over = threading.Event()
        self.accepted: Counter[str] = Counter()
        # What those who ask once were told.
        self.told: Counter[str] = Counter()
        self._client = Client(url, patience=PATIENCE)
        self._lines = ThreadPoolExecutor(patient + impatient)
        # The server is there.
        self._insist("first")
        plan = [self._insist] * patient + [self._ask_once] * impatient
        self._running = [self._lines.submit(self._post, send, f"{line}") for line, send in enumerate(plan)]

    def _post(self, send: Callable[[str], None], line: str) -> None:
        number = 0
        while not self._over.wait(0.02):
            number += 1
            send(f"{line}-{number}")

    def _insist(self, key: str) -> None:
        self.accepted["patient"] += post(self._recorder, self._client, key)

    def _ask_once(self, key: str) -> None:
        body = f'{{"type": "add", "payload": {{"a": 1}}, "key": "{key}"}}'
        line = http.client.HTTPConnection(self._address, timeout=PATIENCE)
        with self._recorder.call(Verb.ENQUEUE, keys=[key], refused=()) as call, contextlib.closing(line):
            # What is not accepted may be there all the same: the answer of the store may have been lost.
            call.outcome = Outcome.UNKNOWN
            line.request("POST", "/api/v1/jobs", body, {"Content-Type": "application/json"})
            answer = line.getresponse()
            text = answer.read().decode()
            if answer.status == _CREATED:
                call.outcome, call.ids = Outcome.ANSWERED, [json.loads(text)["id"]]
        after = answer.headers.get("Retry-After")
        self.told[f"{answer.status}" if after is None else f"{answer.status} with Retry-After"] += 1
        self.accepted["impatient"] += answer.status == _CREATED

    def answered(self, more: int = 1) -> float:
        """Wait until so many more are accepted; how long that took."""
        begun, enough = time.monotonic(), self.accepted.total() + more
        while self.accepted.total() < enough and time.monotonic() - begun < PATIENCE:
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


def post_while_away(
    server: postgres.Server, url: str, recorder: Recorder, seconds: float
) -> tuple[Crowd, float]:
    """A crowd posts to a URL while PostgreSQL is stopped; and how soon one was accepted afterwards."""
    crowd = Crowd(url, recorder)
    try:
        crowd.answered(_SOME)
        with recorder.fault(Verb.OUTAGE):
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
