"""The top of docs/benchmarks.md: one line a benchmark, and the picture of how far each is from its goal or its peer.

Always: a pure function of the figures. Only what was measured counts: a figure that is quoted from another machine is neither
in the table nor in the picture. Called by `figures` and by `python -m tests.docs_build`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tests.docs_build.bars import Group, bars
from tests.docs_build.markdown import table

Row = Mapping[str, Any]
Rows = Sequence[Row]


def measured_peer(row: Row) -> bool:
    """Whether the row's peer was measured in the same run."""
    return row["peer_value"] is not None and "quoted" not in str(row["peer"])


def lead(rows: Rows, wanted: Sequence[str]) -> Row | None:
    """The row that stands for its benchmark: the first that README shows, else the first with a goal."""
    named = [row for row in rows if row["name"] in wanted]
    return next(iter([*named, *(row for row in rows if row["goal"] is not None)]), None)


def against_goal(row: Row) -> float | None:
    """How many times better than its goal; nothing where there is none, or where the goal is nothing at all.

    >>> against_goal({"goal": 10.0, "ours": 5.0, "unit": "ms"}), against_goal({"goal": 10.0, "ours": 5.0, "unit": "rows/s"})
    (2.0, 0.5)
    """
    if not row["goal"] or not row["ours"]:
        return None
    better = row["ours"] / row["goal"] if row["unit"].endswith("/s") else row["goal"] / row["ours"]
    return float(better)


def against_peer(rows: Rows) -> dict[str, float]:
    """Peer → the median of the ratios that were measured beside it."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if measured_peer(row) and row["ratio"]:
            found.setdefault(str(row["peer"]), []).append(row["ratio"])
    return {peer: statistics.median(ratios) for peer, ratios in found.items()}


def section(lines: Sequence[tuple[str, str, str, str, Rows]]) -> str:
    """The table. A line: the benchmark's title and command, its leading row's name and figure, all of its rows."""
    cells = []
    for title, command, name, figure, rows in lines:
        goals = [row for row in rows if row["goal"] is not None]
        met = f"{sum(row['met'] is True for row in goals)} of {len(goals)}" if goals else ""
        beside = ", ".join(f"{ratio:.2f} × {peer}" for peer, ratio in against_peer(rows).items())
        cells.append((title, name, figure, met, beside, f"`{command}`"))
    head = ("benchmark", "its first line", "measured", "goals met", "beside peers, median", "command")
    return table(head, cells)


def picture(leads: Sequence[Row], peers: Mapping[str, Rows]) -> str:
    """The bars: leading figures beside their goals, and the benchmarks with a peer beside it."""
    goals = [(row["name"], ratio) for row in leads if (ratio := against_goal(row)) is not None]
    beside = [
        (f"{title}: {peer}", ratio) for title, rows in peers.items() for peer, ratio in against_peer(rows).items()
    ]
    return bars([Group("Times better than the goal", goals), Group("Times better than the peer, median", beside)])
