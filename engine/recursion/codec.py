"""Rows as 64-bit lanes and back: a lane a column, and one of bits that say which are NULL, where any may be.

Numbers, dates and times of at most 64 bits are their own lane; every other value is the number of its place in a dictionary,
found by 128 bits of its content. Invariant: two rows have equal lanes exactly when their values are equal, NULLs too. The
dictionary only grows; whoever holds it begins anew once much of it is unused. Called by recursion alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.engine.batch.sort_layout import layout_of
from headrace.engine.batch.updates import Int64s
from headrace.engine.errors import InvariantBroken
from headrace.engine.operators.fixed_width import int_values
from headrace.engine.recursion.state import Lanes, Store
from headrace.engine.schema import Column, DataType, Kind, Schema

_OWN_LANE = frozenset({
    Kind.BOOLEAN, Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ,
})  # fmt: skip


def lanes_of(schema: Schema) -> int:
    """How many lanes a row has."""
    return len(schema.columns) + (null_lane(schema) >= 0)


def null_lane(schema: Schema) -> int:
    """The lane of the NULLs' bits, or -1 where no column can be NULL."""
    return len(schema.columns) if any(c.nullable for c in schema.columns) else -1


class Codec:
    """One dictionary for all columns of the same type."""

    def __init__(self) -> None:
        self._dictionaries: dict[pa.DataType, _Dictionary] = {}

    def __len__(self) -> int:
        return sum(len(d) for d in self._dictionaries.values())

    @property
    def nbytes(self) -> int:
        """The memory of the dictionaries."""
        return sum(d.nbytes for d in self._dictionaries.values())

    def encode(self, columns: Sequence[pa.Array], schema: Schema) -> Lanes:
        """The lanes of rows, given as columns. Raises InvariantBroken for a NULL where none can be."""
        size = len(columns[0]) if columns else 0
        made = np.empty((size, lanes_of(schema)), np.int64)
        bits = np.zeros(size, np.int64)
        for k, (column, told) in enumerate(zip(columns, schema.columns, strict=True)):
            made[:, k] = self.lane(column, told.type)
            if column.null_count:
                missing = column.is_null().to_numpy(zero_copy_only=False)
                made[missing, k] = 0
                bits[missing] |= np.int64(1 << k)
        if null_lane(schema) >= 0:
            made[:, null_lane(schema)] = bits
        elif bits.any():
            raise InvariantBroken("a column that cannot be NULL is", columns=", ".join(schema.names))
        return made

    def lane(self, column: pa.Array, kind: DataType) -> Int64s:
        """One column's lane; NULLs are any value."""
        if kind.kind in _OWN_LANE:
            return int_values(column)
        return self._dictionary(kind).encode(column, kind)

    def column(self, lane: Int64s, missing: np.ndarray | None, told: Column) -> pa.Array:
        """A column of its lane; `missing`: which are NULL."""
        kind = told.type
        if kind.kind not in _OWN_LANE:
            return self._dictionary(kind).decode(lane, missing)
        arrow = kind.arrow
        if kind.kind is Kind.BOOLEAN:
            return pa.array(lane != 0, mask=missing)
        width = np.int64 if arrow.bit_width == 64 else np.int32 if arrow.bit_width == 32 else np.int16
        made = pa.array(np.ascontiguousarray(lane).astype(width, copy=False), mask=missing)
        return made if made.type == arrow else made.view(arrow)

    def decode(self, rows: Lanes, schema: Schema) -> list[pa.Array]:
        """The columns of rows."""
        return [self.column(rows[:, k], missing_of(rows, schema, k), told) for k, told in enumerate(schema.columns)]

    def _dictionary(self, kind: DataType) -> _Dictionary:
        return self._dictionaries.setdefault(kind.arrow, _Dictionary(kind.arrow))


def missing_of(rows: Lanes, schema: Schema, column: int) -> np.ndarray | None:
    """Which rows are NULL in a column; None for none."""
    at = null_lane(schema)
    if at < 0 or not schema.columns[column].nullable:
        return None
    missing: np.ndarray = (rows[:, at] >> column) & 1 != 0
    return missing if missing.any() else None


class _Dictionary:
    """Values by number. Invariant: a number never comes to mean another value."""

    def __init__(self, arrow: pa.DataType) -> None:
        self._arrow = arrow
        self._known = Store(2)
        self._chunks: list[pa.Array] = []

    def __len__(self) -> int:
        return self._known.size

    @property
    def nbytes(self) -> int:
        """The memory that it holds."""
        return self._known.nbytes + sum(int(c.nbytes) for c in self._chunks)

    def encode(self, column: pa.Array, kind: DataType) -> Int64s:
        """The numbers of values, of which new ones are written down."""
        rows = pa.RecordBatch.from_arrays([column], schema=pa.schema([pa.field("value", self._arrow)]))
        keys = layout_of(Schema((Column("value", kind),)), (0,)).keys(rows)
        words = np.stack([keys.hash.view(np.int64), keys.check.view(np.int64)], axis=1)
        before = self._known.size
        places = self._known.place(np.ascontiguousarray(words)).astype(np.int64)
        if self._known.size > before:
            new = np.flatnonzero(places >= before)
            _, first = np.unique(places[new], return_index=True)
            self._chunks.append(column.take(pa.array(new[first])))
            while len(self._chunks) > 1 and len(self._chunks[-1]) * 2 > len(self._chunks[-2]):
                # So that there are few of them, and each value is moved a few times.
                self._chunks[-2:] = [pa.concat_arrays(self._chunks[-2:])]
        return places

    def decode(self, numbers: Int64s, missing: np.ndarray | None) -> pa.Array:
        """The values of numbers."""
        if not self._chunks:
            return pa.nulls(len(numbers), self._arrow)
        ends = np.cumsum([len(c) for c in self._chunks])
        of = np.searchsorted(ends, numbers, side="right")
        starts = ends - [len(c) for c in self._chunks]
        parts, order = [], []
        for k in np.unique(of).tolist():
            at = np.flatnonzero(of == k)
            here = None if missing is None else missing[at]
            parts.append(self._chunks[k].take(pa.array(numbers[at] - starts[k], mask=here)))
            order.append(at)
        if not parts:
            return pa.array([], self._arrow)
        if len(parts) == 1:
            return parts[0]
        back = np.empty(len(numbers), np.int64)
        back[np.concatenate(order)] = np.arange(len(numbers))
        return pa.concat_arrays(parts).take(pa.array(back))


__all__ = ["Codec", "lanes_of", "missing_of", "null_lane"]
