"""Write the rows of declared actions into the table of docs/how-to/operating.md; other rows stay."""

from __future__ import annotations

from pathlib import Path

import windlass.ops  # noqa: F401 - it declares the actions
from windlass.ops.actions import ACTIONS

PAGE = Path(__file__).resolve().parent.parent / "docs/how-to/operating.md"
HEAD = "| command | over HTTP"


def main() -> None:
    """Add the rows that are missing."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(HEAD)
    table, _, after = (HEAD + rest).partition("\n\n")
    rows = [
        f"| `windlass {each.command}` | `{each.method} /{each.path}` |"
        for each in ACTIONS.values()
        if each.command
    ]
    added = [row for row in rows if row not in table]
    PAGE.write_text(before + "\n".join([table, *added]) + "\n\n" + after, encoding="utf-8")


if __name__ == "__main__":
    main()
