"""The demo's live picture: what arrives, how fresh it is, and the top of one view changing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

RIVER = "Postgres ─▶ Debezium ─▶ Kafka ─▶ headrace ─▶ Postgres, Kafka"


@dataclass
class Facts:
    """What the picture shows; the demo's loop keeps it up to date."""

    elapsed: float = 0.0
    duration: float = 0.0
    status: Mapping[str, Any] = field(default_factory=dict)
    events_per_second: float = 0.0
    epochs_per_second: float = 0.0
    top_view: str = ""
    top_columns: Sequence[str] = ()
    top_rows: Sequence[Sequence[object]] = ()
    lake: str = "starting"
    comparisons: int = 0
    frontiers: int = 0
    mismatches: int = 0
    connect: Sequence[str] = ()


def picture(facts: Facts) -> Group:
    """The whole picture."""
    return Group(
        Panel(Text(RIVER, style="bold cyan"), title="headrace demo", subtitle=_clock(facts)),
        _numbers(facts),
        _top(facts),
        *(Text(line, style="dim") for line in facts.connect),
    )


def _clock(facts: Facts) -> str:
    return f"{facts.elapsed:.0f} s" + (f" of {facts.duration:.0f} s" if facts.duration else ", Ctrl-C ends it")


def _numbers(facts: Facts) -> Table:
    stages = facts.status.get("stages_ms", {}).get("warehouse", {})
    total, own = stages.get("total", {}), stages.get("own", {})
    memory = facts.status.get("memory", {}).get("VmRSS", 0) / 2**20
    table = Table.grid(padding=(0, 3))
    rows = [
        ("rows a second", f"{facts.events_per_second:.0f}", "commit to visible p50 / p99",
         f"{total.get('p50', 0):.0f} / {total.get('p99', 0):.0f} ms"),
        ("epochs a second", f"{facts.epochs_per_second:.0f}", "of it our own share",
         f"{own.get('p50', 0):.0f} / {own.get('p99', 0):.0f} ms"),
        ("transactions", f"{facts.status.get('transactions', 0)}", "sidecar memory", f"{memory:.0f} MB"),
        ("Spark job", facts.lake, "compared with Postgres",
         f"{facts.frontiers} frontiers, {facts.comparisons} views, {facts.mismatches} differ"),
    ]  # fmt: skip
    for a, b, c, d in rows:
        table.add_row(Text(a, style="dim"), Text(b, style="bold"), Text(c, style="dim"), Text(d, style="bold"))
    return table


def _top(facts: Facts) -> Table:
    table = Table(title=f"headrace.{facts.top_view}", title_justify="left")
    for name in facts.top_columns:
        table.add_column(name)
    for row in facts.top_rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    return table
