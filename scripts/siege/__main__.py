"""Can one caller take a server down? Each attack on each store, beside good posts; then the outage table."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
# This package, and the database servers of the tests.
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))

from siege.attacks import ATTACKS  # noqa: E402
from siege.outage import CASES, SIZES, outage  # noqa: E402
from siege.wire import HOST, Line, post, request  # noqa: E402
from tests.history.result import add_option, write_rows  # noqa: E402
from tests.servers import postgres  # noqa: E402

STORES = ("sqlite", "postgres")
# Good posts: so many a second, over so many connections, each used a few times.
RATE = 40.0
POSTERS = 8
USES = 5
QUIET_SECONDS = 8.0
ATTACK_SECONDS = 12.0
# What a good poster waits for an answer.
LONGEST = 10.0
# The promises.
LEAST_ANSWERED = 0.995
MOST_TIMES_SLOWER = 2.0
# Below this a p99 says nothing of the attack: without one, the disk's own noise makes it anything up to this.
FLOOR = 0.025
MOST_RESIDENT = 300 * 2**20
# By when whoever reads nothing must be cut off.
READ_SECONDS = 45.0
LEAST_CUT_OFF = 290
WINDOWS = 3
JOBS = 20_000

SETUP = """
import json, sys
from windlass import Queue
from windlass.ops import Ops
from windlass.ops.access import KeyWish

queue = Queue(sys.argv[1])

@queue.job
def add(a: int) -> None: ...

@queue.job
def idle() -> None: ...

queue.publish()
ops = Ops(queue.store, by="siege")
keys = {
    role: [ops.create_key(KeyWish(name=role, roles=(role,), rate=10_000.0)).key for n in range(5)]
    for role in ("producer", "viewer", "worker")
}
keys["good"] = [ops.create_key(KeyWish(name="good", roles=("producer",), rate=10_000.0)).key]
queue.enqueue_many(queue.draft("add", {"a": n}, delay="1d") for n in range(int(sys.argv[3])))
with open(sys.argv[2], "w") as file:
    json.dump(keys, file)
"""


class Measured(NamedTuple):
    """What became of the good posts of a while."""

    answers: Counter[str]
    seconds: list[float]

    @property
    def share(self) -> float:
        """Of all posts, those that were answered with 2xx."""
        good = sum(count for status, count in self.answers.items() if status.startswith("2"))
        return good / max(1, self.answers.total())

    @property
    def p99(self) -> float:
        """Seconds within which 99 of 100 were answered."""
        ordered = sorted(self.seconds)
        return ordered[int(0.99 * (len(ordered) - 1))] if ordered else LONGEST


async def good_posts(port: int, key: str, seconds: float) -> Measured:
    """A steady stream of posts; each counts from the moment when it was due."""
    loop = asyncio.get_running_loop()
    answers: Counter[str] = Counter()
    took: list[float] = []
    begin = loop.time()

    async def one(number: int, line: Line | None) -> Line | None:
        due = loop.time()
        try:
            async with asyncio.timeout(LONGEST):
                line = line or await Line.open(port)
                answer = await line.ask(post(number, key))
            answers[str(answer.status)] += 1
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            answers[type(error).__name__] += 1
            if line is not None:
                line.close()
            line = None
        took.append(loop.time() - due)
        return line

    async def poster(index: int) -> None:
        line: Line | None = None
        for turn in range(int(seconds * RATE / POSTERS)):
            await asyncio.sleep(max(0.0, begin + (turn * POSTERS + index) / RATE - loop.time()))
            if turn % USES == 0 and line is not None:
                line.close()
                line = None
            line = await one(turn, line)
        if line is not None:
            line.close()

    await asyncio.gather(*(poster(index) for index in range(POSTERS)))
    return Measured(answers, took)


class Place:
    """A folder, a store, and a server on it."""

    def __init__(self, folder: Path, kind: str, url: str, src: Path) -> None:
        self.folder = folder
        self.kind = kind
        self.port = _free_port()
        self._url = url
        self._env = {**os.environ, "PYTHONPATH": str(src), "WINDLASS_DATABASE_URL": url}
        self.keys_file = folder / "keys.json"
        (folder / "setup.py").write_text(SETUP)
        self.server: subprocess.Popen[bytes] | None = None

    def fill(self) -> None:
        """Make types, keys and jobs."""
        words = [sys.executable, "setup.py", self._url, str(self.keys_file), str(JOBS)]
        subprocess.run(words, cwd=self.folder, env=self._env, check=True, timeout=300)
        self.keys: dict[str, list[str]] = json.loads(self.keys_file.read_text())

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        words = [sys.executable, "-m", "windlass", "serve", "--port", str(self.port)]
        with (self.folder / "server.log").open("ab") as log:
            self.server = subprocess.Popen(words, cwd=self.folder, env=self._env, stdout=log, stderr=log)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1):
                return
            time.sleep(0.1)
        raise SystemExit(f"the server did not start:\n{(self.folder / 'server.log').read_text()[-2000:]}")

    def stop(self) -> None:
        """End the server."""
        if self.server is not None:
            self.server.send_signal(signal.SIGKILL)
            self.server.wait()

    def resident(self) -> int:
        """The memory that the server takes."""
        assert self.server is not None
        status = Path(f"/proc/{self.server.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    @contextlib.contextmanager
    def attacked(self, name: str, job: str) -> Iterator[subprocess.Popen[str]]:
        """An attack, from the moment when it is at its height."""
        script = str(Path(__file__).with_name("attacks.py"))
        # Attackers have machines of their own: their CPU time is not what they do to the server.
        words = ["nice", "-n", "19", sys.executable, script, name, str(self.port), job, str(self.keys_file)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            _await_line(process, 90)
            try:
                yield process
            finally:
                process.kill()


def _await_line(process: subprocess.Popen[str], seconds: float) -> None:
    """Until it says that it is ready, or that long: one that is held off is an attack as well."""
    assert process.stdout is not None
    select.select([process.stdout], [], [], seconds)


def siege(place: Place, name: str) -> tuple[bool, str]:
    """One attack: whether all promises held, and the line that says so."""
    place.start()
    try:
        key = place.keys["good"][0]
        asyncio.run(good_posts(place.port, key, 2))
        quiet = asyncio.run(good_posts(place.port, key, QUIET_SECONDS))
        job = asyncio.run(_a_job(place.port, place.keys["producer"]))
        with place.attacked(name, job) as attack:
            began = time.monotonic()
            under = [asyncio.run(good_posts(place.port, key, ATTACK_SECONDS))]
            # The noise of a machine passes, what an attack does stays: it is looked at again.
            while under[-1].p99 > _most(quiet) and len(under) < WINDOWS:
                under.append(asyncio.run(good_posts(place.port, key, ATTACK_SECONDS)))
            resident = place.resident()
            if name == "slow-readers":
                time.sleep(max(0.0, READ_SECONDS - (time.monotonic() - began)))
            seen = _seen(attack)
    finally:
        place.stop()
    answers = sum((each.answers for each in under), Counter[str]())
    share, p99 = Measured(answers, []).share, min(each.p99 for each in under)
    broken = []
    if share < LEAST_ANSWERED:
        broken.append(f"{100 * share:.1f} % of the good posts were answered")
    if p99 > _most(quiet):
        broken.append(f"p99 {1000 * p99:.0f} ms, at most {1000 * _most(quiet):.0f}")
    if resident > MOST_RESIDENT:
        broken.append(f"the server takes {resident >> 20} MB")
    if name == "slow-readers" and seen.get("ended", 0) < LEAST_CUT_OFF:
        broken.append(f"of 300 who read nothing {seen.get('ended', 0)} were cut off")
    verdict = "held" if not broken else "BROKEN: " + "; ".join(broken)
    return not broken, (
        f"  {name:<14} {place.kind:<9} quiet p99 {1000 * quiet.p99:4.0f} ms; under attack "
        f"{', '.join(f'{1000 * each.p99:.0f}' for each in under)} ms, {100 * share:.1f} % answered "
        f"{dict(answers)}, {resident >> 20} MB; attackers met {seen}   {verdict}"
    )


def _most(quiet: Measured) -> float:
    return max(MOST_TIMES_SLOWER * quiet.p99, FLOOR)


def _seen(attack: subprocess.Popen[str]) -> dict[str, int]:
    """What the attackers met."""
    assert attack.stdin is not None
    assert attack.stdout is not None
    attack.stdin.close()
    for line in attack.stdout:
        if line.startswith("{"):
            return dict(json.loads(line))
    return {}


async def _a_job(port: int, keys: list[str]) -> str:
    """A job that does not end."""
    line = await Line.open(port)
    form: dict[str, Any] = {"type": "add", "payload": {"a": 1}, "delay": "1d"}
    answer = await line.ask(request("POST", "/api/v1/jobs", keys[0], form))
    line.close()
    return str(json.loads(answer.body)["id"])


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as door:
        return int(door.getsockname()[1])


@contextlib.contextmanager
def placed(kind: str, src: Path) -> Iterator[Place]:
    """A store of that kind, filled."""
    with contextlib.ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="siege_")))
        if kind == "sqlite":
            url = f"sqlite:///{folder}/jobs.db"
        else:
            url = closing.enter_context(postgres.fresh(max(postgres.majors())))
        place = Place(folder, kind, url, src)
        place.fill()
        yield place


def main() -> int:
    """Play all; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=[*ATTACKS, "outage"], help="only this one")
    parser.add_argument("--store", choices=STORES, help="only on this store")
    parser.add_argument("--src", type=Path, default=ROOT / "src", help="the source tree to run")
    add_option(parser)
    options = parser.parse_args()
    # Other work of this machine must not be taken for the attack's, as far as that is ours to say.
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    src, rows = options.src.resolve(), []
    for kind in STORES:
        if options.store not in (None, kind):
            continue
        names = [name for name in ATTACKS if not options.only or name in options.only]
        if names:
            with placed(kind, src) as place:
                for name in names:
                    print(f"{name} on {kind}: {ATTACKS[name].__doc__}", flush=True)
                    rows.append(siege(place, name))
                    print(rows[-1][1], flush=True)
    if not options.only or "outage" in options.only:
        for case in CASES:
            if options.store in (None, case.kind):
                for size in SIZES:
                    rows.append(outage(case, size, src))
                    print(rows[-1][1], flush=True)
    broken = sum(not held for held, _ in rows)
    print(f"{len(rows) - broken} held, {broken} broken")
    write_rows(options.json, "siege", rows)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
