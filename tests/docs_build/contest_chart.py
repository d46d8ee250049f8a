"""The freshness contest as a picture: a panel for each quantity, and in it a bar for each system; shorter is better.

Always: a panel's axis is its own and begins at 0; one SVG that needs nothing else, readable on light and on dark ground; a pure
function of the rows of bench-freshness. Called for README and docs/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

PANELS = (
    ("commit → visible, p50", "commit → visible, p50, ms"),
    ("commit → visible, p95", "commit → visible, p95, ms"),
    ("commit → visible, p99", "commit → visible, p99, ms"),
    ("load until the views are right", "load until the views are right, s"),
    ("processor", "processor, cores"),
    ("resident", "resident memory, MB"),
    ("states that never were, one view", "visible states that never were, one view, of a hundred"),
    ("states that never were, views side by side", "… views side by side, of a hundred"),
)
"""What a row's name ends in, and the panel's title."""
OURS = "Headrace"
_LABEL, _WIDE, _VALUE, _ROW, _HEAD, _GAP = 200, 200, 60, 20, 26, 24
_STYLE = """
text{font:12px system-ui,sans-serif;fill:#1b2733}.title{font-weight:600}.ours{fill:#3c8a5f}.theirs{fill:#8a97a5}
.tick{font-size:11px;fill:#51667a}
@media (prefers-color-scheme:dark){text{fill:#e8eef4}.tick{fill:#a9bccd}.theirs{fill:#6b7a89}}
"""


def systems(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Who took part, in the order of the rows."""
    ending = f": {PANELS[0][0]}"
    return [str(r["name"]).removesuffix(ending) for r in rows if str(r["name"]).endswith(ending)]


def contest_chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """All panels, two side by side."""
    names = systems(rows)
    found = {str(r["name"]): r for r in rows}
    tall = _HEAD + _ROW * len(names) + _GAP
    across = _LABEL + _WIDE + _VALUE
    parts = []
    for k, (ending, title) in enumerate(PANELS):
        x, y = k % 2 * across, k // 2 * tall
        parts.append(f'<text class="title" x="{x + 4}" y="{y + 18}">{escape(title)}</text>')
        values = [_value(found.get(f"{name}: {ending}")) for name in names]
        most = max((v for v in values if v is not None), default=0.0) or 1.0
        for n, (name, value) in enumerate(zip(names, values, strict=True)):
            top = y + _HEAD + n * _ROW
            parts.append(f'<text x="{x + _LABEL - 8}" y="{top + 14}" text-anchor="end">{escape(name)}</text>')
            if value is not None:
                kind, wide = "ours" if name.startswith(OURS) else "theirs", max(1.0, value / most * _WIDE)
                parts.append(
                    f'<rect class="{kind}" x="{x + _LABEL}" y="{top + 3}" width="{wide:.1f}" height="{_ROW - 7}"/>'
                )
                parts.append(
                    f'<text class="tick" x="{x + _LABEL + wide + 5:.1f}" y="{top + 14}">{_figure(value)}</text>'
                )
    wide, high = 2 * across, tall * ((len(PANELS) + 1) // 2)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">'
        f"<style>{_STYLE}</style>{''.join(parts)}</svg>\n"
    )


def _value(row: Mapping[str, Any] | None) -> float | None:
    """A row's figure; states are counted of those that were read, which the note says."""
    if row is None:
        return None
    read = str(row.get("note", "")).removeprefix("of ").removesuffix(" states read")
    return float(row["ours"]) / max(1, int(read)) * 100 if read.isdigit() else float(row["ours"])


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
