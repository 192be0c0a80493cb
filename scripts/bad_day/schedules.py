"""Do schedules survive a rolling deploy? Two releases declare different ones, and old workers restart."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from bad_day.stage import Scenario, Stage

APP = """
from windlass import Queue

queue = Queue()

@queue.job
def note(schedule: str) -> None: ...

for name, every in {times}.items():
    queue.schedule(name, note, {{"schedule": name}}, every=every, overlap="queue")
"""

OLD = APP.format(times={"dropped": "1s", "both": "1s"})
NEW = APP.format(times={"added": "1s", "both": "2s"})
NEW_SECONDS = 2

GRACE_SECONDS = 6.0
WATCHED_SECONDS = 6.0
KILLS = 2
OLD_WORKERS = 2


class Roll:
    """Two folders with a release each."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        stage.write("old/app.py", OLD)
        stage.write("new/app.py", NEW)
        stage.windlass("config", "set", "schedules.orphan_after", f"{GRACE_SECONDS:g}s")
        self.old = stage.worker(
            "app:queue", "--count", str(OLD_WORKERS), cwd=stage.folder / "old", log="old.log"
        )
        stage.until(lambda: self._started() == OLD_WORKERS, 60)
        stage.until(lambda: self.fired("dropped") > 1, 30)
        self.new = stage.worker("app:queue", cwd=stage.folder / "new", log="new.log")
        stage.until(lambda: self.fired("added") > 1, 30)

    def _started(self) -> int:
        return self._stage.log("old.log").count("worker.started")

    def kill_an_old_worker(self) -> None:
        """By `kill -9`; its supervisor starts another one."""
        before = self._started()
        supervisor = self.old.pid
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        self._stage.until(lambda: self._started() > before, 60)

    def schedules(self) -> dict[str, dict[str, Any]]:
        """Every schedule by its name."""
        return {each["name"]: each for each in self._stage.json("schedule", "list")["schedules"]}

    def fired(self, name: str) -> int:
        """How many jobs a schedule has made."""
        return sum(str(job["key"]).startswith(f"schedule:{name}:") for job in self._stage.jobs())

    def fires_in(self, seconds: float) -> dict[str, int]:
        """How many jobs each schedule makes in this time."""
        before = {name: self.fired(name) for name in ("added", "both", "dropped")}
        time.sleep(seconds)
        return {name: self.fired(name) - count for name, count in before.items()}


def rolled(stage: Stage) -> None:
    """The old workers are killed and start again while the new release runs; then they stop."""
    roll = Roll(stage)
    for _ in range(KILLS):
        roll.kill_an_old_worker()
    made = roll.fires_in(WATCHED_SECONDS)
    stage.promise(
        "the new release's schedule goes on after an old worker's restart", held=made["added"] > 1, seen=made
    )
    stage.promise("so does the one that only the old release declares", held=made["dropped"] > 1, seen=made)
    both = roll.schedules()["both"]
    stage.promise(
        "the new release's timing holds", held=both["every"] == NEW_SECONDS, seen=f"every {both['every']} s"
    )
    told = stage.windlass("status").stdout
    advice = next((line.strip() for line in told.splitlines() if "schedule" in line.lower()), "nothing")
    stage.promise("status advises nobody to remove a schedule", held="remove" not in told, seen=advice)
    refused = stage.windlass("schedule", "remove", "dropped")
    stage.promise(
        "a removal is refused with the names of the workers that declare it",
        held=refused.returncode != 0 and "by workers" in refused.stderr,
        seen=refused.stderr.strip(),
    )
    roll.old.terminate()
    roll.old.wait(60)
    # Workers look once a minute.
    ended = stage.until(lambda: roll.schedules()["dropped"]["state"] == "withdrawn", GRACE_SECONDS + 90)
    made = roll.fires_in(WATCHED_SECONDS)
    stage.promise(
        "after the grace the dropped one ends, and the new release's goes on",
        held=ended and made["dropped"] == 0 and made["added"] > 1,
        seen=made,
    )
    removed = stage.windlass("schedule", "remove", "dropped")
    stage.promise(
        "then it can be removed", held=removed.returncode == 0, seen=(removed.stdout + removed.stderr).strip()
    )


SCENARIOS = (
    Scenario("15", "rolled-schedules", "two releases declare different schedules, old workers die", rolled),
)
