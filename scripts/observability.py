"""Writes what is made from the tables in windlass/observe: the rule file, and the tables of the page.

Run it after a change there: `.venv/bin/python scripts/observability.py`. A test compares them.
"""

from __future__ import annotations

from pathlib import Path

from windlass.observe.alerts import ALERTS
from windlass.observe.firing import rules
from windlass.observe.metrics import KEPT, OWN, SERVICES, STANDING, TENANTS, Metric

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "observability.md"


def files() -> dict[Path, str]:
    """What each file should hold."""
    page = PAGE.read_text(encoding="utf-8")
    for name, table in tables().items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        page = before + table + rest.partition(end)[2]
    return {
        PAGE: page,
        ROOT / "deploy" / "prometheus" / "windlass.rules.yml": rules(),
    }


def tables() -> dict[str, str]:
    """The tables of the page, by name, with the marks around them."""
    found = {
        "counted metrics": _metrics(KEPT),
        "service metrics": _metrics(SERVICES),
        "tenant metrics": _metrics(TENANTS),
        "standing metrics": _metrics(STANDING),
        "worker metrics": _metrics(OWN),
        "alerts": _alerts(),
    }
    return {
        name: "\n".join([f"<!-- {name} -->", *lines, f"<!-- end of {name} -->"])
        for name, lines in found.items()
    }


def _metrics(metrics: tuple[Metric, ...]) -> list[str]:
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} | {each.help} |"
        for each in metrics
    ]
    return ["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows]


def _alerts() -> list[str]:
    rows = [
        f"| `{each.name}` | {each.severity} | {_span(each.lasting.total_seconds())} | {each.summary} | "
        f"`{each.condition.text.replace('|', chr(92) + '|')}` |"
        for each in ALERTS
    ]
    return ["| alert | severity | for | what is wrong | condition |", "|---|---|---|---|---|", *rows]


def _span(seconds: float) -> str:
    return "at once" if not seconds else f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"  # noqa: PLR2004 - a minute


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
