"""Small moves on columns that every family needs: views of buffers as numpy, masks, error messages, broadcast.

Always: nothing here copies a column that it can view, and nothing loops over rows. `Values` is a column or a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.operators.expressions.core.function_catalog import Outcome, Values

MESSAGE = pa.large_string()
_NO_MESSAGE = pa.scalar(None, MESSAGE)


def caster(lane: pa.DataType, *, safe: bool = True) -> Callable[[Values], Values]:
    """Arrow's cast to `lane`, its options made once: that is most of what a cast of a few rows costs."""
    options = pc.CastOptions.safe(lane) if safe else pc.CastOptions.unsafe(lane)
    function = pc.get_function("cast")
    return lambda value: function.call([value], options)


def length(*values: Values) -> int:
    """The rows of the columns among `values`; 1 if all are constants."""
    for value in values:
        if not isinstance(value, pa.Scalar):
            return len(value)
    return 1


def as_column(value: Values, rows: int) -> pa.Array:
    """`value` as a column of `rows` rows."""
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


def numbers(column: pa.Array) -> npt.NDArray[Any]:
    """The fixed-width values of a column without a copy; what stands where it is null is arbitrary."""
    dtype = _NUMPY[str(column.type)]
    count = len(column)
    if count == 0:
        return np.empty(0, dtype)
    return np.frombuffer(column.buffers()[1], dtype, count, column.offset * dtype.itemsize)


_NUMPY: dict[str, np.dtype[Any]] = {
    "int16": np.dtype("i2"),
    "int32": np.dtype("i4"),
    "int64": np.dtype("i8"),
    "float": np.dtype("f4"),
    "double": np.dtype("f8"),
    "date32[day]": np.dtype("i4"),
    "time64[us]": np.dtype("i8"),
    "timestamp[us]": np.dtype("i8"),
    "timestamp[us, tz=UTC]": np.dtype("i8"),
}


def operand(value: Values) -> Any:
    """`value` for numpy arithmetic: a view of the column, or the constant as an array of one."""
    return numbers(pa.repeat(value, 1)) if isinstance(value, pa.Scalar) else numbers(value)


def valid(value: Values) -> Any:
    """True where `value` is not null, as numpy; one element for a constant."""
    if isinstance(value, pa.Scalar):
        return np.array([value.is_valid])
    if not value.null_count:
        return np.True_
    return value.is_valid().to_numpy(zero_copy_only=False)


def all_valid(*values: Values) -> Any:
    """True where none of `values` is null, as numpy (may be a single True)."""
    mask: Any = np.True_
    for value in values:
        mask = mask & valid(value)
    return mask


def build(data: npt.NDArray[Any], lane: pa.DataType, nulls: Any) -> pa.Array:
    """A column of `lane` over `data` (its physical values), null where `nulls` is true."""
    data = np.ascontiguousarray(data)
    validity = None
    if nulls is not None and np.any(nulls):
        full = np.broadcast_to(~np.asarray(nulls, bool), data.shape)
        validity = pa.py_buffer(np.packbits(full, bitorder="little"))
    if lane.id == pa.lib.Type_BOOL:
        return pa.Array.from_buffers(lane, len(data), [validity, pa.py_buffer(np.packbits(data, bitorder="little"))])
    return pa.Array.from_buffers(lane, len(data), [validity, pa.py_buffer(data)])


def messages(mask: Any, text: str, rows: int) -> pa.Array | None:
    """`text` where `mask` is true, null elsewhere; None when nowhere."""
    if not np.any(mask):
        return None
    full = np.ascontiguousarray(np.broadcast_to(mask, (rows,)))
    return pc.if_else(pa.array(full), pa.scalar(text, MESSAGE), _NO_MESSAGE)


def first_error(*errors: Any) -> Any:
    """Per row the first message that is there; None when there is none at all."""
    there = [e for e in errors if e is not None]
    if len(there) < 2:
        return there[0] if there else None
    return pc.coalesce(*there)


def failing(values: pa.Array, *faults: tuple[Any, str]) -> Outcome:
    """`values` made null where a fault's mask is true, with the messages; the first fault of a row counts."""
    rows = len(values)
    errors = first_error(*(messages(mask, text, rows) for mask, text in faults))
    if errors is None:
        return values, None
    return pc.if_else(errors.is_valid(), pa.scalar(None, values.type), values), errors


def retyped(column: Values, lane: pa.DataType) -> Values:
    """The same buffers under another lane of the same width."""
    if isinstance(column, pa.Scalar):
        return retyped(pa.repeat(column, 1), lane)[0]
    return pa.Array.from_buffers(lane, len(column), column.buffers(), column.null_count, column.offset)
