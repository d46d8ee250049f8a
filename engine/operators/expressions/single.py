"""The function that a scalar subquery's answer goes through: more than one row is an error, as in Postgres.

Always: its name is none that SQL can write. Registered in the catalogue at import.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from engine.operators.expressions import columns as col
from engine.operators.expressions.registry import Kernel, Outcome, Values, entry
from engine.schema import DataType, Kind

SEVERAL = "more than one row returned by a subquery used as an expression"


def _one_value(_params: tuple[DataType, ...], result: DataType) -> Kernel:
    nothing = pa.scalar(None, result.arrow)

    def kernel(rows: Values, value: Values) -> Outcome:
        several = pc.fill_null(pc.greater(rows, 1), False)
        if not pc.any(pa.array([several.as_py()]) if isinstance(several, pa.Scalar) else several).as_py():
            return value, None
        messages = pc.if_else(several, pa.scalar(SEVERAL, col.MESSAGE), pa.scalar(None, col.MESSAGE))
        return pc.if_else(several, nothing, value), messages

    return kernel


entry("$one value", (Kind.BIGINT, None), lambda params: params[1], _one_value, strict=False)
