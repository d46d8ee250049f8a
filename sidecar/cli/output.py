"""Reports on the terminal: the same facts as tables (rich) or as one JSON object."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def emit(body: Mapping[str, Any], *, as_json: bool, tables: Iterable[Table] = ()) -> None:
    """One JSON object, or tables."""
    if as_json:
        sys.stdout.write(json.dumps(body, default=str) + "\n")
        return
    console = Console(highlight=False)
    for table in tables:
        console.print(table)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table of plain cells, shown as they are; numbers to the right."""
    out = Table(title=Text(title), title_justify="left", min_width=min(len(title), 78))
    filled = [list(row) for row in rows]
    for i, name in enumerate(columns):
        numeric = bool(filled) and all(isinstance(row[i], (int, float)) for row in filled)
        out.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in filled:
        out.add_row(*(cell if isinstance(cell, Text) else Text("" if cell is None else str(cell)) for cell in row))
    return out


def age_text(seconds: float | None) -> str:
    """An age as people read it.

    >>> [age_text(s) for s in (0.42, 75, 7200, None)]
    ['0.4 s', '75 s', '120 min', '']
    """
    if seconds is None:
        return ""
    if seconds < 600:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6 * 3600 else f"{seconds / 3600:.0f} h"


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
