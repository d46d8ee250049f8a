"""The naive twin of the first rows of each group: sort them all, copy by copy. Called by the dataflow's tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cmp_to_key
from typing import Any

from headrace.engine.schema import Schema
from tests.reference.dataflow import Content, Row, Twin, meets

Sorting = tuple[int, bool, bool | None]
"""Column, descending, nulls first (None: as Postgres)."""


def compared(one: Row, two: Row, order: Sequence[Sorting], schema: Schema) -> int:
    """-1, 0 or 1 as Postgres orders the rows."""
    for column, descending, nulls_first in order:
        a, b = (meets(row[column], schema.columns[column].type) for row in (one, two))
        if a == b:
            continue
        if a is None or b is None:
            first = descending if nulls_first is None else nulls_first
            return -1 if (a is None) == first else 1
        a, b = (v.encode() if isinstance(v, str) else v for v in (a, b))
        return (-1 if a < b else 1) * (-1 if descending else 1)
    return 0


def top_k(
    source: Twin, key: Sequence[int], order: Sequence[Sorting], limit: int, offset: int, tie: Callable[[Row], Any]
) -> Twin:
    """`tie`: what rows are sorted by that the order calls equal; descending where the first column is."""
    kinds = [source.schema.columns[k].type for k in key]
    backward = bool(order) and order[0][1]

    def before(one: Row, two: Row) -> int:
        found = compared(one, two, order, source.schema)
        if found:
            return found
        a, b = tie(one), tie(two)
        return ((a > b) - (a < b)) * (-1 if backward else 1)

    def at(epoch: int) -> Content:
        rows, errors = source.at(epoch)
        groups: dict[Row, list[Row]] = {}
        for row, n in rows.items():
            of = tuple(meets(row[k], kind) for k, kind in zip(key, kinds, strict=True))
            groups.setdefault(of, []).extend([row] * n)
        shown = Counter[Row]()
        for members in groups.values():
            shown.update(sorted(members, key=cmp_to_key(before))[offset : offset + limit])
        return shown, errors

    return Twin(Schema(source.schema.columns), at)
