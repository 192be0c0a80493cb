"""On what was it measured?"""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from pathlib import Path

from bench.environments import ROOT
from bench.places import POSTGRES_OPTIONS, REDIS_OPTIONS, Places, filesystem


def machine() -> dict[str, str]:
    """The machine, in words for a report."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "memory": f"{memory:.0f} GB",
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "file system": filesystem(),
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
    }


def servers(places: Places, kinds: set[str]) -> dict[str, str]:
    """The servers and what was set on them."""
    told = {}
    if "postgres" in kinds:
        options = ", ".join(f"{name}={value}" for name, value in POSTGRES_OPTIONS.items())
        told["PostgreSQL"] = (
            f"{places.version('postgres')}, fsync and synchronous_commit on, {options}, by socket"
        )
    if "redis" in kinds:
        options = ", ".join(f"{name}={value}" for name, value in REDIS_OPTIONS.items() if value)
        told["Redis"] = f"{places.version('redis')}, {options}, by loopback"
    return told


def commit() -> str:
    """What of this tree was measured."""
    words = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "no commit"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
