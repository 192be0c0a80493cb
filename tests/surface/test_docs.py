"""Does the documentation tell the truth? Every Python snippet runs, in the order of its page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import windlass
import windlass.testing
from tests.waiting import WHOLE_RUN

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SNIPPET = re.compile(r'^```python(?: title="(?P<file>[\w.]+)")?\n(?P<code>.*?)^```', re.DOTALL | re.MULTILINE)
WITH_SNIPPETS = [page for page in PAGES if SNIPPET.search(page.read_text(encoding="utf-8"))]
# What a reader sees on some of the pages.
PRINTED = {
    "transactions.md": ["pending", "{'order': 1}", "[(1,)]"],
    "context.md": ["['ann@example.org']"],
    "schedules.md": ["[('ping.gateway', 'paused')]"],
    "batches.md": ["990 completed, 10 dead", "waiting", "the catalogue is out"],
}


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_snippet_runs(page: Path, tmp_path: Path) -> None:
    steps: list[str] = []
    tests: list[str] = []
    for found in SNIPPET.finditer(page.read_text(encoding="utf-8")):
        if found["file"] is None:
            steps.append(found["code"])
            continue
        (tmp_path / found["file"]).write_text(found["code"], encoding="utf-8")
        if found["file"].startswith("test_"):
            tests.append(found["file"])
    (tmp_path / "page.py").write_text("\n".join(steps), encoding="utf-8")
    printed = _run(tmp_path, "-W", "error", "page.py")
    for said in PRINTED.get(page.name, []):
        assert said in printed
    for test in tests:
        _run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", test)


def test_the_pages_are_all_in_the_navigation() -> None:
    named = set(re.findall(r'"([\w/-]+\.md)"', (ROOT / "zensical.toml").read_text(encoding="utf-8")))
    there = {str(page.relative_to(ROOT / "docs")) for page in PAGES if ROOT / "docs" in page.parents}
    assert named - {"reference.md"} == there - {"reference.md"}


def test_every_decision_has_its_number_a_date_and_a_status() -> None:
    for page in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        title, _, dated, *_ = page.read_text(encoding="utf-8").split("\n")
        assert title.startswith(f"# {page.name[:3]}: "), page.name
        assert re.match(r"Date: \d{4}-\d\d-\d\d\. Status: (accepted|replaced by \d{3})\.", dated), page.name


def _check_the_reference(page: str) -> None:
    """It has every public name, with its docstring."""
    for name in (*windlass.__all__, *windlass.testing.__all__):
        assert f"### `{name}`\n" in page
    assert "- `enqueue(*args: P.args, **kwargs: P.kwargs) -> JobHandle`: Store a job" in page
    assert "Nothing is opened before it is first used" in page


def test_the_site_is_built_without_a_warning_or_a_foreign_host() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/docs.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _check_the_reference((ROOT / "docs/reference.md").read_text(encoding="utf-8"))
    pages = list((ROOT / "site").rglob("*.html"))
    assert len(pages) >= len(PAGES) - 8
    for page in pages:
        html = page.read_text(encoding="utf-8")
        assert not re.search(r'<(script|link)[^>]+(src|href)="https?://', html), page


def _run(folder: Path, *words: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=clean,
        capture_output=True,
        text=True,
        timeout=WHOLE_RUN,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
