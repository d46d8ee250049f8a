"""The naive twin of window functions: each group sorted, each row's frame listed. Called by the dataflow's tests."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

from headrace.engine.operators.window import Window
from headrace.engine.operators.window_frames import Frame
from headrace.engine.operators.window_values import WindowFunction
from headrace.engine.schema import Schema
from tests.reference.dataflow import Content, Row, Twin, meets
from tests.reference.top import compared


def windowed(source: Twin, window: Window, tie: Callable[[Row], Any]) -> Twin:
    """`tie`: what rows are sorted by that the order calls equal."""
    schema = window.input
    kinds = [schema.columns[k].type for k in window.key]

    def before(one: Row, two: Row) -> int:
        found = compared(one, two, window.orders, schema)
        return found or (tie(one) > tie(two)) - (tie(one) < tie(two))

    def at(epoch: int) -> Content:
        rows, errors = source.at(epoch)
        groups: dict[Row, list[Row]] = {}
        for row, n in rows.items():
            of = tuple(meets(row[k], kind) for k, kind in zip(window.key, kinds, strict=True))
            groups.setdefault(of, []).extend([row] * max(n, 0))
        shown = Counter[Row]()
        for members in groups.values():
            members.sort(key=cmp_to_key(before))
            peers = [0]
            for one, two in itertools.pairwise(members):
                peers.append(peers[-1] + (compared(one, two, window.orders, schema) != 0))
            for place, row in enumerate(members):
                shown[(*row, *(value(f, members, peers, place, schema) for f in window.functions))] += 1
        return shown, errors

    return Twin(window.schema, at)


def value(function: WindowFunction, rows: Sequence[Row], peers: Sequence[int], at: int, schema: Schema) -> Any:
    """What the function says of the row at `at`."""
    name, size = function.name, len(rows)
    equals = [i for i in range(size) if peers[i] == peers[at]]
    if name == "row_number":
        return at + 1
    if name == "rank":
        return equals[0] + 1
    if name == "dense_rank":
        return peers[at] + 1
    if name == "percent_rank":
        return repr(equals[0] / (size - 1) if size > 1 else 0.0)
    if name == "cume_dist":
        return repr((equals[-1] + 1) / size)
    if name == "ntile":
        first = next((i for i, row in enumerate(rows) if not function.args or row[function.args[0]] is not None), size)
        if at < first:
            return None
        number = rows[first][function.args[0]] if function.args else function.number
        sizes = [size // number + (i < size % number) for i in range(number)]
        return next(i + 1 for i in range(number) if at - first < sum(sizes[: i + 1]))
    own = function.args[: len(function.args) - function.frame.reach]
    column = own[0] if own else 0
    if name in ("lag", "lead"):
        there = at + (function.number if name == "lead" else -function.number)
        return rows[there][column] if 0 <= there < size else None
    frame = counted(function, rows[at])
    seen = [rows[i] for i in range(size) if within(frame, i, at, peers)]
    if name == "nth_value":
        number = rows[at][own[1]] if len(own) > 1 else function.number
        return seen[number - 1][column] if number is not None and len(seen) >= number else None
    if name in ("first_value", "last_value"):
        return seen[-1 if name == "last_value" else 0][column] if seen else None
    if name == "count":
        return len([r for r in seen if not own or r[column] is not None])
    present = [r[column] for r in seen if r[column] is not None]
    if not present:
        return None
    if name == "sum":
        return sum(present) if isinstance(present[0], int) else sum(present, Decimal("0.00"))
    chosen = min if name == "min" else max
    return chosen(present, key=lambda v: meets(v, schema.columns[column].type))


def counted(function: WindowFunction, row: Row) -> Frame:
    """The frame, where columns of the row say how far off its bounds are."""
    frame = function.frame
    left = list(function.args[len(function.args) - frame.reach :])
    start, end = (
        side * max(row[left.pop(0)] or 0, 0) if side and frame.reach else side for side in (frame.start, frame.end)
    )
    return replace(frame, start=start, end=end)


def within(frame: Frame, place: int, at: int, peers: Sequence[int]) -> bool:
    """Whether a row is in the frame of the row at `at`."""
    here, own = (place, at) if frame.unit == "rows" else (peers[place], peers[at])
    return (frame.start is None or here >= own + frame.start) and (frame.end is None or here <= own + frame.end)
