"""Does the page about the code show the layers that are enforced?"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_shows_the_layers_that_are_enforced() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [enforced] = [each["layers"] for each in contracts if each["type"] == "layers"]
    page = (ROOT / "docs/internals.md").read_text(encoding="utf-8")
    shown = page.partition("## Layers")[2].split("```")[1].strip().splitlines()
    assert [re.split(r" {2,}", line)[0] for line in shown] == enforced
