"""The reduce of a few changes in one call of a kernel: groups whose state is sums of lanes, and rows laid out at once.

Always: what it gives is what `reduce_changes` gives step by step; what cannot be shown, or is not known to fit, takes those
steps. Called by the reduce operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.gather_rows import Assembly, Picked
from headrace.engine.batch.keys import lane_code
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.kernels import entries, hashing, reduce_results
from headrace.engine.kernels import small_reduce as kernels
from headrace.engine.operators.aggregates import MESSAGE, SMALL_INTS, Slot
from headrace.engine.operators.delta import QUIET, Delta
from headrace.engine.operators.min_max import Extreme
from headrace.engine.operators.reduce_layout import Shape
from headrace.engine.schema import MAX_DIGITS, Kind
from headrace.engine.trace.spine import Spine

_NO_TABLE: Int64s = np.empty((0, entries.COLUMNS), np.int64)
_ORDERED = {
    Kind.SMALLINT,
    Kind.INTEGER,
    Kind.BIGINT,
    Kind.NUMERIC,
    Kind.DATE,
    Kind.TIMESTAMP,
    Kind.TIMESTAMPTZ,
    Kind.TIME,
}
"""Kinds of which equal values look alike, and whose order is that of their lane read as a number."""

_FLAGS = {"bool_and": reduce_results.EVERY, "every": reduce_results.EVERY, "bool_or": reduce_results.SOME}


class Laid(NamedTuple):
    """Updates of a reduce's output arrangement, laid out already."""

    made: Updates

    def updates(self, since: int | None = None) -> Updates | None:  # noqa: ARG002
        """All of them, whatever time they are asked of."""
        return self.made


class Plan(NamedTuple):
    """How the kernel lays rows out: what the extremes and the other aggregates show, and how rows are put together: those
    that are kept, those shown, and those shown that are made of a state and of what the other aggregates show."""

    extremes: Int64s
    shows: Int64s
    kept: Assembly
    shown: Assembly
    read: Assembly

    @classmethod
    def of(cls, shape: Shape, layout: Layout) -> Plan | None:
        """Of a reduce whose state has that `layout`; None where an aggregate is nothing that the kernel shows."""
        extremes = [_extreme(extreme, shape, k) for k, extreme in enumerate(shape.extremes)]
        others = [slot for slot in shape.slots if slot.extreme is None]
        shows = [_show(slot) for slot in others]
        if not shape.slots or shape.wholes or shape.distinct or shape.has_images or None in extremes or None in shows:
            return None
        lanes = [_lane(slot) if slot.extreme is None else slot.extreme.kind.arrow for slot in shape.slots]
        if [field.type for field in shape.schema.arrow][shape.key :] != lanes:
            return None
        key, mine = range(shape.key), [0] * shape.key
        columns = [
            1 + shape.places[k] if slot.extreme else 1 + len(extremes) + others.index(slot)
            for k, slot in enumerate(shape.slots)
        ]
        state = Assembly.of(layout.arrow, [*key, *range(1 + len(extremes))], [*mine, *[1] * (1 + len(extremes))])
        result = Assembly.of(shape.schema.arrow, [*key, *columns], [*mine, *[1] * len(columns)])
        places = [
            (shape.key + 1 + shape.places[k], 0) if slot.extreme else (others.index(slot), 1)
            for k, slot in enumerate(shape.slots)
        ]
        read = Assembly.of(shape.schema.arrow, [*key, *(c for c, _ in places)], [*mine, *(lane for _, lane in places)])
        return cls(_table(extremes, 5), _table(shows, 4), state, result, read)


def regrouped(
    plan: Plan, shape: Shape, layout: Layout, traces: tuple[Spine, Sequence[Spine]], updates: Updates, before: int
) -> tuple[Laid | None, Delta] | None:
    """(updates of the output arrangement, updates of the result) that a few `updates` make; None where that takes more steps.

    `traces`: of the output arrangement, and of each extreme's values.
    """
    kept, values = traces
    tables = [spine.view.table for spine in values]
    *found, facts, vain, how = kernels.regroup_rows(
        updates.struct.address,
        (layout.sealing, shape.reads, _located(plan.extremes, tables), plan.shows),
        updates.times,
        updates.diffs,
        (kept.view.table, _joined(tables)),
        (before, shape.key, shape.lanes, 0),
        (plan.kept.steps, plan.shown.steps),
    )
    for spine, count in zip(values, vain.tolist(), strict=True):
        if count:
            spine.read_in_vain(count)
    if how == kernels.LONG:
        return None
    size = facts.shape[1]
    if not size:
        return None, QUIET
    times, diffs = facts
    state = Picked(plan.kept.itself, size, found[3], tuple(found[:4]))
    result = Picked(plan.shown.itself, size, found[7], tuple(found[4:]))
    return Laid(Updates(state, times, diffs)), Delta(Updates(result, times, diffs), None)


def _located(extremes: Int64s, tables: Sequence[Int64s]) -> Int64s:
    """The extremes, with where each one's batches stand among all."""
    if not tables:
        return extremes
    sizes = np.array([len(table) for table in tables])
    return np.column_stack([extremes, np.cumsum(sizes) - sizes, sizes])


def _joined(tables: Sequence[Int64s]) -> Int64s:
    if not tables:
        return _NO_TABLE
    return tables[0] if len(tables) == 1 else np.concatenate(tables)


def _table(rows: Sequence[tuple[int, ...] | None], width: int) -> Int64s:
    return np.array(rows, np.int64).reshape(len(rows), width)


def _extreme(extreme: Extreme, shape: Shape, k: int) -> tuple[int, ...] | None:
    """Of an extreme its column, lane, column in the state and in its own trace, and whether it is the greatest; None where
    the order of values does not tell them apart."""
    code = lane_code(extreme.kind.arrow)
    exact = extreme.kind.kind in _ORDERED and code in (hashing.I16, hashing.I32, hashing.I64, hashing.D128)
    return (extreme.column, code, shape.key + 1 + k, shape.key, int(extreme.greatest)) if exact else None


def _show(slot: Slot) -> tuple[int, int, int, int] | None:
    """What the kernel shows of an aggregate, its first lane, its lanes, and digits behind the point; None if it does not."""
    function, arg = slot.aggregate.function, slot.arg
    if slot.column is None or arg is None:
        return reduce_results.COUNT, 0, 1, 0
    if not slot.width:
        return None
    if function == "count":
        return reduce_results.COUNT, slot.first, 1, 0
    if function in _FLAGS:
        return _FLAGS[function], slot.first, slot.width, 0
    is_sum = function == "sum"
    if arg.kind in SMALL_INTS:
        return reduce_results.NARROW if is_sum else reduce_results.NARROW_AVERAGE, slot.first, slot.width, 0
    return reduce_results.WIDE if is_sum else reduce_results.WIDE_AVERAGE, slot.first, slot.width, _scale(slot)


def _scale(slot: Slot) -> int:
    return 0 if slot.arg is None else max(slot.arg.scale or 0, 0)


def _lane(slot: Slot) -> pa.DataType:
    """The lane in which the kernel shows it."""
    shown = _show(slot)
    how = reduce_results.COUNT if shown is None else shown[0]
    if how in (reduce_results.COUNT, reduce_results.NARROW):
        return pa.int64()
    if how in (reduce_results.EVERY, reduce_results.SOME):
        return pa.bool_()
    return pa.decimal128(MAX_DIGITS, _scale(slot)) if how == reduce_results.WIDE else MESSAGE
