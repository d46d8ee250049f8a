"""The values of window functions over sorted groups: ranks, neighbours, and aggregates over frames, all in columns.

Always: sums and counts of a frame are differences of running lanes, exact as those of a reduce; nothing here loops over
rows. Called by `window`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.batch.exported import Exported
from engine.batch.updates import Bools, Int64s
from engine.operators.aggregates import add_lanes, is_summable, result_of, slots_of
from engine.operators.expressions.ir import Aggregate
from engine.operators.ranks import ranks_of
from engine.schema import DataType, Schema

RANKS = frozenset({"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile"})
NEIGHBOURS = frozenset({"lag", "lead"})
ENDS = frozenset({"first_value", "last_value", "nth_value"})


@dataclass(frozen=True)
class Frame:
    """Which rows of its group a row looks at: `unit` rows, range or groups; from `start` to `end`, counted from its own
    (None: without bound).
    """

    unit: str
    start: int | None
    end: int | None


@dataclass(frozen=True)
class WindowFunction:
    """`name` over columns `args` of the input; `number`: the offset of lag and lead, n of nth_value, buckets of ntile."""

    name: str
    args: tuple[int, ...]
    type: DataType
    frame: Frame
    number: int = 1


class Places(NamedTuple):
    """Of each row: its group's first place and the one behind its last, those of its equals, and the equals' number.

    `starts`: where each set of equals begins, and the number of rows behind them.
    """

    low: Int64s
    high: Int64s
    first: Int64s
    behind: Int64s
    peers: Int64s
    starts: Int64s

    @classmethod
    def of(cls, groups: Int64s, peers: Int64s, size: int) -> Places:
        """From the places where groups and sets of equals begin."""
        (low, high), (first, behind) = (_spans(starts, size) for starts in (groups, peers))
        numbers = np.repeat(np.arange(len(peers)), np.diff(np.append(peers, size)))
        return cls(low, high, first, behind, numbers, np.append(peers, size))


def _spans(starts: Int64s, size: int) -> tuple[Int64s, Int64s]:
    ends = np.append(starts[1:], size)
    return np.repeat(starts, ends - starts), np.repeat(ends, ends - starts)


def keeps_frame(function: str, frame: Frame, arg: DataType | None, result: DataType) -> bool:
    """Whether an aggregate can be computed over such frames here."""
    if function in ("min", "max"):
        return arg is not None and (frame.start is None or frame.end is None)
    return is_summable(Aggregate(function, None, result), arg)


def value_of(
    function: WindowFunction, rows: pa.RecordBatch, schema: Schema, places: Places
) -> tuple[pa.Array, pa.Array | None]:
    """The function's values over rows sorted by group and order, and the messages of those that fail."""
    if function.name in RANKS:
        return _rank(function, places), None
    columns = [rows.column(a) for a in function.args]
    if function.name in NEIGHBOURS:
        at = np.arange(len(places.low)) + (function.number if function.name == "lead" else -function.number)
        inside = (at >= places.low) & (at < places.high)
        found = _taken(columns[0], at, inside)
        return (pc.if_else(pa.array(inside), found, columns[1]) if len(columns) > 1 else found), None
    start, end = _frames(function.frame, places)
    if function.name in ENDS:
        last = function.name == "last_value"
        at = end - 1 if last else start + (function.number - 1 if function.name == "nth_value" else 0)
        return _taken(columns[0], at, (at >= start) & (at < end)), None
    types = [schema.columns[a].type for a in function.args]
    if function.name in ("min", "max"):
        return _extreme(function, columns[0], types[0], places, (start, end)), None
    return _summed(function, columns, types, start, end)


def _rank(function: WindowFunction, places: Places) -> pa.Array:
    at = np.arange(len(places.low))
    rank = places.first - places.low
    size = places.high - places.low
    if function.name == "row_number":
        return pa.array(at - places.low + 1)
    if function.name == "rank":
        return pa.array(rank + 1)
    if function.name == "dense_rank":
        return pa.array(places.peers - places.peers[places.low] + 1)
    if function.name == "percent_rank":
        return pa.array(np.where(size > 1, rank / np.maximum(size - 1, 1), 0.0))
    if function.name == "cume_dist":
        return pa.array((places.behind - places.low) / size)
    # The first buckets have one row more where the rows do not divide.
    small, larger = size // function.number, size % function.number
    row = at - places.low
    border = larger * (small + 1)
    bucket = np.where(row < border, row // (small + 1), larger + (row - border) // np.maximum(small, 1))
    return pa.array((bucket + 1).astype(np.int32))


def _taken(column: pa.Array, at: Int64s, inside: Bools) -> pa.Array:
    return column.take(pa.array(np.where(inside, at, 0), mask=~inside))


def _frames(frame: Frame, places: Places) -> tuple[Int64s, Int64s]:
    """Where each row's frame begins, and the place behind its end."""
    low, high = places.low, places.high
    at = np.arange(len(low))
    start, end = low, high
    if frame.unit == "rows":
        if frame.start is not None:
            start = np.clip(at + frame.start, low, high)
        if frame.end is not None:
            end = np.clip(at + frame.end + 1, low, high)
    else:
        # A range that has a bound has the row's equals for it; groups count sets of equals.
        least, most = places.peers[low], places.peers[high - 1]
        if frame.start is not None:
            peer = places.peers + frame.start
            start = np.where(peer > most, high, places.starts[np.clip(peer, least, most)])
        if frame.end is not None:
            peer = places.peers + frame.end
            end = np.where(peer < least, low, places.starts[np.clip(peer, least, most) + 1])
    return start, np.maximum(end, start)


def _summed(
    function: WindowFunction, columns: list[pa.Array], types: list[DataType], start: Int64s, end: Int64s
) -> tuple[pa.Array, pa.Array | None]:
    """count, sum, avg, bool_and and bool_or."""
    if not columns:
        return pa.array(end - start), None
    (slot,) = slots_of([Aggregate(function.name, None, function.type)], [0], types)
    running = np.zeros((len(start) + 1, slot.width), np.int64)
    lanes = np.zeros((len(start), slot.width), np.int64)
    add_lanes(Exported(pa.RecordBatch.from_arrays(columns[:1], names=["value"])), 0, slot, lanes)
    # What stands where a value is NULL is no part of a sum.
    lanes[lanes[:, 0] == 0] = 0
    np.cumsum(lanes, axis=0, out=running[1:])
    return result_of(running[end] - running[start], slot)


def _extreme(
    function: WindowFunction, column: pa.Array, kind: DataType, places: Places, frame: tuple[Int64s, Int64s]
) -> pa.Array:
    """The least or greatest value of frames that begin or end with their group."""
    start, end = frame
    forward = function.frame.start is None
    _, first, ranks = np.unique(ranks_of(column, kind, images=True), return_index=True, return_inverse=True)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    least = function.name == "min"
    span = len(first) + 2
    group = np.cumsum(np.append(0, places.low[1:] != places.low[:-1]))
    group = group if forward else group[-1] - group
    # Groups further on lie beyond all before them, so that the running value begins anew with each.
    lane = np.where(valid, ranks + 1, span - 1 if least else 0) + (-group if least else group) * span
    running = np.minimum.accumulate if least else np.maximum.accumulate
    lane = running(lane) if forward else running(lane[::-1])[::-1]
    filled = end > start
    at = np.where(filled, end - 1 if forward else start, 0)
    rank = lane[at] - (-group if least else group)[at] * span - 1
    known = filled & (rank >= 0) & (rank < len(first))
    # A rank's first place may hold a NULL that looks like it.
    places_of = np.full(len(first), 0, np.int64)
    present = np.flatnonzero(valid)
    places_of[ranks[present[::-1]]] = present[::-1]
    return _taken(column, places_of[np.clip(rank, 0, len(first) - 1)], known)
