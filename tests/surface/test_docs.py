"""Every page's Python, run from top to bottom as a reader would."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "transactions": ["pending", "{'order': 1}", "[(1,)]"],
    "context": ["['ann@example.org']"],
    "batches": ["990 completed, 10 dead", "waiting", "the catalogue is out"],
}


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs_as_printed(page: str, tmp_path: Path) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    (tmp_path / "page.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    for said in PAGES[page]:
        assert said in done.stdout
