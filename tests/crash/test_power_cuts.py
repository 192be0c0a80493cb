"""Power fails at any point: what was acknowledged is there. A short form of scripts/power_cuts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import WHOLE_RUN

SCRIPT = Path(__file__).parents[2] / "scripts/power_cuts"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or not shutil.which("cc"), reason="the recorder needs Linux and cc"
    ),
]


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """On Python's own SQLite, with our checkpoints; the longer run has both of both."""
    words = [sys.executable, str(SCRIPT), "--own", "--checkpoints=ours", f"--keep={folder}", *options]
    return subprocess.run(words, capture_output=True, text=True, timeout=WHOLE_RUN, check=False)


def test_what_was_acknowledged_outlives_a_power_cut_and_planted_faults_are_found(tmp_path: Path) -> None:
    done = run(tmp_path, "--lives=3", "--jobs=90", "--cuts=200", "--planted=10")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^in all +200 +0$", done.stdout, re.MULTILINE), done.stdout
    planted = re.findall(r"^syncs of the (\w+) do nothing +(\d+)$", done.stdout, re.MULTILINE)
    assert {name for name, found in planted if int(found)} == {"log", "file", "folder"}
    assert not (tmp_path / "1").exists(), "a recording without a failure was kept"


def test_commits_that_do_not_wait_for_the_disk_are_found_and_can_be_replayed(tmp_path: Path) -> None:
    done = run(tmp_path, "--lives=1", "--jobs=30", "--cuts=30", "--planted=0", "--synchronous=normal")
    assert done.returncode == 1, done.stdout + done.stderr
    cut, problem = re.findall(r"--replay (1:\d+) \([a-z ]+\): ([^;\n]+)", done.stdout)[0]
    again = run(tmp_path, f"--replay={cut}")
    assert again.returncode == 1, again.stdout + again.stderr
    assert problem in again.stdout
