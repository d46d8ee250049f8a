"""Moving Arrow rows: take, concatenate, and assemble from many payloads at once.

Always: the result holds exactly the rows asked for, in the order asked for. Called by batches, mergers, lookups and
operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.updates import Int64s
from headrace.engine.kernels import gather as kernels

_FEW = 8
"""Up to so many rows, joining slices is cheaper than a take of every column (28 µs against 37 µs for eight columns)."""

_MANY = 256
"""From so many rows on each column is assembled in memory of its own, so that keeping one does not keep the others."""

_LARGE = 1 << 16
"""From so many rows on it matters where the memory of a column comes from."""

_NAMES = 256
"""So many schemas are remembered of those that the same rows are given the names of."""

_WORDS = {width: np.dtype(f"u{width}") for width in (1, 2, 4, 8)}
"""What stands for values of so many bytes."""

_PINNED_BYTES = 1 << 16
"""Less than this is not worth a copy."""


def indices(positions: Int64s) -> pa.Int64Array:
    """`positions` as an Arrow array, without a copy where they are contiguous."""
    flat = np.ascontiguousarray(positions)
    return pa.Array.from_buffers(pa.int64(), len(flat), [None, pa.py_buffer(flat)])


def conformed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`rows`, which have the lanes of `schema`, under its names."""
    if rows.schema.equals(schema) or rows.num_columns == 0:
        return rows
    return pa.RecordBatch.from_arrays(rows.columns, schema=schema)


def unpinned(rows: pa.RecordBatch) -> pa.RecordBatch:
    """`rows`, copied if they are a small slice of something large, which they would keep in memory."""
    if rows.get_total_buffer_size() <= _PINNED_BYTES or rows.get_total_buffer_size() <= 4 * rows.nbytes:
        return rows
    return rows.take(indices(np.arange(rows.num_rows)))


def take_rows(rows: pa.RecordBatch, positions: Int64s) -> pa.RecordBatch:
    """The rows at `positions`, in that order."""
    size = len(positions)
    if rows.num_columns == 0:
        return without_columns(rows.schema, size)
    if size == 0:
        return rows.slice(0, 0)
    if size == 1:
        return rows.slice(int(positions[0]), 1)
    if size <= _FEW:
        return pa.concat_batches([rows.slice(p, 1) for p in positions.tolist()])
    if size >= _LARGE:
        columns = [_flat_taken(column, positions) for column in rows.columns]
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema)
    return rows.take(indices(positions))


def _flat_taken(column: pa.Array, positions: Int64s) -> pa.Array:
    """The values at `positions`; numbers without nulls in numpy's memory, which comes in huge pages."""
    width = _WORDS.get(_width(column.type))
    if width is None or column.null_count:
        return column.take(indices(positions))
    values = np.frombuffer(column.buffers()[1], width, len(column), column.offset * width.itemsize)
    return pa.Array.from_buffers(column.type, len(positions), [None, pa.py_buffer(values[positions])])


def concat_rows(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows of `parts`, of which there is at least one, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if parts[0].num_columns == 0:
        return without_columns(parts[0].schema, sum(p.num_rows for p in parts))
    return pa.concat_batches(parts)


def without_columns(schema: pa.Schema, size: int) -> pa.RecordBatch:
    """`size` rows of no columns."""
    empty = pa.Array.from_buffers(pa.struct([]), size, [None])
    return pa.RecordBatch.from_struct_array(empty).replace_schema_metadata(schema.metadata)


@dataclass(frozen=True, eq=False)
class Assembly:
    """How rows of `schema` are put together: `steps` is int64[columns, 3] of (column picked, width, lane).

    `types`: of each column, and whether its values vary in length.
    """

    schema: pa.Schema
    steps: Int64s
    types: tuple[tuple[pa.DataType, bool], ...]

    @classmethod
    def of(cls, schema: pa.Schema, columns: Sequence[int], lanes: Sequence[int] | None = None) -> Assembly:
        """Column k of the result is column `columns[k]` of the payloads that lane `lanes[k]` (without: 0) picks from."""
        return _assembly(schema, tuple(columns), None if lanes is None else tuple(lanes))

    @cached_property
    def itself(self) -> Assembly:
        """How rows are picked from what this one puts together."""
        return Assembly.of(self.schema, range(len(self.steps)))

    def named(self, schema: pa.Schema) -> Assembly:
        """How all columns are picked from the same rows under the names of `schema`: this one, where those are its own."""
        held = self._named.get(id(schema))
        if held is None:
            if len(self._named) >= _NAMES:
                self._named.clear()
            made = self if self.schema.equals(schema) else Assembly.of(schema, range(len(schema)))
            # The schema is held, so that its number is no other's.
            held = self._named[id(schema)] = schema, made
        return held[1]

    @cached_property
    def _named(self) -> dict[int, tuple[pa.Schema, Assembly]]:
        return {}

    def rows(self, structs: Int64s, sources: Int64s, positions: Int64s) -> pa.RecordBatch:
        """As `picked`, as Arrow has it."""
        return self.picked(structs, sources, positions).rows

    def picked(self, structs: Int64s, sources: Int64s, positions: Int64s) -> Exported:
        """Row k takes, for each lane, row `positions[lane, k]` of the payload at address `structs[sources[lane, k]]`.

        `sources`, `positions`: int64[lanes, rows]. The payloads' owner keeps them alive during the call.
        """
        size = sources.shape[1]
        if not len(self.steps):
            return Exported(without_columns(self.schema, size))
        if size < _MANY:
            found = kernels.assemble(structs, self.steps, sources, positions)
            return Picked(self.itself, size, found[3], found)
        columns: list[pa.Array] = []
        for k in range(len(self.steps)):
            found = kernels.assemble(structs, self.steps[k : k + 1], sources, positions)
            columns.append(_wrapped(self.types[k], found, 0, size))
        return Exported(pa.RecordBatch.from_arrays(columns, schema=self.schema))


class Loose(Exported):
    """Rows that kernels made for kernels, given to Arrow only where somebody asks. `whole`: picks all of their columns."""

    __slots__ = ("_held", "_words", "whole")

    def __init__(self, whole: Assembly, size: int, words: Int64s, held: Any) -> None:
        self._rows = None
        self._held = held
        self._words = words
        self._address = int(words[kernels.HERE])
        self.whole = whole
        self.num_rows = size

    @property
    def rows(self) -> pa.RecordBatch:
        """As Arrow has it."""
        if self._rows is None:
            columns = [self.column(k) for k in range(len(self.whole.steps))]
            self._rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return self._rows

    @property
    def schema(self) -> pa.Schema:
        """Of `rows`."""
        return self.whole.schema

    def take(self, positions: Int64s) -> Exported:
        """The rows at `positions`, in that order."""
        sources = np.zeros((1, len(positions)), np.int64)
        return self.whole.picked(np.array([self._address]), sources, np.ascontiguousarray(positions)[None])

    def under(self, schema: pa.Schema) -> Exported:
        """The same rows under the names of `schema`, which has the same lanes."""
        named = self.whole.named(schema)
        return self if named is self.whole else Chosen(self, named)


class Picked(Loose):
    """What an assembly put together: `held` is what its kernel returned."""

    __slots__ = ()

    def column(self, column: int) -> pa.Array:
        """One column, as Arrow has it."""
        return _wrapped(self.whole.types[column], self._held, column, self.num_rows)

    @property
    def nbytes(self) -> int:
        """The memory that it keeps."""
        return int(sum(part.nbytes for part in self._held))

    def nulls(self, column: int) -> int:
        """How many there are in a column."""
        return int(self._held[2][column, kernels.NULLS])


class Chosen(Loose):
    """Columns of other rows, named and ordered anew; `chosen`: which, or without it all in their order."""

    __slots__ = ("_chosen",)

    def __init__(self, source: Loose, whole: Assembly, chosen: Int64s | None = None) -> None:
        words = source._words
        self._chosen: Int64s | range = range(len(whole.steps)) if chosen is None else chosen
        if chosen is not None:
            words = np.concatenate([words[: kernels.WORDS], words[kernels.WORDS :][chosen]])
            here = words.__array_interface__["data"][0]
            words[kernels.COUNT] = len(chosen)
            words[kernels.CHILDREN] = here + kernels.WORDS * 8
            words[kernels.HERE] = here
        super().__init__(whole, source.num_rows, words, source)

    def column(self, column: int) -> pa.Array:
        """One column, as Arrow has it."""
        return self._held.column(int(self._chosen[column]))

    @property
    def nbytes(self) -> int:
        """The memory that it keeps."""
        return int(self._held.nbytes)

    def nulls(self, column: int) -> int:
        """How many there are in a column."""
        return int(self._held.nulls(int(self._chosen[column])))


def taken(rows: Exported, positions: Int64s) -> pa.RecordBatch | Exported:
    """The rows at `positions`, in that order."""
    if isinstance(rows, Loose) and len(positions):
        return rows.take(positions)
    return take_rows(rows.rows, positions)


def put_together(parts: Sequence[Exported]) -> Exported | None:
    """All rows of `parts`, one after the other, where all are loose and each has few; None otherwise."""
    sizes = [part.num_rows for part in parts]
    first = parts[0]
    if (
        not isinstance(first, Loose)
        or sum(sizes) >= _MANY * len(parts)
        or not all(isinstance(part, Loose) for part in parts)
    ):
        return None
    sources = np.repeat(np.arange(len(parts)), sizes)
    positions = np.concatenate([np.arange(size) for size in sizes])
    return first.whole.picked(np.array([part.address for part in parts]), sources[None], positions[None])


@lru_cache(maxsize=4096)
def _assembly(schema: pa.Schema, columns: tuple[int, ...], lanes: tuple[int, ...] | None) -> Assembly:
    widths = [_width(kind) for kind in schema.types]
    steps = np.array([columns, widths, lanes or [0] * len(columns)], np.int64).T
    types = tuple((kind, width < 0) for kind, width in zip(schema.types, widths, strict=True))
    return Assembly(schema, np.ascontiguousarray(steps), types)


def _wrapped(kind: tuple[pa.DataType, bool], found: Any, column: int, size: int) -> pa.Array:
    """A column of what the kernel `found`, `size` rows of it."""
    nulls, validity, values, length, begin, count = found[2][column].tolist()
    block = pa.py_buffer(found[0])
    buffers = [block.slice(validity, (size + 7) >> 3) if nulls else None, block.slice(values, length)]
    if kind[1]:
        buffers.append(pa.py_buffer(found[1]).slice(begin, count))
    return pa.Array.from_buffers(kind[0], size, buffers, nulls)


def _width(arrow: pa.DataType) -> int:
    """Bytes of a value, or one of the kernel's codes."""
    if pa.types.is_large_string(arrow) or pa.types.is_large_binary(arrow):
        return kernels.OFFSETS64
    if pa.types.is_string(arrow) or pa.types.is_binary(arrow):
        return kernels.OFFSETS32
    return kernels.BITS if pa.types.is_boolean(arrow) else int(arrow.byte_width)
