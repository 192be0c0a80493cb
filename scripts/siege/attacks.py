"""What do attackers do? Each attack is a process of its own, bounded in number and time, on the loopback."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from siege.wire import HOST, Line, request

Attack = Callable[["Attacker"], Awaitable[None]]


# Whoever is cut off or refused comes again, so many a second.
AGAIN = 50.0


class Attacker:
    """Where to, with which keys, and what came of it."""

    def __init__(self, port: int, keys: dict[str, list[str]], job: str) -> None:
        self.port = port
        self.keys = keys
        self.job = job
        self.seen: Counter[str] = Counter()

    def key(self, role: str, number: int = 0) -> str:
        """One of the keys of that role."""
        return self.keys[role][number % len(self.keys[role])]

    def ready(self) -> None:
        """Tell whoever measures that the attack is at its height."""
        print("ready", flush=True)

    async def line(self) -> Line | None:
        """A connection; None if there is none to be had."""
        try:
            async with asyncio.timeout(10):
                return await Line.open(self.port)
        except (OSError, TimeoutError):
            self.seen["no connection"] += 1
            return None

    async def hold(
        self, count: int, text: Callable[[int], bytes], *, rate: float = 200, reads: bool = True
    ) -> None:
        """Keep so many connections open that have sent that much; whoever is cut off comes again."""
        first, again = Pace(rate), Pace(AGAIN)

        async def one(number: int) -> None:
            gate = first
            while True:
                await gate.turn()
                gate = again
                line = await self.line()
                if line is None:
                    continue
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    line.writer.write(text(number))
                    self.seen["sent"] += 1
                    await self._stay(line, reads=reads)
                line.close()
                self.seen["ended"] += 1

        tasks = [asyncio.create_task(one(number)) for number in range(count)]
        while self.seen["sent"] < count:  # noqa: ASYNC110 - a look now and then is enough
            await asyncio.sleep(0.1)
        self.ready()
        await asyncio.gather(*tasks)

    async def _stay(self, line: Line, *, reads: bool) -> None:
        if not reads:
            line.reader._transport.pause_reading()  # type: ignore[attr-defined]  # noqa: SLF001
            while not line.writer.transport.is_closing():
                await asyncio.sleep(0.5)
                # Nothing tells of a reset while nothing is read: one more byte does.
                line.writer.write(b"\r\n")
            return
        first = await line.reader.read(65536)
        if first.startswith(b"HTTP/1.1 "):
            self.seen[first[9:12].decode()] += 1
            if first[9:10] != b"2":
                await asyncio.sleep(1)
                return
        while first:
            first = await line.reader.read(65536)

    async def flood(
        self, count: int, text: Callable[[int], bytes], *, rate: float, fresh: bool = False
    ) -> None:
        """Send request after request on so many connections, so many a second in all."""
        gate, numbers = Pace(rate), itertools.count()

        async def one() -> None:
            line: Line | None = None
            while True:
                await gate.turn()
                line = line or await self.line()
                if line is None:
                    continue
                try:
                    async with asyncio.timeout(60):
                        answer = await line.ask(text(next(numbers)))
                    self.seen[str(answer.status)] += 1
                    if not fresh and answer.headers.get("connection") != "close":
                        continue
                except (OSError, asyncio.IncompleteReadError, TimeoutError):
                    self.seen["cut off"] += 1
                line.close()
                line = None

        tasks = [asyncio.create_task(one()) for _ in range(count)]
        await asyncio.sleep(1)
        self.ready()
        await asyncio.gather(*tasks)


class Pace:
    """So many a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for the next moment."""
        now = asyncio.get_running_loop().time()
        self._next = max(self._next + 1 / self._rate, now)
        await asyncio.sleep(self._next - now)


async def waits(attacker: Attacker) -> None:
    """1,100 requests that wait 60 s for a job, sent and hung up, again and again."""
    text = request("GET", f"/api/v1/jobs/{attacker.job}?wait=60s", attacker.key("producer"))

    async def one() -> None:
        line = await attacker.line()
        if line is not None:
            line.writer.write(text)
            await line.writer.drain()
            line.close()
            attacker.seen["hung up"] += 1

    while True:
        for _ in range(11):
            await asyncio.gather(*(one() for _ in range(100)))
            await asyncio.sleep(0.1)
        attacker.ready()
        await asyncio.sleep(3)


async def half_bodies(attacker: Attacker) -> None:
    """1,200 posts with a valid key whose body never comes."""
    text = request("POST", "/api/v1/jobs", attacker.key("producer"), body=b'{"type": "a', length=1000)
    await attacker.hold(1_200, lambda _: text)


async def half_logins(attacker: Attacker) -> None:
    """1,200 log-ins without any key whose body never comes."""
    text = request("POST", "/login", body=b'{"key": "', length=500, more=f"Origin: http://{HOST}\r\n")
    await attacker.hold(1_200, lambda _: text)


async def idle(attacker: Attacker) -> None:
    """2,000 connections on which nothing comes."""
    await attacker.hold(2_000, lambda _: b"")


async def logins(attacker: Attacker) -> None:
    """Log-ins with wrong keys, 400 a second."""

    def text(number: int) -> bytes:
        wrong = f"wl_{number:012x}_{random.getrandbits(256):064x}"
        return request("POST", "/login", None, {"key": wrong}, more=f"Origin: http://{HOST}\r\n")

    await attacker.flood(50, text, rate=400)


async def slow_readers(attacker: Attacker) -> None:
    """300 connections that ask for some MB each and read nothing, half of them with a key."""
    texts = (
        10 * request("GET", "/openapi.json"),
        10 * request("GET", "/api/v1/jobs?limit=1000", attacker.key("viewer")),
    )
    await attacker.hold(300, lambda number: texts[number % 2], reads=False)


async def listeners(attacker: Attacker) -> None:
    """1,100 listeners to events, with five keys."""
    await attacker.hold(
        1_100, lambda number: request("GET", "/api/v1/stream", attacker.key("viewer", number))
    )


async def claims(attacker: Attacker) -> None:
    """1,100 workers that wait for jobs of a type that nobody enqueues, with five keys."""

    def text(number: int) -> bytes:
        form = {"worker": f"w{number}", "types": ["idle"], "wait": "60s"}
        return request("POST", "/api/v1/leases", attacker.key("worker", number), form)

    await attacker.hold(1_100, text, rate=60)


async def wrong_keys(attacker: Attacker) -> None:
    """Posts with keys that nobody has, 400 a second."""

    def text(number: int) -> bytes:
        return request("POST", "/api/v1/jobs", f"wl_{number:012x}_{'0' * 64}", {"type": "add"})

    await attacker.flood(50, text, rate=400)


async def deep_json(attacker: Attacker) -> None:
    """Bodies of 120 KB, nested 60,000 deep or with as many members, and some of 60 MB; 20 a second."""
    nested = b'{"type": "add", "payload": ' + b"[" * 60_000 + b"]" * 60_000 + b"}"
    members = ",".join(f'"{number}":{{}}' for number in range(10_000)).encode()
    wide = b'{"type": "add", "payload": {' + members + b"}}"
    key = attacker.key("producer")
    bodies = [request("POST", "/api/v1/jobs", key, body=body) for body in (nested, wide)]
    bodies.append(request("POST", "/api/v1/jobs", key, body=b"x" * 1000, length=60 * 2**20))
    await attacker.flood(10, lambda number: bodies[number % 3], rate=20)


async def lists(attacker: Attacker) -> None:
    """Searches through all payloads that find nothing, by one key on 20 connections."""
    text = request("GET", "/api/v1/jobs?limit=1000&where=payload.a%3D-1", attacker.key("viewer"))
    await attacker.flood(20, lambda _: text, rate=200)


async def waiters(attacker: Attacker) -> None:
    """10,000 requests that wait 60 s for a job, with four keys."""
    keys = [attacker.key("producer", number) for number in range(4)]
    texts = [request("GET", f"/api/v1/jobs/{attacker.job}?wait=60s", key) for key in keys]
    await attacker.hold(10_000, lambda number: texts[number % 4], rate=500)


ATTACKS: dict[str, Attack] = {
    each.__name__.replace("_", "-"): each
    for each in (
        waits,
        half_bodies,
        half_logins,
        idle,
        logins,
        slow_readers,
        listeners,
        claims,
        wrong_keys,
        deep_json,
        lists,
        waiters,
    )
}


async def attack(name: str, attacker: Attacker, seconds: float) -> None:
    """Attack until nobody wants it any more (its input ends), or the time is over."""
    stop = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    running: asyncio.Task[Any] = asyncio.ensure_future(ATTACKS[name](attacker))
    await asyncio.wait({running, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    print(json.dumps(dict(attacker.seen)), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=list(ATTACKS))
    parser.add_argument("port", type=int)
    parser.add_argument("job")
    parser.add_argument("keys", type=Path)
    chosen = parser.parse_args()
    asyncio.run(
        attack(chosen.name, Attacker(chosen.port, json.loads(chosen.keys.read_text()), chosen.job), 180)
    )
