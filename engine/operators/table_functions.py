"""Rows made of rows by functions that return sets: several of one row go in step, the shorter with NULL at their end.

Always: the rows made of a row are a function of that row alone. Called by the dataflow's flat map, for `headrace.views.render`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import Int64s
from headrace.engine.operators.delta import rows_of
from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core.functions import by_function
from headrace.engine.operators.expressions.core.sets import Made
from headrace.engine.schema import DataType, Schema


@dataclass(frozen=True)
class SetFunction:
    """A set-returning function of the catalogue over columns `args` of the input, and the types of what it gives."""

    function: str
    args: tuple[int, ...]
    params: tuple[DataType, ...]
    types: tuple[DataType, ...]


@dataclass(frozen=True)
class Spreading:
    """Each row of `input` with each row that the functions make of it; `ordinal`: and that one's number, from 1.

    `outer`: a row of which nothing is made stands once, with NULL. `schema`: of what is made.
    """

    input: Schema
    functions: tuple[SetFunction, ...]
    ordinal: bool
    outer: bool
    schema: Schema

    def __call__(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s, pa.Array | None]:
        """(rows made, of each of these the place of the one that it was made of, messages of those that fail)."""
        made = [self._made(f, rows) for f in self.functions]
        errors = col.first_error(*(m.errors for m in made))
        counts = np.max([m.counts for m in made], axis=0)
        if self.outer:
            counts = np.maximum(counts, 1)
        if errors is not None:
            counts = np.where(col.valid(errors), 0, counts)
        places = np.repeat(np.arange(rows.num_rows), counts)
        numbers = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        columns: Sequence[pa.Array] = [c.take(pa.array(places)) for c in rows.columns]
        for one in made:
            there = numbers < one.counts[places]
            first = np.cumsum(one.counts) - one.counts
            at = pa.array(np.where(there, first[places] + numbers, 0), mask=~there)
            columns = [*columns, *(c.take(at) for c in one.columns)]
        if self.ordinal:
            missing = np.maximum.reduce([m.counts for m in made])[places] == 0
            columns = [*columns, pa.array(numbers + 1, mask=missing)]
        return rows_of(columns, self.schema.arrow, len(places)), places, errors

    def _made(self, function: SetFunction, rows: pa.RecordBatch) -> Made:
        signature = by_function(function.function)
        assert signature.make is not None
        kernel = signature.make(function.params, function.types[0])
        found: Made = kernel(*(rows.column(a) for a in function.args))  # type: ignore[assignment]
        return found
