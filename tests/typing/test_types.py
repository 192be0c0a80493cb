"""What does a type checker say about the calls that users write?"""

import contextlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent / "samples"
ROOT = SAMPLES.parents[2]


def complaints(path: Path, cache: Path) -> tuple[set[int], str]:
    """The lines that mypy complains about, and all that it says."""
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), str(path)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = {int(line) for line in re.findall(rf"{path.name}:(\d+): error:", said.stdout)}
    return lines, said.stdout + said.stderr


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    own = tmp_path_factory.mktemp("mypy") / "cache"
    # The checks before the tests have filled one; without it mypy reads everything anew. A copy, since it
    # locks what it writes to, and the other test may run in another process at the same time.
    with contextlib.suppress(FileNotFoundError):
        shutil.copytree(ROOT / ".mypy_cache", own)
    return own


def test_right_calls_pass(cache: Path) -> None:
    lines, said = complaints(SAMPLES / "right.py", cache)
    assert "Success" in said, said
    assert lines == set()


def test_each_wrong_call_is_found(cache: Path, tmp_path: Path) -> None:
    # Kept as text, so that the checks of the whole tree do not complain of it as well.
    path = Path(shutil.copy(SAMPLES / "wrong.txt", tmp_path / "wrong.py"))
    marked = {
        number for number, line in enumerate(path.read_text().splitlines(), 1) if line.endswith("# wrong")
    }
    lines, said = complaints(path, cache)
    assert lines == marked, said
