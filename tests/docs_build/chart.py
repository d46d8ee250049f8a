"""Measured points as a picture: panels of one line each, over axes from zero.

Always: one SVG that needs nothing else, readable on light and on dark ground; a pure function of the points. Called for the
pictures of the documentation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDE, _HIGH, _LEFT, _BELOW, _ABOVE, _GAP = 340, 170, 62, 44, 34, 30
_TICKS = 4
_STYLE = """
text{font:11px system-ui,sans-serif;fill:#1b2733}.title{font-weight:600;font-size:12px}.axis{stroke:#8aa0b4}
.grid{stroke:#dfe6ec}.line{stroke:#3367b5;stroke-width:1.6;fill:none}.dot{fill:#3367b5}
@media (prefers-color-scheme:dark){text{fill:#e8eef4}.grid{stroke:#2c3b48}.line{stroke:#7fa8e8}.dot{fill:#7fa8e8}}
"""
_MANY = 40
"""So many points are drawn as a line alone."""


@dataclass(frozen=True)
class Panel:
    """`points`: (x, y), in the order in which they are joined. `across`, `up`: what the axes say."""

    title: str
    across: str
    up: str
    points: Sequence[tuple[float, float]]


def ceiling(value: float) -> float:
    """The least round number (1, 2, 2.5 or 5 times a power of ten, times at most four) that is not below `value`.

    >>> ceiling(9.3), ceiling(10_000_000), ceiling(0.31), ceiling(0)
    (10.0, 10000000.0, 0.4, 1.0)
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(round(n * power, 10) for n in (1, 2, 2.5, 4, 5, 8, 10) if n * power >= value * (1 - 1e-9))


def chart(panels: Sequence[Panel]) -> str:
    """The panels, side by side."""
    wide = len(panels) * (_LEFT + _WIDE + _GAP)
    body = "".join(_panel(panel, at * (_LEFT + _WIDE + _GAP)) for at, panel in enumerate(panels))
    high = _ABOVE + _HIGH + _BELOW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">'
        f"<style>{_STYLE}</style>{body}</svg>\n"
    )


def _panel(panel: Panel, left: int) -> str:
    far = ceiling(max((x for x, _ in panel.points), default=1))
    top = ceiling(max((y for _, y in panel.points), default=1))

    def at(x: float, y: float) -> str:
        return f"{left + _LEFT + x / far * _WIDE:.1f},{_ABOVE + _HIGH - y / top * _HIGH:.1f}"

    parts = [f'<text class="title" x="{left + _LEFT}" y="16">{escape(panel.title)}</text>']
    for tick in range(_TICKS + 1):
        x, y = left + _LEFT + tick / _TICKS * _WIDE, _ABOVE + _HIGH - tick / _TICKS * _HIGH
        style = "axis" if tick == 0 else "grid"
        parts.append(f'<path class="{style}" d="M{left + _LEFT},{y:.1f}h{_WIDE}"/>')
        parts.append(
            f'<text x="{left + _LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(tick / _TICKS * top)}</text>'
        )
        parts.append(
            f'<text x="{x:.1f}" y="{_ABOVE + _HIGH + 16}" text-anchor="middle">{_number(tick / _TICKS * far)}</text>'
        )
    parts.append(
        f'<text x="{left + _LEFT + _WIDE}" y="{_ABOVE + _HIGH + 34}" text-anchor="end">{escape(panel.across)}</text>'
    )
    parts.append(f'<text x="{left + _LEFT - 6}" y="{_ABOVE - 10}" text-anchor="end">{escape(panel.up)}</text>')
    parts.append(f'<polyline class="line" points="{" ".join(at(x, y) for x, y in panel.points)}"/>')
    if len(panel.points) <= _MANY:
        dots = (at(x, y).split(",") for x, y in panel.points)
        parts += [f'<circle class="dot" cx="{x}" cy="{y}" r="3"/>' for x, y in dots]
    return "".join(parts)


def _number(value: float) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
