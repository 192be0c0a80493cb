"""How does a figure look? Plain SVG: bars with the spread of the rounds, readable on light and dark pages."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

_WIDTH, _LABELS, _VALUES = 760, 190, 120
_ROW, _BAR, _TOP, _BOTTOM = 26, 16, 46, 14
_COLOURS = {"ours": "#c2410c", "peer": "#64748b", "raw": "#cbd5e1"}
_INK, _PALE, _PAPER = "#1e293b", "#64748b", "#ffffff"
_FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"


class Bar(NamedTuple):
    """One contender's bar; without a value the note says why."""

    label: str
    kind: str
    value: float | None
    low: float = 0.0
    high: float = 0.0
    text: str = ""
    note: str = ""
    # A line parts the groups.
    group: str = ""


def bars(title: str, subtitle: str, rows: list[Bar]) -> str:
    """A chart of horizontal bars as an SVG document."""
    height = _TOP + _ROW * len(rows) + _BOTTOM
    largest = max((row.high or row.value or 0.0 for row in rows), default=0.0) or 1.0
    scale = (_WIDTH - _LABELS - _VALUES) / largest
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}"'
            f' viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}" font-family="{_FONT}">'
        ),
        f'<rect width="{_WIDTH}" height="{height}" rx="6" fill="{_PAPER}"/>',
        _text(14, 20, title, size=14, weight=600),
        _text(14, 36, subtitle, size=11, colour=_PALE),
    ]
    for number, row in enumerate(rows):
        top = _TOP + _ROW * number
        if number and row.group != rows[number - 1].group:
            parts.append(f'<path d="M14 {top}H{_WIDTH - 14}" stroke="{_COLOURS["raw"]}" stroke-width="1"/>')
        parts += _row(row, top, scale)
    return "\n".join([*parts, "</svg>", ""])


def _row(row: Bar, top: float, scale: float) -> list[str]:
    middle = top + _ROW / 2
    weight = 600 if row.kind == "ours" else 400
    parts = [_text(_LABELS - 10, middle + 4, row.label, anchor="end", weight=weight)]
    if row.value is None:
        return [*parts, _text(_LABELS + 4, middle + 4, row.note, size=11, colour=_PALE)]
    width = max(1.0, row.value * scale)
    parts.append(
        f'<rect x="{_LABELS}" y="{middle - _BAR / 2:.1f}" width="{width:.1f}" height="{_BAR}" rx="2"'
        f' fill="{_COLOURS[row.kind]}"/>'
    )
    right = width
    if row.high > row.low:
        left, right = row.low * scale, max(width, row.high * scale)
        parts.append(
            f'<path d="M{_LABELS + left:.1f} {middle:.1f}H{_LABELS + row.high * scale:.1f}'
            f'M{_LABELS + left:.1f} {middle - 4:.1f}v8M{_LABELS + row.high * scale:.1f} {middle - 4:.1f}v8"'
            f' stroke="{_INK}" stroke-width="1" fill="none"/>'
        )
    return [*parts, _text(_LABELS + right + 6, middle + 4, row.text, weight=weight)]


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 12,
    colour: str = _INK,
    anchor: str = "start",
    weight: int = 400,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" fill="{colour}"'
        f' text-anchor="{anchor}">{escape(words)}</text>'
    )
