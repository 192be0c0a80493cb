"""Does a rolling deploy cost a job? Two releases of one application on one store."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any

from bad_day.stage import Scenario, Stage
from tests.servers.ports import free_port

OLD = """
import time
from windlass import Queue

queue = Queue()

@queue.job
def resize(photo: int) -> str:
    time.sleep(0.01)
    return "old"

@queue.job
def mail(number: int) -> str:
    return "old"
"""

# The change that the documentation calls safe: a new parameter with a default.
NEW = OLD.replace("photo: int)", "photo: int, quality: int = 1)").replace('"old"', '"new"')

# Enqueues jobs by handle and by name, and says what was refused.
PRODUCE = """
import sys, time
from app import mail, queue, resize
from windlass.errors import WindlassError

name, count, every = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
accepted, refused = 0, []
for number in range(count):
    wide = {"photo": number, "quality": 2}
    narrow = {"photo": number}
    for way in ("handle", "name"):
        for payload in ([wide, narrow] if name == "new" else [narrow]):
            try:
                if way == "handle":
                    resize.enqueue(**payload)
                else:
                    queue.enqueue("resize", payload)
                accepted += 1
            except WindlassError as error:
                refused.append(f"{way} {error}")
    time.sleep(every)
print("accepted", accepted, "refused", len(refused), *refused[:3], flush=True)
"""


HALF = 50
SOON = 20.0


class Roll:
    """Two folders with a release each, and what runs of them."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        for name, text in (("old", OLD), ("new", NEW)):
            stage.write(f"{name}/app.py", text)
            stage.write(f"{name}/produce.py", PRODUCE)
        self._port = free_port()

    def folder(self, release: str) -> Path:
        """Where a release's code is."""
        return self.stage.folder / release

    def worker(self, release: str) -> subprocess.Popen[bytes]:
        """Start a worker of a release."""
        return self.stage.worker("app:queue", cwd=self.folder(release))

    def produce(
        self, release: str, count: int, every: float = 0.0, log: str = "producers.log"
    ) -> subprocess.Popen[bytes]:
        """Start a producer of a release: by handle and by name."""
        words = ("produce.py", release, str(count), str(every))
        return self.stage.start(*words, cwd=self.folder(release), log=log)

    def serve(self) -> None:
        """`windlass serve` without an application: it knows types from the catalogue alone."""
        self.stage.start("-m", "windlass", "serve", "--port", str(self._port), log="serve.log")
        self.stage.until(lambda: self._asked("GET", "/health")[0] == HTTPStatus.OK, 30)

    def post(self, payload: dict[str, Any]) -> int:
        """Enqueue over HTTP; the answer's status."""
        return self._asked("POST", "/jobs", {"type": "resize", "payload": payload})[0]

    def patch(self, job: str, payload: dict[str, Any]) -> int:
        """Change a waiting job's payload over HTTP; the answer's status."""
        return self._asked("PATCH", f"/jobs/{job}", {"payload": payload})[0]

    def _asked(self, verb: str, path: str, body: object = None) -> tuple[int, bytes]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/api/v1{path}",
            method=verb,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - our own server
                return int(answer.status), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            return 0, b""


def a_new_parameter(stage: Stage) -> None:
    """Only workers of the old release run when the new one's producers begin."""
    roll = Roll(stage)
    roll.worker("old")
    roll.produce("new", HALF // 2).wait(60)
    # By handle and by name, half of them with the new parameter.
    stage.until(lambda: stage.states("--type", "resize").get("completed", 0) >= HALF, 30)
    states = stage.states("--type", "resize")
    stage.promise("no job dies of another release", held="dead" not in states, seen=states)
    stage.promise("what the old release can read runs", held=states.get("completed") == HALF, seen=states)
    waiting = stage.jobs("--type", "resize", "--state", "pending")
    stage.promise(
        "the other jobs wait with all their attempts",
        held=len(waiting) == HALF and {job["attempts"] for job in waiting} == {0},
        seen=f"{len(waiting)} wait, attempts {sorted({job['attempts'] for job in waiting})}",
    )
    begun = time.monotonic()
    stage.windlass("enqueue", "mail", '{"number": 1}')
    stage.until(lambda: stage.states("--type", "mail") == {"completed": 1}, SOON)
    stage.promise(
        "jobs behind them do not wait",
        held=time.monotonic() - begun < SOON,
        seen=stage.states("--type", "mail"),
    )
    before = sum(job["claims"] for job in stage.jobs("--type", "resize", "--state", "pending"))
    time.sleep(5)
    after = sum(job["claims"] for job in stage.jobs("--type", "resize", "--state", "pending"))
    stage.promise("the old worker does not try again", held=after == before, seen=f"{before}, {after} claims")
    told = stage.windlass("doctor").stdout
    line = next((each for each in told.splitlines() if "payload.quality" in each), "")
    stage.promise("doctor names type, field and count", held="50 jobs of resize" in line, seen=line.strip())
    roll.worker("new")
    stage.until(lambda: stage.states("--type", "resize") == {"completed": 100}, 40)
    states = stage.states("--type", "resize")
    stage.promise("a worker of the new release runs them", held=states == {"completed": 100}, seen=states)


def an_old_process_restarts(stage: Stage) -> None:
    """The catalogue must keep what the new release said; after a roll back the rest can be dealt with."""
    roll = Roll(stage)
    roll.serve()
    old, new = roll.worker("old"), roll.worker("new")
    answers = [roll.post({"photo": 1, "quality": 2})]
    for _ in range(2):
        old.send_signal(signal.SIGTERM)
        old.wait(30)
        old = roll.worker("old")
        roll.produce("old", 1).wait(30)
        # Servers read the catalogue every few seconds.
        time.sleep(6)
        answers.append(roll.post({"photo": 1, "quality": 2}))
    stage.promise("producers over HTTP are never refused", held=set(answers) == {201}, seen=answers)
    done = stage.windlass("enqueue", "resize", '{"photo": 2, "quality": 3}')
    stage.promise(
        "nor are producers by name", held=done.returncode == 0, seen=(done.stderr or "accepted").strip()
    )
    stage.until(lambda: set(stage.states("--type", "resize")) == {"completed"}, 30)
    new.send_signal(signal.SIGTERM)
    new.wait(30)
    # Rolled back, with three jobs left over that nobody can read.
    answers = [roll.post({"photo": 3, "quality": 2}) for _ in range(3)]
    stage.until(lambda: "3 jobs of resize" in stage.windlass("status").stdout, 20)
    status = stage.windlass("status").stdout
    found = next((line.strip() for line in status.splitlines() if "payload.quality" in line), status[:200])
    stage.promise("status names what is left over", held="3 jobs of resize" in found, seen=found)
    left = [job["id"] for job in stage.jobs("--type", "resize", "--state", "pending")]
    why = stage.windlass("explain", left[0]).stdout if left else "nothing is left over"
    stage.promise("explain says why", held="no running worker can read it" in why, seen=why.strip()[:160])
    edited = roll.patch(left[0], {"photo": 3}) if left else 0
    stage.until(lambda: bool(left) and stage.job(left[0])["state"] == "completed", 20)
    stage.promise(
        "an edited payload runs",
        held=edited == HTTPStatus.OK and stage.job(left[0])["state"] == "completed",
        seen=edited,
    )
    buried = stage.windlass("bury", left[1], "--yes") if left else None
    stage.promise(
        "the others can be buried",
        held=buried is not None and stage.job(left[1])["state"] == "dead",
        seen=(buried.stdout + buried.stderr).strip() if buried else "",
    )


def rolling(stage: Stage) -> None:
    """Forward, back, forward under load, and a worker killed at each step."""
    roll = Roll(stage)
    roll.serve()
    fleet = {"old": [roll.worker("old")], "new": [roll.worker("new")]}
    producers = [roll.produce(release, 150, 0.1, f"{release}.log") for release in ("old", "new")]
    sent: dict[int, int] = {}
    photo = 10_000

    def load(seconds: float) -> None:
        nonlocal photo
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            photo += 1
            answer = roll.post({"photo": photo, "quality": 2} if photo % 2 else {"photo": photo})
            sent[answer] = sent.get(answer, 0) + 1
            time.sleep(0.02)

    for going, coming in (("old", "new"), ("new", "old"), ("old", "new")):
        load(1.5)
        fleet[coming].append(roll.worker(coming))
        for worker in fleet[going]:
            worker.kill() if worker is fleet[going][0] else worker.send_signal(signal.SIGTERM)
        load(1.5)
        # The other release's last process, restarted in the middle of it all.
        fleet[going] = [roll.worker(going)]
    for producer in producers:
        load(0.5)
        producer.wait(120)
    told = {name: stage.log(f"{name}.log").strip() for name in ("old", "new")}
    accepted = sent.get(201, 0) + sum(int(line.split()[1]) for line in told.values() if "accepted" in line)
    stage.promise(
        "no producer by handle or name is refused",
        held=all(" refused 0" in line for line in told.values()),
        seen=told,
    )
    stage.promise("no producer over HTTP is refused", held=set(sent) == {201}, seen=sent)
    stage.until(lambda: stage.states().get("completed", 0) >= accepted, 60)
    states = stage.states()
    stage.promise(
        "every accepted job completes",
        held=states == {"completed": accepted},
        seen=f"{accepted} accepted, {states}",
    )


SCENARIOS = [
    Scenario("1", "new-parameter", "a new release's jobs meet workers of the old one", a_new_parameter),
    Scenario(
        "2", "old-restart", "an old process restarts, and the deploy is rolled back", an_old_process_restarts
    ),
    Scenario("3", "rolling-drill", "forward, back and forward again under load, workers killed", rolling),
]
