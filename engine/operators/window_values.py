"""The values of window functions over sorted groups: ranks, neighbours, and aggregates over frames, all in columns.

Always: sums and counts of a frame are differences of running lanes, exact as those of a reduce; nothing here loops over
rows. Called by `window`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.updates import Bools, Int64s
from headrace.engine.operators.aggregates import add_lanes, is_summable, message_where, result_of, slots_of
from headrace.engine.operators.expressions.core.ir import Aggregate
from headrace.engine.operators.ranks import ranks_of
from headrace.engine.operators.sliding_window import float_sums, folded, is_folded, least_of, numeric_sums
from headrace.engine.operators.window_frames import Frame, Places, Run, runs_of
from headrace.engine.schema import DataType, Kind, Schema

RANKS = frozenset({"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile"})
_FLOATS = (Kind.REAL, Kind.DOUBLE)
NEIGHBOURS = frozenset({"lag", "lead"})
ENDS = frozenset({"first_value", "last_value", "nth_value"})


@dataclass(frozen=True)
class WindowFunction:
    """`name` over columns `args` of the input; `number`: the offset of lag and lead (which may be their third column
    instead), n of nth_value (or its second column), buckets of ntile (or its column).
    """

    name: str
    args: tuple[int, ...]
    type: DataType
    frame: Frame
    number: int = 1


def keeps_frame(function: str, arg: DataType | None, result: DataType) -> bool:
    """Whether an aggregate can be computed over frames here."""
    if function in ("min", "max"):
        return arg is not None
    if function in ("sum", "avg") and arg is not None and arg.kind in (*_FLOATS, Kind.NUMERIC):
        return True
    return is_summable(Aggregate(function, None, result), arg) or is_folded(function, arg)


def value_of(
    function: WindowFunction, rows: pa.RecordBatch, schema: Schema, places: Places
) -> tuple[pa.Array, pa.Array | None]:
    """The function's values over rows sorted by group and order, and the messages of those that fail."""
    if function.name in RANKS and not function.args:
        return _rank(function, places), None
    columns = [rows.column(a) for a in function.args]
    if function.name in RANKS:
        return _ntile(columns[0], places)
    if function.name in NEIGHBOURS:
        return _neighbour(function, columns, places), None
    frame = function.frame
    own = len(columns) - frame.reach
    types = [schema.columns[a].type for a in function.args]
    runs = runs_of(frame, places, columns[own:], types[own:])
    columns, types = columns[:own], types[:own]
    if function.name in ENDS:
        return _end(function, columns, runs)
    if function.name in ("min", "max"):
        if len(runs) == 1 and (frame.start is None or frame.end is None):
            return _extreme(function, columns[0], types[0], places, runs[0]), None
        return _taken(columns[0], *least_of(columns[0], types[0], runs, greatest=function.name == "max")), None
    if types and types[0].kind in _FLOATS and function.name in ("sum", "avg"):
        return float_sums(columns[0], runs, mean=function.name == "avg", kind=function.type)
    if types and types[0].kind is Kind.NUMERIC and not types[0].fixed_scale and function.name in ("sum", "avg"):
        return numeric_sums(columns[0], runs, mean=function.name == "avg")
    if types and is_folded(function.name, types[0]):
        return folded(function.name, columns[0], runs, function.type)
    return _summed(function, columns, types, runs)


def _neighbour(function: WindowFunction, columns: list[pa.Array], places: Places) -> pa.Array:
    """lag and lead: of a value, what stands where there is no such row, and by how many rows if that is no constant."""
    steps: Int64s | int = function.number
    if len(columns) > 2:
        steps = pc.fill_null(columns[2], 0).to_numpy(zero_copy_only=False).astype(np.int64)
    at = np.arange(len(places.low)) + (steps if function.name == "lead" else -steps)
    inside = (at >= places.low) & (at < places.high)
    found = _taken(columns[0], at, inside)
    if len(columns) > 1:
        found = pc.if_else(pa.array(inside), found, columns[1])
    return pc.if_else(columns[2].is_valid(), found, pa.scalar(None, found.type)) if len(columns) > 2 else found


def _end(
    function: WindowFunction, columns: Sequence[pa.Array], runs: Sequence[Run]
) -> tuple[pa.Array, pa.Array | None]:
    """first_value, last_value and nth_value: a place counted through the runs of the frame."""
    column, *counted = columns
    sizes = [end - start for start, end in runs]
    total = np.sum(sizes, axis=0)
    asked, valid = _counts(counted[0]) if counted else (np.full(len(total), function.number), np.True_)
    wanted = total - 1 if function.name == "last_value" else asked - 1
    if function.name == "first_value":
        wanted = np.zeros(len(total), np.int64)
    inside = (wanted >= 0) & (wanted < total) & valid
    fault = message_where(valid & (asked <= 0), "argument of nth_value must be greater than zero") if counted else None
    at = np.zeros(len(total), np.int64)
    for (start, _), size in zip(runs, sizes, strict=True):
        here = (wanted >= 0) & (wanted < size)
        at = np.where(here, start + wanted, at)
        wanted = np.where(here, -1, wanted - size)
    return _taken(column, at, inside), fault


def _counts(column: pa.Array) -> tuple[Int64s, Bools]:
    """The numbers of a column, and where there are any."""
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64), valid


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
    return pa.array(_buckets(at - places.low, size, np.full(len(at), function.number)))


def _buckets(row: Int64s, size: Int64s, number: Int64s) -> npt.NDArray[np.int32]:
    """The bucket of each place. Where the rows do not divide evenly the first buckets have one row more."""
    small, larger = size // number, size % number
    border = larger * (small + 1)
    bucket = np.where(row < border, row // (small + 1), larger + (row - border) // np.maximum(small, 1))
    return (bucket + 1).astype(np.int32)


def _ntile(column: pa.Array, places: Places) -> tuple[pa.Array, pa.Array | None]:
    """ntile of what a column says: the first row of its group that has a number says it for all rows from there on."""
    asked, valid = _counts(column)
    at = np.arange(len(asked))
    starts, group = np.unique(places.low, return_inverse=True)
    first = np.minimum.reduceat(np.where(valid, at, len(at)), starts)[group]
    known = first <= at
    number = asked[np.minimum(first, len(at) - 1)]
    fault = message_where(known & (number <= 0), "argument of ntile must be greater than zero")
    found = _buckets(np.where(known, at - first, 0), places.high - places.low, np.maximum(number, 1))
    return pa.array(found, mask=~known), fault


def _taken(column: pa.Array, at: Int64s, inside: Bools) -> pa.Array:
    return column.take(pa.array(np.where(inside, at, 0), mask=~inside))


def _summed(
    function: WindowFunction, columns: list[pa.Array], types: list[DataType], runs: Sequence[Run]
) -> tuple[pa.Array, pa.Array | None]:
    """count, sum, avg, bool_and and bool_or."""
    if not columns:
        return pa.array(np.sum([end - start for start, end in runs], axis=0)), None
    (slot,) = slots_of([Aggregate(function.name, None, function.type)], [0], types)
    size = len(columns[0])
    running = np.zeros((size + 1, slot.width), np.int64)
    lanes = np.zeros((size, slot.width), np.int64)
    add_lanes(Exported(pa.RecordBatch.from_arrays(columns[:1], names=["value"])), 0, slot, lanes)
    # What stands where a value is NULL is no part of a sum.
    lanes[lanes[:, 0] == 0] = 0
    np.cumsum(lanes, axis=0, out=running[1:])
    return result_of(np.sum([running[end] - running[start] for start, end in runs], axis=0), slot)


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
