"""Reports on the terminal: the same facts as tables (rich) or as one JSON object."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def emit(body: Mapping[str, Any], *, as_json: bool, tables: Iterable[Table] = ()) -> None:
    """One JSON object, or tables."""
    if as_json:
        sys.stdout.write(json.dumps(body, default=str) + "\n")
        return
    console = Console(highlight=False)
    for table in tables:
        console.print(table)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table of plain cells; numbers to the right."""
    out = Table(title=title, title_justify="left")
    filled = [list(row) for row in rows]
    for i, name in enumerate(columns):
        numeric = bool(filled) and all(isinstance(row[i], (int, float)) for row in filled)
        out.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in filled:
        out.add_row(*("" if cell is None else str(cell) for cell in row))
    return out


def bytes_text(size: float) -> str:
    """A size as people read it.

    >>> bytes_text(1536)
    '1.5 KiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def status_tables(status: Mapping[str, Any]) -> list[Table]:
    """The tables of `headrace status`."""
    sources = (
        (s["name"], s["type"], s["events"], s.get("lsn", ""), s["lag"], s.get("waiting") or "")
        for s in status["sources"]
    )
    views = (
        (v["name"], "in error" if v["errors"] else "fresh", v["epoch"], ", ".join(v["sinks"]), v.get("error") or "")
        for v in status["views"]
    )
    arrangements = (
        (a["name"], a["rows"], bytes_text(a["bytes"]), a["readers"], ", ".join(a["views"]))
        for a in status["arrangements"]
    )
    sinks = (
        (
            s["name"],
            s.get("state", ""),
            s["epoch"],
            s["behind"],
            bytes_text(s.get("backlog_bytes", 0)),
            s.get("error") or "",
        )
        for s in status["sinks"]
    )
    unread = [(s["name"], u["what"], u["why"]) for s in status["sources"] for u in s.get("unread", ())]
    tables = [
        table(f"{status['name']}: epoch {status['epoch']}, generation {status['generation']}",
              ("source", "type", "events", "LSN", "lag", "waits for"), sources),
        table("Views", ("view", "state", "epoch", "sinks", "error"), views),
        table("Arrangements (one copy, however many views read it)",
              ("arrangement", "updates", "memory", "readers", "views"), arrangements),
        table("Sinks", ("sink", "state", "epoch", "epochs behind", "waits", "why"), sinks),
    ]  # fmt: skip
    workers = [(w["worker"], w["pid"], w["cpu_seconds"], bytes_text(w["memory"])) for w in status.get("workers", ())]
    if workers:
        tables.append(table("Workers", ("worker", "process", "processor seconds", "memory"), workers))
    stopped = [
        (s["name"], t["table"], f"{t['missing']} events", t["error"])
        for s in status["sources"]
        for t in s.get("stopped", ())
    ]
    tests = [(t["test"], t["failing"], t["error"] or "") for t in status.get("data_tests", ())]
    if tests:
        tables.append(table("Data tests", ("what must hold", "rows that break it", "error"), tests))
    if stopped:
        tables.append(table("Tables that stand still", ("source", "table", "still to be read", "why"), stopped))
    lost = [
        (s["name"], f"{c['table']}.{c['column']}", "pauses its views" if c["pauses"] else "is NULL", c["why"])
        for s in status["sources"]
        for c in s.get("lost", ())
    ]
    if lost:
        tables.append(table("Columns that changed", ("source", "column", "state", "why"), lost))
    if unread:
        tables.append(table("In the source and in no view", ("source", "table or column", "why"), unread))
    return tables
