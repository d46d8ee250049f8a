"""The goals beside the peer that are missed: a table made of the figures, and what is known of each, written by hand.

Always: by how much a goal is missed comes from the figures alone, so that the words hold none that a benchmark measures anew;
what is written by hand says what a profile showed and what was tried. Called by `figures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sidecar.docs.markdown import table

Row = Mapping[str, Any]

HEAD = """## Goals beside the peer that are missed, and why

Furthest behind first, within each benchmark. The factor is how many times better ours would have to be.
"""

REASONS = {
    "arrange": "",
}
"""Benchmark → what its profile says, and what was tried."""

FURTHEST = ""
"""The places where we are furthest behind, and why."""


def missed(rows: Sequence[Row]) -> list[tuple[float, Row]]:
    """The rows whose goal is missed, by how many times, worst first; a goal of nothing at all has no factor."""
    found = []
    for row in rows:
        if row["met"] is False and row["goal"] and row["ours"]:
            rate = row["unit"].endswith("/s")
            found.append((row["goal"] / row["ours"] if rate else row["ours"] / row["goal"], row))
    return sorted(found, key=lambda one: -one[0])


def section(figures: Mapping[str, Sequence[Row]]) -> str:
    """The page's part; nothing where no goal with a reason is missed."""
    parts = []
    for name, why in REASONS.items():
        found = missed(figures.get(name, ()))
        if found:
            lines = [(row["name"], f"{factor:.2f}") for factor, row in found]
            parts.append(f"### `make bench-{name}`\n\n{table(('missed goal', 'factor'), lines)}\n{why}\n")
    return "\n".join([HEAD, FURTHEST, *parts]) if parts else ""
