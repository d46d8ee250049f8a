"""Ratios as a picture: one bar a ratio, to the right of the line at 1 where it is better and to the left where it is worse.

Always: the axis is logarithmic, so that twice as good and half as good are bars of one length; one SVG that needs nothing
else, readable on light and on dark ground; a pure function of the ratios. Called for the top of docs/benchmarks.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_LABEL, _WIDE, _VALUE, _ROW, _HEAD = 400, 420, 60, 22, 30
_STYLE = """
text{font:12px system-ui,sans-serif;fill:#1b2733}.title{font-weight:600;font-size:13px}.one{stroke:#51667a;stroke-width:1.5}
.good{fill:#3c8a5f}.bad{fill:#b8603a}.tick{font-size:11px;fill:#51667a}.grid{stroke:#dfe6ec}
@media (prefers-color-scheme:dark){text{fill:#e8eef4}.tick{fill:#a9bccd}.grid{stroke:#2c3b48}.one{stroke:#a9bccd}}
"""


@dataclass(frozen=True)
class Group:
    """Bars under one title: a label and a ratio above 0 each."""

    title: str
    bars: Sequence[tuple[str, float]]


def bars(groups: Sequence[Group]) -> str:
    """The groups, one below the other, on one axis."""
    ratios = [ratio for group in groups for _, ratio in group.bars]
    low = min(-1, math.floor(min((math.log2(r) for r in ratios), default=0)))
    high = max(1, math.ceil(max((math.log2(r) for r in ratios), default=0)))

    def across(ratio: float) -> float:
        return _LABEL + (math.log2(ratio) - low) / (high - low) * _WIDE

    parts, y = [], 0.0
    for group in groups:
        parts.append(f'<text class="title" x="4" y="{y + 20:g}">{escape(group.title)}</text>')
        y += _HEAD
        for label, ratio in group.bars:
            left, right = sorted((across(1), across(ratio)))
            kind = "good" if ratio >= 1 else "bad"
            parts.append(f'<text x="{_LABEL - 8}" y="{y + 15:g}" text-anchor="end">{escape(label)}</text>')
            parts.append(
                f'<rect class="{kind}" x="{left:.1f}" y="{y + 4:g}" width="{right - left:.1f}" height="{_ROW - 8}"/>'
            )
            parts.append(f'<text class="tick" x="{right + 5:.1f}" y="{y + 15:g}">{ratio:.2g}×</text>')
            y += _ROW
    ticks = [2.0**power for power in range(low, high + 1)]
    lines = [f'<path class="{"one" if t == 1 else "grid"}" d="M{across(t):.1f},{_HEAD}V{y:g}"/>' for t in ticks]
    names = [f'<text class="tick" x="{across(t):.1f}" y="{y + 16:g}" text-anchor="middle">{t:g}×</text>' for t in ticks]
    wide, tall = _LABEL + _WIDE + _VALUE, y + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall:g}" width="{wide}" height="{tall:g}">'
        f"<style>{_STYLE}</style>{''.join((*lines, *parts, *names))}</svg>\n"
    )
