"""Record a real producer and worker on a store of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from power_cuts.disk import Disk, read
from power_cuts.verdict import jobs

HERE = Path(__file__).resolve().parent
LOCK_BYTES = 64
# How the processes of each life end, and where a backup takes the place of the store instead. Who dies leaves
# a log behind, with which the next one begins.
LIVES = ("die", "close", "die", "restore", "die", "rename", "die")
SWAPS = ("restore", "rename")
BACKUP = "copy.db"
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


def record(log: Path, setting: Setting, count: int, lives: int) -> None:
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
        orders, least = [], 0
        for life, end in enumerate(LIVES[:lives]):
            if end in SWAPS:
                orders.append((least, committed(store)))
                least = len(committed(store, BACKUP))
            live(environment, lock, [str(life), str(count // lives), end, *setting[1:]])
        orders.append((least, committed(store)))
        compare(log, store)
    log.with_suffix(".orders").write_text(json.dumps(orders), encoding="utf-8")


def committed(store: Path, name: str = "jobs.db") -> list[str]:
    """The jobs of a store in the order of their commits; read from a copy: opening it would change it."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(store, folder, dirs_exist_ok=True)
        return list(jobs(Path(folder) / name))


def live(environment: dict[str, str], lock: Path, words: list[str]) -> None:
    """One producer and one worker, from their start to their end; or who puts a backup in place."""
    app = [sys.executable, "-m", "power_cuts.app"]
    running, pipe = {}, subprocess.PIPE
    if words[2] not in SWAPS:
        worker = subprocess.Popen([*app, "worker", *words], env=environment, stdin=pipe, stdout=pipe)
        # It is ready, or it has died.
        next(iter(worker.stdout or ()), None)
        running["worker"] = worker
    running["producer"] = subprocess.Popen([*app, "producer", *words], env=environment)
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
                for other in running.values():
                    other.kill()
                raise RuntimeError(f"the {role} failed with {code}")
            if role == "producer" and "worker" in running:
                running["worker"].communicate()


def compare(log: Path, store: Path) -> None:
    """See that the log says all: played to its end it must give the files as they are."""
    events = read(log)
    disk = Disk(events)
    disk.advance(len(events))
    for name, file in disk.names.items():
        if name not in (".", "marks") and file.whole() != (store / name).read_bytes():
            raise RuntimeError(f"{name} is not as the log says: the recorder has missed a write")
