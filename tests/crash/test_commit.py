"""Killed between a handler's write and its completion: both are there, or neither."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from tests.servers import postgres
from tests.waiting import WHOLE_RUN

SCRIPT = Path(__file__).parents[2] / "scripts/kill_commit.py"


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "options"), [(6, ()), (4, ("--process",))], ids=["thread", "process"])
@pytest.mark.parametrize("engine", ["sqlite", "postgres-15"])
def test_both_or_neither(engine: str, rounds: int, options: tuple[str, ...], tmp_path: Path) -> None:
    with fresh(engine, tmp_path) as url:
        words = [sys.executable, str(SCRIPT), "--rounds", str(rounds), "--database", url, *options]
        done = subprocess.run(words, capture_output=True, text=True, timeout=WHOLE_RUN, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{rounds} kills" in done.stdout


def fresh(engine: str, folder: Path) -> AbstractContextManager[str]:
    return nullcontext(f"sqlite:///{folder}/jobs.db") if engine == "sqlite" else postgres.fresh(15)
