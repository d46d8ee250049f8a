"""Seconds of each epoch of a series as a picture: a panel a program, a line a side, and marks where ours switched.

Always: the seconds' axis is logarithmic, so that a small epoch and a large one are both seen; one SVG that needs nothing else,
readable on light and on dark ground; a pure function of the figures. Called for docs/benchmarks.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDE, _HIGH, _LEFT, _BELOW, _ABOVE, _GAP, _COLUMNS = 380, 190, 58, 40, 30, 24, 2
_LINE = 18
_SWITCHED = ("bootstrap", "dropped")
_COLORS = ("#3367b5", "#3c8a5f", "#b8603a", "#8a5bb0", "#b08a1e", "#51667a", "#8aa0b4")
_STYLE = """
text{font:11px system-ui,sans-serif;fill:#1b2733}.title{font-weight:600;font-size:12px}.grid{stroke:#dfe6ec}
polyline{fill:none;stroke-width:1.3}.ours{stroke-width:2.4}.forced{stroke-dasharray:3 3}.mark{fill:none;stroke-width:1.6}
@media (prefers-color-scheme:dark){text{fill:#e8eef4}.grid{stroke:#2c3b48}}
"""


@dataclass(frozen=True)
class Series:
    """Seconds of each epoch by side, ours the first; `ways`: how ours followed each epoch's changes."""

    title: str
    seconds: Mapping[str, Sequence[float]]
    ways: Sequence[str]


def epochs_chart(panels: Sequence[Series]) -> str:
    """The panels, two in a row, below the legend."""
    sides = list(dict.fromkeys(side for panel in panels for side in panel.seconds))
    colors = {side: _COLORS[k % len(_COLORS)] for k, side in enumerate(sides)}
    legend, top = _legend(colors)
    wide, high = _LEFT + _WIDE + _GAP, _ABOVE + _HIGH + _BELOW
    body = [_panel(panel, colors, at % _COLUMNS * wide, top + at // _COLUMNS * high) for at, panel in enumerate(panels)]
    across = wide * min(_COLUMNS, max(len(panels), 1))
    down = top + high * math.ceil(len(panels) / _COLUMNS)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {down}" width="{across}" height="{down}">'
        f"<style>{_STYLE}</style>{legend}{''.join(body)}</svg>\n"
    )


def _kind(side: str) -> str:
    return "ours" if side == "ours" else "forced" if side.endswith("alone") else "peer"


def _legend(colors: Mapping[str, str]) -> tuple[str, int]:
    """The sides and the mark, three in a row, and how high that is."""
    parts, across = [], 280
    for k, (side, color) in enumerate(colors.items()):
        x, y = 8 + k % 3 * across, 14 + k // 3 * _LINE
        parts.append(f'<polyline class="{_kind(side)}" stroke="{color}" points="{x},{y - 4} {x + 26},{y - 4}"/>')
        parts.append(f'<text x="{x + 32}" y="{y}">{escape(side)}</text>')
    x, y = 8 + len(colors) % 3 * across, 14 + len(colors) // 3 * _LINE
    parts.append(f'<circle class="mark" stroke="{_COLORS[0]}" cx="{x + 13}" cy="{y - 4}" r="5"/>')
    parts.append(f'<text x="{x + 32}" y="{y}">ours began anew</text>')
    return "".join(parts), y + 10


def _panel(panel: Series, colors: Mapping[str, str], left: float, top: float) -> str:
    shown = [max(value, 1e-5) for values in panel.seconds.values() for value in values]
    low, high = math.floor(math.log10(min(shown))), math.ceil(math.log10(max(shown)))
    high = max(high, low + 1)
    last = max(len(values) for values in panel.seconds.values())

    def at(epoch: int, value: float) -> tuple[float, float]:
        share = (math.log10(max(value, 1e-5)) - low) / (high - low)
        x = left + _LEFT + (epoch / max(last - 1, 1)) * _WIDE
        return round(x, 1), round(top + _ABOVE + (1 - share) * _HIGH, 1)

    parts = [f'<text class="title" x="{left + _LEFT}" y="{top + 16}">{escape(panel.title)}</text>']
    for power in range(low, high + 1):
        _, y = at(0, 10.0**power)
        parts.append(f'<path class="grid" d="M{left + _LEFT},{y}h{_WIDE}"/>')
        parts.append(f'<text x="{left + _LEFT - 6}" y="{y + 4}" text-anchor="end">{_seconds(power)}</text>')
    for epoch in range(last):
        x, _ = at(epoch, 1.0)
        parts.append(f'<text x="{x}" y="{top + _ABOVE + _HIGH + 16}" text-anchor="middle">{epoch + 1}</text>')
    for side, values in reversed(list(panel.seconds.items())):
        points = " ".join("{},{}".format(*at(epoch, value)) for epoch, value in enumerate(values))
        parts.append(f'<polyline class="{_kind(side)}" stroke="{colors[side]}" points="{points}"/>')
    ours = next(iter(panel.seconds.values()))
    for epoch, way in enumerate(panel.ways):
        if way in _SWITCHED:
            x, y = at(epoch, ours[epoch])
            parts.append(f'<circle class="mark" stroke="{_COLORS[0]}" cx="{x}" cy="{y}" r="5"/>')
    return "".join(parts)


def _seconds(power: int) -> str:
    """A power of ten as people read seconds.

    >>> [_seconds(p) for p in (-4, -3, -1, 0, 2)]
    ['0.1 ms', '1 ms', '100 ms', '1 s', '100 s']
    """
    return f"{10.0**power:g} s" if power >= 0 else f"{10.0 ** (power + 3):g} ms"
