"""What happens when the file of a store is taken away under a producer, a worker and a server?"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bad_day.stage import Scenario, Stage, StageBroken

APP = """
from windlass import Queue

queue = Queue()


@queue.job
def note(n: int) -> None:
    pass
"""

PRODUCER = """
import time
from app import note

n = 0
while True:
    n += 1
    begun = time.monotonic()
    try:
        job = note.enqueue(n)
        print("yes", begun, time.monotonic(), job.id, flush=True)
    except Exception as error:
        print("no", begun, time.monotonic(), type(error).__name__, flush=True)
        time.sleep(0.05)
    time.sleep(0.004)
"""

BEFORE, AFTER = 150, 4.0
HEALED_SECONDS = 30.0


class Answer(NamedTuple):
    """What a producer was told: when it asked, when it knew, and which job it was."""

    begun: float
    ended: float
    job: str


def play(stage: Stage) -> None:
    """Remove the file; move it away and back; put a backup in its place."""
    if stage.kind != "sqlite":
        stage.promise("does not apply: a PostgreSQL store is no file", held=True)
        return
    base = stage.folder
    for act in (_removed, _moved_away, _replaced):
        name = act.__name__.strip("_")
        folder = base / name
        folder.mkdir()
        (folder / "app.py").write_text(APP)
        (folder / "producer.py").write_text(PRODUCER)
        stage.folder, stage.url = folder, f"sqlite:///{folder}/jobs.db"
        with contextlib.closing(_Company(stage)) as company:
            act(stage, company)


def _removed(stage: Stage, company: _Company) -> None:
    store = stage.folder / "jobs.db"
    _, after = company.around(store.unlink)
    stage.promise(
        "rm: no job is accepted into a removed file",
        held=not after,
        seen=f"{len(after)} accepted within {AFTER:g} s, {company.refusals()} refused",
    )
    stage.promise("rm: no process makes an empty store in its place", held=not store.exists())
    done = stage.python("-c", "from app import note; print(note.enqueue(0).id)")
    first = done.stdout.strip()
    stage.promise(
        "rm: a new store is used by the processes that are open",
        held=bool(first) and _completes(stage, first) and company.goes_on(),
        seen=first or done.stderr.strip()[-200:],
    )
    company.close()
    _checked(stage, "rm", store)


def _moved_away(stage: Stage, company: _Company) -> None:
    store, old = stage.folder / "jobs.db", stage.folder / "moved" / "old.db"
    old.parent.mkdir()
    before, after = company.around(lambda: store.rename(old))
    stage.promise(
        "mv away: no job is accepted into a moved file",
        held=not after,
        seen=f"{len(after)} accepted within {AFTER:g} s",
    )
    lost = {answer.job for answer in before} - _ids(stage, old)
    stage.promise(
        "mv away: the moved file has every job that was accepted before",
        held=not lost,
        seen=f"{len(lost)} of {len(before)} missing",
    )
    _checked(stage, "mv away", old)
    old.rename(store)
    time.sleep(1)
    company.close()
    with contextlib.closing(_Company(stage)) as restarted:
        stage.promise("mv back: restarted processes go on", held=restarted.goes_on())
    lost = {answer.job for answer in company.answers()} - _ids(stage, store)
    stage.promise(
        "mv back: the file has every job that was ever accepted", held=not lost, seen=f"{len(lost)} missing"
    )
    _checked(stage, "mv back", store)


def _replaced(stage: Stage, company: _Company) -> None:
    store, backup = stage.folder / "jobs.db", stage.folder / "backup.db"
    made = stage.windlass("db", "backup", str(backup))
    if made.returncode:
        raise StageBroken(made.stderr)
    kept = _ids(stage, backup)
    _, after = company.around(lambda: backup.rename(store))
    found = _ids(stage, store)
    stage.promise(
        "replaced: a process that starts now finds the backup whole",
        held=kept <= found,
        seen=f"{len(kept - found)} of {len(kept)} missing",
    )
    went_on = company.goes_on()
    company.close()
    lost = {answer.job for answer in after} - _ids(stage, store)
    stage.promise(
        "replaced: every job accepted afterwards is in the new file",
        held=not lost,
        seen=f"{len(lost)} of {len(after)} missing, {company.refusals()} refused",
    )
    stage.promise("replaced: the processes that are open go on", held=went_on)
    _checked(stage, "replaced", store)


class _Company:
    """A producer, a worker and a server that have the store open."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._sent: list[Answer] = []
        self._refused = 0
        self._ended = threading.Event()
        self._port = _free_port()
        self._processes = [
            stage.worker("app:queue"),
            stage.start("-m", "windlass", "serve", "--port", str(self._port), log="server.log"),
            stage.start("producer.py", log="producer.log"),
        ]
        self._http = threading.Thread(target=self._send, daemon=True)
        self._http.start()
        if not stage.until(lambda: len(self.answers()) >= BEFORE and self._sent, 60):
            raise StageBroken(
                f"nothing is accepted:\n{stage.log('producer.log')}{stage.log('server.log')}"[-2000:]
            )

    def around(self, deed: Callable[[], object]) -> tuple[list[Answer], list[Answer]]:
        """Do the deed; what was accepted before it, and what was asked and accepted after it."""
        begun = time.monotonic()
        deed()
        done = time.monotonic()
        time.sleep(AFTER)
        answers = self.answers()
        return [each for each in answers if each.ended < begun], [
            each for each in answers if each.begun > done
        ]

    def answers(self) -> list[Answer]:
        """Every job that the producer or the server said yes to."""
        said = re.findall(r"^yes (\S+) (\S+) (\S+)$", self._stage.log("producer.log"), re.MULTILINE)
        return [Answer(float(begun), float(ended), job) for begun, ended, job in said] + self._sent

    def refusals(self) -> int:
        """How many jobs were refused."""
        return self._refused + len(re.findall("^no ", self._stage.log("producer.log"), re.MULTILINE))

    def goes_on(self) -> bool:
        """Whether the producer and the server say yes again, and the worker runs what they accept."""
        begun = time.monotonic()
        produced, served = self._stage.log("producer.log").count("yes "), len(self._sent)

        def both() -> bool:
            return self._stage.log("producer.log").count("yes ") > produced and len(self._sent) > served

        if not self._stage.until(both, HEALED_SECONDS):
            return False
        job = next(each for each in self.answers() if each.begun > begun).job
        return _completes(self._stage, job)

    def close(self) -> None:
        """End all of them."""
        self._ended.set()
        self._http.join()
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()

    def _send(self) -> None:
        body = json.dumps({"type": "note", "payload": {"n": 1}}).encode()
        url = f"http://127.0.0.1:{self._port}/api/v1/jobs"
        while not self._ended.wait(0.05):
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
            begun = time.monotonic()
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own
                    self._sent.append(Answer(begun, time.monotonic(), json.load(answer)["id"]))
            except (urllib.error.URLError, OSError):
                self._refused += 1


def _completes(stage: Stage, job: str) -> bool:
    def completed() -> bool:
        try:
            return bool(stage.job(job)["state"] == "completed")
        except StageBroken:
            return False

    return stage.until(completed, HEALED_SECONDS)


def _ids(stage: Stage, store: Path) -> set[str]:
    url, stage.url = stage.url, f"sqlite:///{store}"
    try:
        return {job["id"] for job in stage.jobs()}
    except StageBroken:
        return set()
    finally:
        stage.url = url


def _checked(stage: Stage, act: str, store: Path) -> None:
    done = stage.windlass("db", "check", "--db", str(store))
    said = (done.stdout + done.stderr).strip()[-200:]
    stage.promise(f"{act}: {store.name} passes windlass db check", held=done.returncode == 0, seen=said)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


SCENARIOS = [
    Scenario(
        "9",
        "lost-files",
        "the file of a store is removed, moved away or replaced under a producer, a worker and a server",
        play,
    )
]
