"""The first rows of each group in an order, at each epoch at which they change, without looking at the rest of the group.

Always: rows that the order calls equal stand by their fingerprint, so that the answer is a function of the rows alone;
of a row that is there several times each copy counts. A group that changes is looked up in an arrangement whose order
lane follows the first column of the order, NULLs apart from values. Called by the dataflow's top nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.gather_rows import take_rows
from headrace.engine.batch.keys import Keys, fingerprint, key_lanes
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.kernels.top_k import top_changes
from headrace.engine.operators.delta import Delta, concat_rows
from headrace.engine.operators.group_versions import group
from headrace.engine.operators.ranks import ranks_of
from headrace.engine.schema import DataType, Kind, Schema
from headrace.engine.trace.lookup import Ends
from headrace.engine.trace.spine import Spine

_EXACT_DIGITS = 18
_EXACT = {
    Kind.BOOLEAN, Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ,
    Kind.REAL, Kind.DOUBLE,
}  # fmt: skip


class Order(NamedTuple):
    """One column of an order. `nulls_first` None: as Postgres has it, NULL being the greatest."""

    column: int
    descending: bool = False
    nulls_first: bool | None = None

    @property
    def begins_with_nulls(self) -> bool:
        """True if NULL comes before all values."""
        return self.descending if self.nulls_first is None else self.nulls_first


MOST_ROWS = (1 << 31) - 1
"""The greatest limit and offset together that `top_k` takes."""


@dataclass(frozen=True)
class Top:
    """Which rows are wanted: of each group (by the columns `key`) `limit` rows behind the first `offset` in `orders`.

    `schema`: of the rows, behind whose columns the arrangement has one more: whether the first order's value is NULL.
    """

    schema: Schema
    key: tuple[int, ...]
    orders: tuple[Order, ...]
    limit: int
    offset: int

    @cached_property
    def key_types(self) -> tuple[DataType, ...]:
        """The types of the key columns."""
        return tuple(self.schema.columns[k].type for k in self.key)

    @cached_property
    def is_backward(self) -> bool:
        """True if the greatest come first; rows that are equal in the order then stand by descending fingerprint."""
        return bool(self.orders) and self.orders[0].descending

    @cached_property
    def is_exact(self) -> bool:
        """True if equal order lanes, NULL apart, mean rows that are equal in the whole order."""
        if len(self.orders) > 1:
            return False
        if not self.orders:
            return True
        kind = self.schema.columns[self.orders[0].column].type
        digits = kind.precision or _EXACT_DIGITS + 1
        return kind.kind in _EXACT or (kind.kind is Kind.NUMERIC and kind.fixed_scale and digits <= _EXACT_DIGITS)

    @cached_property
    def parts(self) -> tuple[bool, ...]:
        """Whether the first order's value is NULL, in the rows to be read first and in those after them."""
        if not self.orders:
            return (False,)
        first = self.orders[0].begins_with_nulls
        return (first, not first)


def top_updates(top: Top, layout: Layout, spine: Spine, updates: Updates, since: int) -> Updates | None:
    """How the first rows change by `updates`, which `spine` holds already; `since`: the last epoch before them.

    Raises DiffOverflow.
    """
    found = group(key_lanes(updates.rows, top.key, top.key_types))
    asked = take_rows(updates.rows, found.first)
    needs = np.full(found.count, top.limit + top.offset, np.int64)
    parts: list[tuple[Int64s, Ends]] = []
    for null in top.parts:
        groups = np.flatnonzero(needs > 0)
        if not len(groups):
            break
        keys = _keys(layout, take_rows(asked, groups), null)
        ends, lacking = spine.first_enough(keys, needs[groups], since, backward=top.is_backward, exact=top.is_exact)
        needs[groups] = lacking
        if len(ends):
            parts.append((groups[ends.probe], ends))
    if not parts:
        return None
    rows = concat_rows([ends.rows() for _, ends in parts])
    times, diffs = (np.concatenate([getattr(ends, lane) for _, ends in parts]) for lane in ("times", "diffs"))
    return _changes(top, np.concatenate([groups for groups, _ in parts]), Updates(rows, times, diffs), since)


def top_content(top: Top, content: Updates, as_of: int) -> Updates | None:
    """The first rows of a collection with this content. Raises DiffOverflow."""
    if not len(content):
        return None
    ids = group(key_lanes(content.rows, top.key, top.key_types)).ids
    return _changes(top, ids, content, as_of - 1)


def top_of_groups(top: Top, updates: Updates, groups: Int64s, since: int) -> Delta:
    """How the first rows of whole groups, whose updates these are, change after `since`. Raises DiffOverflow."""
    return Delta(_changes(top, groups, updates, since), None)


def _keys(layout: Layout, rows: pa.RecordBatch, null: bool) -> Keys:
    """The keys of the rows' groups in the arrangement: of those rows in it whose order value is NULL, or is not."""
    last = rows.num_columns - 1
    flags = pa.repeat(pa.scalar(null), rows.num_rows)
    return layout.keys(rows.set_column(last, rows.schema.field(last), flags))


def _changes(top: Top, groups: Int64s, updates: Updates, since: int) -> Updates | None:
    rows = updates.rows
    high, low = fingerprint(rows)
    ties = (~high, ~low) if top.is_backward else (high, low)
    lanes = [lane for order in top.orders for lane in order_lanes(rows.column(order.column), order, top.schema)]
    index = np.lexsort((ties[1], ties[0], *reversed(lanes), groups))
    groups, high, low = groups[index], high[index], low[index]
    repeats = np.zeros(len(index), np.int64)
    repeats[1:] = (groups[1:] == groups[:-1]) & (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    entries = groups, repeats, updates.times[index], updates.diffs[index], index
    block, size, overflow = top_changes(entries, (since, top.offset, top.limit))
    if overflow:
        raise DiffOverflow
    if not size:
        return None
    at, times, diffs = np.ascontiguousarray(block[:, :size])
    columns = take_rows(rows, at).columns[: len(top.schema.columns)]
    return Updates(pa.RecordBatch.from_arrays(columns, schema=top.schema.arrow), times, diffs)


def order_lanes(column: pa.Array, order: Order, schema: Schema) -> Sequence[Int64s]:
    """Lanes that sort as the order does, the first counting most."""
    ranks = ranks_of(column, schema.columns[order.column].type, images=False)
    if order.descending:
        ranks = ~ranks
    if not column.null_count:
        return (ranks,)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return ((valid == order.begins_with_nulls).astype(np.int64), np.where(valid, ranks, 0))
