"""On which store does kill_run.py run, what happens to it meanwhile, and is it sound in the end?"""

import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Protocol

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.history.record import Recorder, Verb  # found only by the line above
from tests.servers import standby

MAJOR = 15
# How long nobody notices that the primary is gone.
UNNOTICED_SECONDS = 3.0
# Between two outages, so that the recovery from each can be seen.
CALM_SECONDS = 4.0


class Place(Protocol):
    """A store for one run."""

    url: str

    def begin(self, recorder: Recorder) -> None:
        """The run begins: so does what happens to the store."""

    def finish(self) -> None:
        """Wait until all of that has happened."""

    def problems(self) -> list[str]:
        """What is not sound in the end."""

    def close(self) -> None:
        """Let go of it."""


class FilePlace:
    """One SQLite file, to which nothing happens."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "jobs.db"
        self.url = f"sqlite:///{self._path}"

    def begin(self, recorder: Recorder) -> None:
        """Nothing happens to a file."""

    def finish(self) -> None:
        """Nothing is to be waited for."""

    def problems(self) -> list[str]:
        """What PRAGMA integrity_check finds."""
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute("pragma wal_autocheckpoint = 0")
            found = [str(row[0]) for row in connection.execute("pragma integrity_check")]
        return [] if found == ["ok"] else found

    def close(self) -> None:
        """The folder is the caller's."""


class ServerPlace:
    """A primary with a synchronous standby: restarted at a quarter and at half of the time, then replaced."""

    def __init__(self, seconds: float) -> None:
        self._pair = standby.Pair(MAJOR, durable=True)
        self._name = self._pair.new_database()
        self.url = self._pair.url(self._name)
        self._error: BaseException | None = None
        plan = [(0.25, "restart", self._restart), (0.5, "restart", self._restart)]
        plan += [(0.75, "failover", self._fail_over)]
        self._plan = [(share * seconds, what, act) for share, what, act in plan]

    def begin(self, recorder: Recorder) -> None:
        """Let the outages take their course."""
        self._thread = threading.Thread(target=self._run, args=(recorder,), name="outages")
        self._thread.start()

    def finish(self) -> None:
        """Wait for the last of them."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def problems(self) -> list[str]:
        """What pg_amcheck finds in the tables and indexes of the server that took over."""
        program = standby.required(MAJOR) / "pg_amcheck"
        if not program.exists():
            return [f"{program} is missing, which checks the server's files"]
        folder = str(self._pair.standby.folder)
        words = ["--host", folder, "--username", "postgres", "--install-missing", "--heapallindexed"]
        done = subprocess.run([program, *words, self._name], capture_output=True, text=True, check=False)
        return (done.stdout + done.stderr).splitlines() if done.returncode else []

    def close(self) -> None:
        """Throw both servers away."""
        self._pair.close()

    def _run(self, recorder: Recorder) -> None:
        begun = time.monotonic()
        calm = 0.0
        try:
            for offset, what, act in self._plan:
                time.sleep(max(0.0, begun + offset - time.monotonic(), calm))
                with recorder.fault(Verb.OUTAGE, note=what):
                    act()
                calm = CALM_SECONDS
        except BaseException as error:  # noqa: BLE001 - raised by finish
            self._error = error

    def _restart(self) -> None:
        standby.stop_at_once(self._pair.primary)
        self._pair.primary.start()
        self._pair.wait_until_in_step()

    def _fail_over(self) -> None:
        standby.kill(self._pair.primary)
        time.sleep(UNNOTICED_SECONDS)
        self._pair.standby.promote()
