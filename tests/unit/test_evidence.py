"""Is docs/evidence.md what `make evidence` writes from the committed results, and is a wrong one refused?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from evidence import data, page  # noqa: E402 - found by the line above
from evidence.__main__ import DOCS, results  # noqa: E402 - likewise

from tests.history.result import Promise, write_document, write_result  # noqa: E402 - likewise


def written(folder: Path, name: str = "kill-run-sqlite", *, held: bool = True) -> Path:
    path = folder / f"{name}.json"
    write_result(
        path,
        name="kill-run",
        store="sqlite",
        injected={"kills": 20},
        counts={"accepted": 5000, "lost": 0 if held else 3, "doubled": 2},
        promises=[Promise("no accepted job is missing", held, "" if held else "a, b, c")],
        recovery_seconds=[0.5, 1.5],
        seed=7,
    )
    return path


def changed(path: Path, **changes: Any) -> None:
    document = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in document.items() if value is not None}))


def shown(folder: Path) -> str:
    return page.page(page.Results(data.read_all(folder), {}))


def test_the_committed_page_and_plots_are_what_the_committed_results_give() -> None:
    for name, text in page.texts(results()).items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, f"{name} is out of date: make evidence"


def test_a_result_is_shown_with_its_figures_and_its_command(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["kill_run.py", "--seconds=60", "--json=anywhere.json"])
    written(tmp_path)
    text = shown(tmp_path)
    assert "| [kill-run-sqlite](evidence/kill-run-sqlite.json) | 20 kills | 5,000 | 0 | 2 | 1 of 1 |" in text
    assert 'make kill-run ARGS="--seconds=60 --json=docs/evidence/kill-run-sqlite.json"' in text
    assert "| sqlite | 2 | 0.50 | 1.50 |" in text
    assert "recovery.svg" in page.plots(page.Results(data.read_all(tmp_path), {})).popitem()[0]


def test_a_broken_promise_is_shown_as_broken(tmp_path: Path) -> None:
    written(tmp_path, held=False)
    text = shown(tmp_path)
    assert "| 5,000 | 3 | 2 | **0 of 1** |" in text
    assert "**1 of 1 broken**: no accepted job is missing (a, b, c)" in text


def test_a_run_that_was_not_made_is_said_to_be_missing(tmp_path: Path) -> None:
    text = shown(tmp_path)
    for name in ("kill-run-sqlite", "server-kill-postgres", "power-cuts", "proofs", "soak-postgresql"):
        assert f"Not run for this page: {name}." in text
    assert "Planted bugs: not measured." in text


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"accepted": 5000}, "unknown field `accepted`"),
        ({"counts": None}, "missing required field `counts`"),
        ({"injected": {"kills": "many"}}, "Expected `int`, got `str`"),
    ],
)
def test_a_result_with_an_unknown_missing_or_wrong_field_is_refused(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    changed(written(tmp_path), **changes)
    with pytest.raises(data.BadResult, match=rf"kill-run-sqlite\.json: .*{named}"):
        data.read_all(tmp_path)


def test_a_file_that_no_run_writes_is_refused(tmp_path: Path) -> None:
    write_document(tmp_path / "rumours.json", name="rumours")
    with pytest.raises(data.BadResult, match=r"rumours\.json: no run writes"):
        data.read_all(tmp_path)


def test_planted_bugs_are_shown_whether_they_were_found_or_not() -> None:
    found = {
        "a retry without its fence": data.Mutant(found=True, seconds=12.5, promise="fenced", steps=9),
        "a lease that all extend": data.Mutant(found=False, seconds=600.0),
    }
    text = page.page(page.Results({}, found))
    assert "1 of 2 planted bugs that were played were found" in text
    assert "| a retry without its fence | sqlite | yes | 12.50 | fenced | 9 |" in text
    assert "| a lease that all extend | sqlite | **no** | 600 |" in text
