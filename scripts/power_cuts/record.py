"""Record a real producer and worker on a store of their own.

As a program, `python -m power_cuts.record LOG STORE`, it checks a recording with the SQLite that made it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from power_cuts.disk import Disk, read
from power_cuts.verdict import jobs

HERE = Path(__file__).resolve().parent
LOCK_BYTES = 64
# How the processes of each life end. The second life begins with the log that the first has left behind, the
# third with none.
LIVES = ("die", "close", "die")
DIED = 9


class Setting(NamedTuple):
    """Which SQLite, who empties the log, and how commits are synced."""

    # A folder with the pysqlite3 package, or nothing for Python's own library.
    library: str
    checkpoints: str
    synchronous: str = "full"

    @property
    def environment(self) -> dict[str, str]:
        """For processes that use this library."""
        places = [str(HERE.parent), *([self.library] if self.library else [])]
        return os.environ | {"PYTHONPATH": os.pathsep.join(places)}


def compile_shim(folder: Path) -> Path:
    """Build the library that records."""
    shim = folder / "shim.so"
    words = ["cc", "-O2", "-shared", "-fPIC", "-o", str(shim), str(HERE / "shim.c"), "-ldl"]
    subprocess.run(words, check=True)
    return shim


def record(log: Path, setting: Setting, count: int) -> None:
    """Run all lives, and leave their log and the order of their commits."""
    with tempfile.TemporaryDirectory(prefix="windlass-cuts-") as name:
        work, lock = Path(name).resolve(), log.with_suffix(".lock")
        store = work / "store"
        store.mkdir()
        log.write_bytes(b"")
        lock.write_bytes(bytes(LOCK_BYTES))
        environment = setting.environment | {
            "LD_PRELOAD": str(compile_shim(work)),
            "POWER_CUTS_FOLDER": str(store),
            "POWER_CUTS_LOG": str(log),
            "POWER_CUTS_LOCK": str(lock),
        }
        for life, end in enumerate(LIVES):
            live(environment, lock, [str(life), str(count // len(LIVES)), end, *setting[1:]])
        words = [sys.executable, "-m", "power_cuts.record", str(log), str(store)]
        subprocess.run(words, env=setting.environment, check=True)


def live(environment: dict[str, str], lock: Path, words: list[str]) -> None:
    """One producer and one worker, from their start to their end."""
    app = [sys.executable, "-m", "power_cuts.app"]
    worker = subprocess.Popen([*app, "worker", *words], env=environment, stdin=subprocess.PIPE)
    producer = subprocess.Popen([*app, "producer", *words], env=environment)
    running = {"producer": producer, "worker": worker}
    while running:
        for role, process in list(running.items()):
            try:
                code = process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            del running[role]
            if code == DIED:
                # It held the lock.
                with lock.open("r+b") as file:
                    file.write(bytes(4))
            elif code:
                worker.kill()
                producer.kill()
                raise RuntimeError(f"the {role} failed with {code}")
            if role == "producer" and worker.stdin:
                worker.stdin.close()


def finish(log: Path, store: Path) -> None:
    """Compare the log with the files, and note in which order jobs were committed."""
    events = read(log)
    disk = Disk(events)
    disk.advance(len(events))
    for name, file in disk.names.items():
        if name not in (".", "marks") and file.whole() != (store / name).read_bytes():
            raise RuntimeError(f"{name} is not as the log says: the recorder has missed a write")
    log.with_suffix(".order").write_text("\n".join(jobs(store / "jobs.db")), encoding="utf-8")


if __name__ == "__main__":
    finish(*map(Path, sys.argv[1:]))
