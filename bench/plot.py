"""How does a figure look? Plain SVG: bars with their spread, and curves, readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
    parts = _head(title, subtitle, height)
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


# --- curves over time, and distributions ---

_PANEL, _EDGE, _RIGHT, _PANEL_TOP = 132, 64, 150, 30
_STROKES = ("#c2410c", "#2563eb", "#059669", "#7c3aed", "#b45309")
_MARKS = ("#dc2626", "#ca8a04", "#2563eb", "#64748b")
_MINUTE = 60.0
Points = Sequence[tuple[float, float | None]]


class Panel(NamedTuple):
    """Curves over one axis of time, from zero; a point without a value is a gap."""

    title: str
    curves: Mapping[str, Points]
    # On a scale of powers of ten, from 1 on: so that one peak does not flatten the rest.
    powers: bool = False


def panels(
    title: str, subtitle: str, shown: Sequence[Panel], marks: Mapping[str, Sequence[float]] | None = None
) -> str:
    """Panels one below the other over the same seconds, with moments that are marked in all of them."""
    marks = marks or {}
    top = _TOP + (20 if marks else 0)
    height = top + _PANEL * len(shown) + 30
    last = max((x for each in shown for curve in each.curves.values() for x, _ in curve), default=1.0) or 1.0
    scale = (_WIDTH - _EDGE - _RIGHT) / last
    parts = [*_head(title, subtitle, height), *_legend(marks)]
    for number, moments in enumerate(marks.values()):
        places = "".join(
            f"M{_EDGE + at * scale:.1f} {top}V{top + _PANEL * len(shown) - 24}" for at in moments
        )
        colour = _MARKS[number % len(_MARKS)]
        parts.append(f'<path d="{places}" stroke="{colour}" stroke-width="1" opacity="0.35" fill="none"/>')
    for number, panel in enumerate(shown):
        parts += _panel(panel, top + _PANEL * number, scale)
    parts += _axis(last, scale, height - 16)
    return "\n".join([*parts, "</svg>", ""])


def _head(title: str, subtitle: str, height: float) -> list[str]:
    return [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}"'
            f' viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}" font-family="{_FONT}">'
        ),
        f'<rect width="{_WIDTH}" height="{height}" rx="6" fill="{_PAPER}"/>',
        _text(14, 20, title, size=14, weight=600),
        _text(14, 36, subtitle, size=11, colour=_PALE),
    ]


def _legend(marks: Mapping[str, Sequence[float]]) -> list[str]:
    parts, x = [], 14.0
    for number, (name, moments) in enumerate(marks.items()):
        words = f"{name} ({len(moments)})"
        parts.append(f'<path d="M{x} 44v12" stroke="{_MARKS[number % len(_MARKS)]}" stroke-width="2"/>')
        parts.append(_text(x + 6, 54, words, size=11, colour=_PALE))
        x += 24 + 6.2 * len(words)
    return parts


def _panel(panel: Panel, top: float, scale: float) -> list[str]:
    floor, ceiling = top + _PANEL - 24, top + _PANEL_TOP
    values = [y for curve in panel.curves.values() for _, y in curve if y is not None]
    most = max(values, default=1.0) or 1.0
    height = _height(panel, most)
    parts = [_text(_EDGE, top + 20, panel.title, weight=600)]
    for value in _lines(panel, most):
        y = floor - height(value) * (floor - ceiling)
        dashes = "" if y == floor else ' stroke-dasharray="2 3"'
        parts.append(f'<path d="M{_EDGE} {y:.1f}H{_WIDTH - _RIGHT}" stroke="{_COLOURS["raw"]}"{dashes}/>')
        parts.append(_text(_EDGE - 6, y + 4, number_text(value), size=11, colour=_PALE, anchor="end"))
    for number, (name, curve) in enumerate(panel.curves.items()):
        colour = _STROKES[number % len(_STROKES)]
        placed = [(x, None if y is None else floor - height(y) * (floor - ceiling)) for x, y in curve]
        parts.append(f'<path d="{_path(placed, scale)}" stroke="{colour}" stroke-width="1.4" fill="none"/>')
        y = ceiling + 14 * number + 4
        parts.append(_text(_WIDTH - _RIGHT + 10, y, name, size=11, colour=colour, weight=600))
    return parts


def _height(panel: Panel, most: float) -> Callable[[float], float]:
    """How high a value is in its panel, from 0 to 1."""
    if not panel.powers:
        return lambda value: value / most
    powers = max(1.0, math.ceil(math.log10(most)))
    return lambda value: max(0.0, math.log10(max(value, 1.0)) / powers)


def _lines(panel: Panel, most: float) -> list[float]:
    """The values at which a panel has a line."""
    if not panel.powers:
        return [0.0, most / 2, most]
    return [10.0**power for power in range(max(1, math.ceil(math.log10(most))) + 1)]


def _path(curve: Points, scale: float) -> str:
    parts, pen = [], "M"
    for x, y in curve:
        if y is None:
            pen = "M"
            continue
        parts.append(f"{pen}{_EDGE + x * scale:.1f} {y:.1f}")
        pen = "L"
    return "".join(parts)


def _axis(last: float, scale: float, y: float) -> list[str]:
    unit, name = (_MINUTE, "min") if last > 3 * _MINUTE else (1.0, "s")
    rough = last / unit / 6
    step = next(each for each in (0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 10_000) if each >= rough)
    count = int(last / unit / step)
    return [
        _text(
            _EDGE + n * step * unit * scale, y, f"{n * step:g} {name}", size=11, colour=_PALE, anchor="middle"
        )
        for n in range(count + 1)
    ]


def number_text(value: float) -> str:
    """A number for an axis, short."""
    if value >= 10_000:  # noqa: PLR2004 - five digits need a separator
        return f"{value / 1000:,.0f}k"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"  # noqa: PLR2004 - two digits are enough


def shares(values: Sequence[float]) -> list[tuple[float, float | None]]:
    """How many percent of the values are at most as large: the curve of a distribution."""
    ordered = sorted(values)
    points: list[tuple[float, float | None]] = [(0.0, 0.0)]
    for number, value in enumerate(ordered, 1):
        points += [(value, 100 * (number - 1) / len(ordered)), (value, 100 * number / len(ordered))]
    return points
