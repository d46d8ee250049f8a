"""The text of every lane as Postgres prints it: `to_text`, `image_of`.

Invariant: ISO dates in UTC, shortest float digits in Postgres's layout, numerics with their display scale, bytea as hex, booleans
as t and f. Sinks, replay and casts call it; `text_io` reads texts back.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.function_catalog import Values
from headrace.engine.operators.expressions.datetime import calendar_text as calendar
from headrace.engine.operators.expressions.numeric import decimals
from headrace.engine.schema import DataType, Kind

STRING = pa.large_string()


def _digits(number: np.floating[Any]) -> str:
    """The shortest digits that lie strictly nearer to `number` than to its neighbours, in scientific layout.

    Postgres does not take digits that lie exactly between two floats, even where reading them would round to this one;
    only large whole numbers have such digits.
    """
    text = np.format_float_scientific(number, unique=True, trim="-")
    if abs(number) < (2**53 if number.dtype.itemsize == 8 else 2**24):
        return text
    exact = int(number)
    with np.errstate(over="ignore"):
        others = [np.nextafter(number, number.dtype.type(toward)) for toward in (np.inf, -np.inf)]
    between = {exact + int(other) for other in others if np.isfinite(other)}
    digits = len(text.partition("e")[0].lstrip("-").replace(".", ""))
    while int(Decimal(text)) * 2 in between:
        text = f"{Decimal(exact):.{digits}e}"
        digits += 1
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{exponent}"


def _float_image(bits: int) -> Callable[[float], str]:
    highest = 15 if bits == 64 else 6
    single = bits == 32

    def image(value: float) -> str:
        if value != value:
            return "NaN"
        if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
        number = np.float32(value) if single else np.float64(value)
        if number == 0:
            return "-0" if np.signbit(number) else "0"
        mantissa, _, exponent = _digits(number).partition("e")
        power = int(exponent)
        if power < -4 or power >= highest:
            return f"{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"
        return format(Decimal(f"{mantissa}e{power}"), "f")

    return image


_DOUBLE, _SINGLE = _float_image(64), _float_image(32)


def float_image(value: float) -> str:
    """A double as Postgres prints it."""
    return _DOUBLE(value)


def image_of(value: Values, datatype: DataType) -> Values:
    """The text image of a column or constant of `datatype`."""
    kind = datatype.kind
    if kind is Kind.BOOLEAN:
        return pc.if_else(value, "t", "f").cast(STRING)
    if kind in (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT):
        return pc.cast(value, STRING)
    if kind is Kind.DOUBLE:
        return fallback.map_values(_DOUBLE, STRING, [value])[0]
    if kind is Kind.REAL:
        return fallback.map_values(_SINGLE, STRING, [value])[0]
    if kind is Kind.NUMERIC:
        return decimals.text_image(value, datatype)
    if kind is Kind.BYTEA:
        return fallback.map_values(lambda v: "\\x" + v.hex(), STRING, [value])[0]
    if kind in (Kind.TIME, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
        return _calendar_image(value, kind)
    return value


def _trim_fraction(text: Values) -> Values:
    return pc.ascii_rtrim(pc.ascii_rtrim(text, "0"), ".")


_PLAIN = {Kind.DATE: calendar.PLAIN_DAYS, Kind.TIME: (0, calendar.DAY)}


def _calendar_image(value: Values, kind: Kind) -> Values:
    physical = pa.int32() if kind is Kind.DATE else pa.int64()
    raw = col.retyped(value, physical)
    low, high = _PLAIN.get(kind, calendar.PLAIN_MICROS)
    plain = pc.and_(pc.greater_equal(raw, low), pc.less(raw, high))
    zone = "+00" if kind is Kind.TIMESTAMPTZ else ""
    usual = pc.if_else(plain, raw, pa.scalar(0, physical))
    lane = pa.timestamp("us") if kind is Kind.TIMESTAMPTZ else value.type
    text = pc.cast(col.retyped(usual, lane), STRING)
    if kind is not Kind.DATE:
        text = _trim_fraction(text)
        text = pc.binary_join_element_wise(text, pa.scalar(zone, STRING), pa.scalar("", STRING)) if zone else text
    if (plain if isinstance(plain, pa.Scalar) else pc.all(plain)).as_py() is not False:
        return text
    rare = fallback.map_values(_rare_image(kind, zone), STRING, [pc.if_else(plain, pa.scalar(None, physical), raw)])[0]
    return pc.coalesce(rare, text)


def _rare_image(kind: Kind, zone: str) -> Callable[[int], str]:
    """Python's image of what Arrow does not print as Postgres does: infinities, BC, years of five digits, 24:00."""
    if kind is Kind.DATE:
        return calendar.date_image
    return calendar.time_image if kind is Kind.TIME else lambda micros: calendar.stamp_image(micros, zone)


def to_text(array: pa.Array, datatype: DataType) -> pa.LargeStringArray:
    """The Postgres text image of each value of a column of `datatype`; NULL stays NULL."""
    return image_of(array, datatype)
