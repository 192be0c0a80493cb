"""Where do tests get migrations from? Our own, and on top of them what each test brings."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from windlass.store import migration

DIALECTS = ("sqlite", "postgres")
# The number of our newest migration, and the name of the first one that a test brings.
OURS = migration.load("sqlite")[-1].number
FIRST = f"{OURS + 1:04}_test"


def shelf(folder: Path, *texts: str) -> Path:
    """A new folder of migrations within `folder`: ours and, after them, one for each text."""
    place = Path(tempfile.mkdtemp(dir=folder))
    for both in migration.FOLDER.glob("*.sql"):
        shutil.copy(both, place)
    for dialect in DIALECTS:
        shutil.copytree(migration.FOLDER / dialect, place / dialect)
        for number, text in enumerate(texts, OURS + 1):
            (place / dialect / f"{number:04}_test.sql").write_text(text)
    return place
