"""Comparisons with any or all elements of an array: `value operator ANY (array)`, and ALL.

All elements of all rows are compared at once. Registered in the catalogue at import.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.operators.expressions.array import array_text
from headrace.engine.operators.expressions.array.arrays import Params, element_of
from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core import text_io
from headrace.engine.operators.expressions.core.function_catalog import (
    Kernel,
    Maker,
    Outcome,
    Values,
    by_function,
    entry,
)
from headrace.engine.schema import BOOLEAN, DataType, Kind

QUANTIFIED = ("=", "<>", "<", "<=", ">", ">=", "like", "ilike", "not like", "not ilike")


def _quantified(operator: str, *, every: bool) -> Maker:
    """`value operator ANY (array)`, or ALL: over all elements of all rows at once."""

    def make(params: Params, _result: DataType) -> Kernel:
        element = element_of(params[1])
        kinds = params[0], element
        signature = by_function(f"{operator}({','.join(k.kind.value for k in kinds)})")
        assert signature.make is not None
        compare = signature.make(kinds, BOOLEAN)

        def kernel(value: Values, array: Values) -> Outcome:
            rows = col.length(value, array)
            left = col.as_column(value, rows)
            counts, texts, unread = array_text.exploded(array, rows, any_shape=True)
            own, fault = text_io.read_text(texts, element)
            row_of = np.repeat(np.arange(rows), counts)
            found, errors = (
                compare(left.take(pa.array(row_of)), own) if len(row_of) else (pa.nulls(0, pa.bool_()), None)
            )
            errors = col.first_error(fault, errors)
            truth = pc.fill_null(found, not every).to_numpy(zero_copy_only=False)
            decided = found.is_valid().to_numpy(zero_copy_only=False) & (truth != every)
            settled = np.bincount(row_of[decided], minlength=rows) > 0
            unsure = np.bincount(row_of[~found.is_valid().to_numpy(zero_copy_only=False)], minlength=rows) > 0
            missing = pc.is_null(col.as_column(array, rows)).to_numpy(zero_copy_only=False)
            out = pa.array(np.where(settled, not every, every), mask=missing | (unsure & ~settled))
            first = None if errors is None else array_text.first_of_each(counts, errors)
            return out, col.first_error(unread, first)

        return kernel

    return make


def _register() -> None:
    for operator in QUANTIFIED:
        entry(f"$any {operator}", (None, None), Kind.BOOLEAN, _quantified(operator, every=False), strict=False)
        entry(f"$all {operator}", (None, None), Kind.BOOLEAN, _quantified(operator, every=True), strict=False)


_register()
