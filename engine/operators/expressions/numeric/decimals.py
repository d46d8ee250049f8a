"""NUMERIC in its two lanes: decimal128 where the display scale is known, the text image where it is not.

Always: a fixed lane's arithmetic is exact or refuses the row by naming the 38-digit limit; anything else goes through
`fallback` once per distinct value. Called by `numeric`, `comparison` and `casts`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.function_catalog import Outcome, Values
from headrace.engine.schema import MAX_DIGITS, NUMERIC, DataType, Kind

TOO_WIDE = f"numeric value exceeds the {MAX_DIGITS} digits that a column of known scale holds"
PLAIN_SCALE = 7
"""Below it, Arrow prints decimals as Postgres does; from it on, small values get an exponent."""
_LIMIT = 10**MAX_DIGITS
_LIMIT_HIGH = _LIMIT >> 64


def scale_of(datatype: DataType) -> int:
    """The display scale of a fixed lane."""
    return max(datatype.scale or 0, 0)


def fixed(scale: int) -> DataType:
    """The numeric type of a known display scale."""
    return DataType(Kind.NUMERIC, scale=scale)


def wide(value: Values, scale: int) -> Values:
    """A fixed-lane value as decimal256 of `scale` (at least its own): exact for scales up to 38."""
    return pc.cast(value, pa.decimal256(76, scale))


def text_image(value: Values, datatype: DataType) -> Values:
    """A numeric of either lane in the text lane."""
    if not datatype.fixed_scale:
        return value
    return _plain(value, scale_of(datatype))


def _plain(value: Values, scale: int) -> Values:
    text = pc.cast(value, pa.large_string())
    if scale < PLAIN_SCALE:
        return text
    # Arrow writes small values of a large scale with an exponent; Postgres never does.
    if not isinstance(text, pa.Scalar) and not pc.any(pc.match_substring(text, "E")).as_py():
        return text
    return fallback.map_values(lambda s: format(Decimal(s), "f"), pa.large_string(), [text])[0]


def small(value: Values) -> npt.NDArray[np.int64] | None:
    """The unscaled values of a decimal128 column (or one of a constant) if all fit 64 bits; arbitrary where null."""
    column = pa.repeat(value, 1) if isinstance(value, pa.Scalar) else value
    count = len(column)
    if not count:
        return None
    words = np.frombuffer(column.buffers()[1], np.int64, 2 * count, column.offset * 16)
    low = words[0::2]
    return low if np.array_equal(words[1::2], low >> 63) else None


def reach(values: npt.NDArray[np.int64]) -> int:
    """The largest magnitude."""
    return max(abs(int(values.max())), abs(int(values.min())))


def from_small(values: npt.NDArray[np.int64], lane: pa.DataType, nulls: Any) -> pa.Array:
    """A decimal128 column of unscaled 64-bit values."""
    words = np.empty(2 * len(values), np.int64)
    words[0::2] = values
    words[1::2] = values >> 63
    validity = None
    if np.any(nulls):
        validity = pa.py_buffer(np.packbits(np.broadcast_to(~np.asarray(nulls), values.shape), bitorder="little"))
    return pa.Array.from_buffers(lane, len(values), [validity, pa.py_buffer(words)])


def fits(values: pa.Array) -> Any:
    """None if every value of a decimal128 column has at most 38 digits, else the mask of those that have not."""
    count = len(values)
    if not count:
        return None
    words = np.frombuffer(values.buffers()[1], np.int64, 2 * count, values.offset * 16)
    high = words[1::2]
    if int(np.max(high)) < _LIMIT_HIGH and int(np.min(high)) > -_LIMIT_HIGH:
        return None
    low = words[0::2].view(np.uint64)
    limit_low = np.uint64(_LIMIT & (2**64 - 1))
    over = (high > _LIMIT_HIGH) | ((high == _LIMIT_HIGH) & (low >= limit_low))
    flipped = np.uint64((-_LIMIT) & (2**64 - 1))
    negative_high = (-_LIMIT) >> 64
    under = (high < negative_high) | ((high == negative_high) & (low <= flipped))
    return (over | under) & col.valid(values)


def narrow(values: Values, scale: int) -> Outcome:
    """A decimal256 column of `scale` in the decimal128 lane; rows of more than 38 digits fail."""
    lane = pa.decimal128(MAX_DIGITS, scale)
    try:
        return pc.cast(values, lane), None
    except pa.ArrowInvalid:
        bound = pa.scalar(Decimal(_LIMIT).scaleb(-scale), pa.decimal256(76, scale))
        lost = pc.greater_equal(pc.abs(values), bound)
        kept = pc.cast(pc.if_else(lost, pa.scalar(None, values.type), values), lane)
        return kept, pc.if_else(lost, pa.scalar(TOO_WIDE, col.MESSAGE), pa.scalar(None, col.MESSAGE))


def rescaled(value: Values, source: int, scale: int) -> Outcome:
    """A fixed-lane column moved to a larger scale; rows that no longer fit 38 digits fail."""
    if source == scale:
        return value, None
    return narrow(wide(value, scale), scale)


@functools.lru_cache(maxsize=1024)
def comparer(arrow_name: str, left: DataType, right: DataType) -> Callable[[Values, Values], Values]:
    """The comparison of two numerics of any lanes."""
    plain = pc.get_function(arrow_name)
    if left.fixed_scale and right.fixed_scale:
        scale = max(scale_of(left), scale_of(right))
        if scale_of(left) == scale_of(right):
            return lambda a, b: plain.call([a, b])
        return lambda a, b: plain.call([wide(a, scale), wide(b, scale)])
    test = fallback.COMPARE[arrow_name]

    def compare(a: Values, b: Values) -> Values:
        images = [text_image(a, left), text_image(b, right)]
        return fallback.map_values(lambda x, y: test(fallback.order(x), fallback.order(y)), pa.bool_(), images)[0]

    return compare


__all__ = ["NUMERIC", "TOO_WIDE", "comparer", "fits", "fixed", "narrow", "rescaled", "scale_of", "text_image", "wide"]
