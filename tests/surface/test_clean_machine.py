"""Does the command line work where only its own wheel is installed and nothing is configured?"""

from __future__ import annotations

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.waiting import PATIENCE, until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    """A new environment with the wheel of this tree and what the wheel itself requires; nothing else."""
    built = ("wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(ROOT))
    subprocess.run([sys.executable, "-m", "pip", *built], check=True, timeout=PATIENCE)
    [wheel] = tmp_path.glob("windlass-*.whl")
    place = tmp_path / "environment"
    venv.create(place, symlinks=True)
    install = ("--python", str(place), "install", "-q", "--no-index", "--no-deps", str(wheel))
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, timeout=PATIENCE)
    [packages] = place.glob("lib/python*/site-packages")
    # Without a network: each is copied as it is installed here.
    required = importlib.metadata.distributions(path=[str(packages)])
    wanted = [line for each in required for line in each.requires or () if ";" not in line]
    names = [re.split(r"[^\w-]", line)[0] for line in wanted]
    assert sorted(names) == ["click", "cronsim", "msgspec"]
    for name in names:
        for file in importlib.metadata.files(name) or ():
            if ".." not in file.parts:
                copy = packages / file
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(Path(str(file.locate())).read_bytes())
    return place


def test_a_job_is_enqueued_and_run_without_a_server_or_any_configuration(clean: Path, tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    # Nothing of this process: no variable, no PATH but the system's.
    bare = {"HOME": str(folder), "PATH": os.defpath}
    program = str(clean / "bin/windlass")

    def windlass(*words: str) -> str:
        done = subprocess.run(
            [program, *words],
            cwd=folder,
            env=bare,
            check=True,
            text=True,
            capture_output=True,
            timeout=PATIENCE,
        )
        return done.stdout

    windlass("enqueue", '{"id": "first", "command": "echo hello"}')
    words = [program, "worker", "start", "--count", "1"]
    with subprocess.Popen(words, cwd=folder, env=bare, stderr=subprocess.PIPE) as worker:
        try:
            until(lambda: '"completed"' in windlass("show", "first", "--json"), "the job is completed")
            worker.send_signal(signal.SIGTERM)
            _, said = worker.communicate(timeout=PATIENCE)
            assert worker.returncode == 0, said
        finally:
            worker.kill()
    assert "hello" in windlass("show", "first")
    # One file, and what belongs to it.
    assert {each.name.partition("-")[0] for each in folder.iterdir()} == {"windlass.db"}
