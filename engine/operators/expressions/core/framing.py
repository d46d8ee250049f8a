"""Functions that the binder puts where frames and limits are counted: sizes checked, and times of day as numbers.

Always: a size is checked where its value is known, with Postgres's message; a time of day moved by an interval does not
wrap around, and of the interval its hours and below count alone. Registered in the catalogue at import.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core.fallback import RowError, map_values
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Maker, entry
from headrace.engine.operators.expressions.datetime.input_parse import SECOND, read_timetz
from headrace.engine.operators.expressions.datetime.interval_text import is_finite, span
from headrace.engine.operators.expressions.datetime.intervals import INTERVAL, read
from headrace.engine.schema import TIMETZ, DataType, Kind

SIZE = "invalid preceding or following size in window function"


def clock_span(image: str) -> str:
    """By how many microseconds an interval moves a time of day, in a frame's bound.

    >>> clock_span("1 day 00:00:01"), clock_span("-infinity")
    ('1000000', '-Infinity')
    """
    value = read(image)
    if is_finite(value):
        return str(value[2])
    return "Infinity" if span(value) > 0 else "-Infinity"


def _zoned_clock(image: str) -> str:
    """What a time with a zone sorts by as a number: its instant, then how far west its zone lies."""
    micros, offset = read_timetz(image)
    return format(Decimal(micros - offset * SECOND) - Decimal(offset) / SECOND, "f")


def _counted(count: int | None, what: str, required: bool) -> int | None:
    if count is None and required:
        raise RowError(f"{what} must not be null")
    if count is not None and count < 0:
        raise RowError(f"{what} must not be negative")
    return count


def _present(value: object, what: str) -> object:
    if value is None:
        raise RowError(f"{what} must not be null")
    return value


def is_size(image: object, kind: DataType) -> bool:
    """Whether a value may be the offset of a RANGE: it is neither negative nor NaN."""
    return (span(read(str(image))) if kind == INTERVAL else float(str(image))) >= 0


def _sizing(params: tuple[DataType, ...], result: DataType) -> Kernel:
    """The offset of a RANGE, for a row that has a value to count from; NULL for any other."""

    def sized(offset: object, there: bool) -> object:
        if there and not is_size(offset, params[0]):
            raise RowError(SIZE)
        return offset if there else None

    return lambda *values: map_values(sized, result.arrow, values)


def _mapped(function: Callable[..., object], *, strict: bool = True) -> Maker:
    return lambda _params, result: lambda *values: map_values(function, result.arrow, values, strict=strict)


entry("$counted", (Kind.BIGINT, Kind.TEXT, Kind.BOOLEAN), Kind.BIGINT, _mapped(_counted, strict=False), strict=False)
entry("$present", (None, Kind.TEXT), lambda params: params[0], _mapped(_present, strict=False), strict=False)
for _kind in (Kind.NUMERIC, Kind.DOUBLE, INTERVAL):
    entry("$sized", (_kind, Kind.BOOLEAN), lambda params: params[0], _sizing, fallback=True)
entry(
    "$clock", (Kind.TIME,), Kind.BIGINT, lambda _params, _result: lambda clock: (col.retyped(clock, pa.int64()), None)
)
entry("$clock", (TIMETZ,), Kind.NUMERIC, _mapped(_zoned_clock), fallback=True)
entry("$span", (INTERVAL,), Kind.NUMERIC, _mapped(clock_span), fallback=True)
