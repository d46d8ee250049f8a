"""The naive twin of the publisher's comparison: two dictionaries of rows by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Rows = Mapping[tuple[Any, ...], Any]


def changes(present: Rows, previous: Rows) -> dict[tuple[Any, ...], tuple[str, Any]]:
    """Key → (op, row after) of every key whose row differs; of a delete the row is None."""
    out: dict[tuple[Any, ...], tuple[str, Any]] = {}
    for key, row in present.items():
        if key not in previous:
            out[key] = ("c", row)
        elif repr(previous[key]) != repr(row):  # repr tells NaN from NaN never, and -0.0 from 0.0 always
            out[key] = ("u", row)
    for key in previous.keys() - present.keys():
        out[key] = ("d", None)
    return out
