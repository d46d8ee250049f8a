"""The fields of dates, times and timestamps: EXTRACT and date_part, in UTC.

Always: whole-number fields of finite columns are worked out in numpy, the others through `fallback`; an infinite value
has an infinite year and no month. Called by `calendar`, which registers them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.casts import date_to_stamp
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Maker, Outcome, Values
from headrace.engine.operators.expressions.datetime import calendar_text as text
from headrace.engine.operators.expressions.numeric import decimal_math
from headrace.engine.schema import DataType, Kind

Params = tuple[DataType, ...]
DAY = text.DAY


def infinite_days(days: Any) -> Any:
    """Where day numbers are infinite."""
    return (days == text.DATE_INFINITY) | (days == text.DATE_MINUS_INFINITY)


def infinite_stamps(micros: Any) -> Any:
    """Where microseconds are infinite."""
    return (micros == text.STAMP_INFINITY) | (micros == text.STAMP_MINUS_INFINITY)


def month_start(months: Any) -> Any:
    """Day number of the first of a month counted from 1970-01."""
    return np.asarray(months, "datetime64[M]").astype("datetime64[D]").astype(np.int64)


def months_of(days: Any) -> Any:
    """Months since 1970-01 of day numbers."""
    return np.asarray(days, "datetime64[D]").astype("datetime64[M]").astype(np.int64)


_NAMES = {
    **{n: n for n in ("century", "decade", "millennium", "year", "quarter", "month", "week", "day", "hour", "minute")},
    **{n: n for n in ("second", "millisecond", "microsecond", "epoch", "dow", "isodow", "doy", "isoyear")},
    "milliseconds": "millisecond",
    "microseconds": "microsecond",
    "centuries": "century",
    "decades": "decade",
    "millennia": "millennium",
    **{f"{n}s": n for n in ("year", "quarter", "month", "week", "day", "hour", "minute", "second")},
    "timezone": "timezone",
    "timezone_hour": "timezone_hour",
    "timezone_minute": "timezone_minute",
    "c": "century",
    "cent": "century",
    "dec": "decade",
    "decs": "decade",
    "mil": "millennium",
    "mils": "millennium",
    "y": "year",
    "yr": "year",
    "yrs": "year",
    "mon": "month",
    "mons": "month",
    "w": "week",
    "d": "day",
    "h": "hour",
    "hr": "hour",
    "hrs": "hour",
    "m": "minute",
    "min": "minute",
    "mins": "minute",
    "s": "second",
    "sec": "second",
    "secs": "second",
    "ms": "millisecond",
    "msec": "millisecond",
    "msecs": "millisecond",
    "us": "microsecond",
    "usec": "microsecond",
    "usecs": "microsecond",
    "qtr": "quarter",
    "julian": "julian",
}
_SPELLED = 10
_FIELDS = {name[:_SPELLED]: field for name, field in _NAMES.items()}


def field_of(spelled: str) -> str | None:
    """The field that a name in any case means, of which Postgres reads the first ten characters; None for none."""
    return _FIELDS.get(spelled.lower()[:_SPELLED])


CLOCKFIELDS = ("hour", "minute", "second", "millisecond", "microsecond")
_JULIAN_1970 = 2_440_588
_GROWING = ("year", "decade", "century", "millennium", "isoyear", "epoch", "julian")


def _scaled(value: int, scale: int) -> str:
    whole, part = divmod(abs(value), 10**scale)
    return f"{'-' if value < 0 else ''}{whole}.{part:0{scale}d}"


def clock_field(field: str, rest: int) -> str:
    """A field of a time of day, given in microseconds."""
    if field == "hour":
        return str(rest // 3_600_000_000)
    if field == "minute":
        return str(rest // 60_000_000 % 60)
    within = rest % 60_000_000
    if field == "microsecond":
        return str(within)
    return _scaled(within, 3 if field == "millisecond" else 6)


def _iso_week(days: int) -> tuple[int, int]:
    """(ISO year, ISO week), the year astronomical."""
    thursday = days - (days + 3) % 7 + 3
    year = text.civil(thursday)[0]
    return year, (thursday - text.day_number(year, 1, 1)) // 7 + 1


def _outward(year: int, size: int) -> int:
    """The century or millennium of an astronomical year; there is no zeroth."""
    return (year + size - 1) // size if year > 0 else -((size - year) // size)


def _date_field(field: str, days: int) -> str:
    year, month, day = text.civil(days)
    if field in ("dow", "isodow"):
        weekday = (days + 4) % 7
        return str(weekday or 7 if field == "isodow" else weekday)
    if field in ("week", "isoyear"):
        iso_year, week = _iso_week(days)
        return str(week if field == "week" else iso_year if iso_year > 0 else iso_year - 1)
    simple = {
        "year": year if year > 0 else year - 1,
        "quarter": (month - 1) // 3 + 1,
        "month": month,
        "day": day,
        "doy": days - text.day_number(year, 1, 1) + 1,
        "decade": year // 10,
        "century": _outward(year, 100),
        "millennium": _outward(year, 1000),
    }
    return str(simple[field])


def _field_of(kind: Kind) -> Callable[[str, int], str | None]:
    """EXTRACT's function for values of `kind`: (field, the lane's integer) to numeric image, None for NULL."""
    name = {Kind.DATE: "date"}.get(kind, kind.value)
    infinities = (text.DATE_INFINITY, text.DATE_MINUS_INFINITY) if kind is Kind.DATE else (
        text.STAMP_INFINITY,
        text.STAMP_MINUS_INFINITY,
    )  # fmt: skip

    def extract(spelled: str, value: int) -> str | None:
        field = field_of(spelled)
        if field is None:
            raise RowError(f'unit "{spelled.lower()}" not recognized for type {name}')
        if value in infinities and kind is not Kind.DATE:
            return ("Infinity" if value > 0 else "-Infinity") if field in _GROWING else None
        zone = field.startswith("timezone")
        if (kind is Kind.DATE and (field in CLOCKFIELDS or zone)) or (zone and kind is not Kind.TIMESTAMPTZ):
            raise RowError(f'unit "{spelled.lower()}" not supported for type {name}')
        if value in infinities:
            return ("Infinity" if value > 0 else "-Infinity") if field in _GROWING else None
        if zone:
            return "0"
        if field == "julian":
            days, rest = (value, 0) if kind is Kind.DATE else divmod(value, DAY)
            whole = str(days + _JULIAN_1970)
            return whole if kind is Kind.DATE else decimal_math.add(whole, decimal_math.divide(str(rest), str(DAY)))
        if kind is Kind.DATE:
            return str(value * 86400) if field == "epoch" else _date_field(field, value)
        if field == "epoch":
            return _scaled(value, 6)
        days, rest = divmod(value, DAY)
        return clock_field(field, rest) if field in CLOCKFIELDS else _date_field(field, days)

    return extract


def _time_field(spelled: str, value: int) -> str:
    field = field_of(spelled)
    if field is None:
        raise RowError(f'unit "{spelled.lower()}" not recognized for type {Kind.TIME.value}')
    if field == "epoch":
        return _scaled(value, 6)
    if field not in CLOCKFIELDS:
        raise RowError(f'unit "{spelled.lower()}" not supported for type {Kind.TIME.value}')
    return clock_field(field, value)


def _whole_field(field: str, value: Values) -> pa.Array | None:
    """A field that is a whole number, for a column of finite dates or timestamps; None if it is not that."""
    is_date, is_stamp = pa.types.is_date(value.type), pa.types.is_timestamp(value.type)
    if isinstance(value, pa.Scalar) or not (is_date or is_stamp):
        return None
    raw = col.numbers(value).astype(np.int64)
    if np.any(infinite_days(raw) if is_date else infinite_stamps(raw)):
        return None
    days, rest = (raw, None) if is_date else np.divmod(raw, DAY)
    out = _clock_number(field, rest) if rest is not None and field in CLOCKFIELDS else _date_number(field, days)
    return None if out is None else col.build(out, pa.int64(), ~col.valid(value))


def _clock_number(field: str, rest: Any) -> Any:
    if field == "hour":
        return rest // 3_600_000_000
    return rest // 60_000_000 % 60 if field == "minute" else None


def _date_number(field: str, days: Any) -> Any:
    if field in ("dow", "isodow"):
        weekday = (days + 4) % 7
        return np.where(weekday == 0, 7, weekday) if field == "isodow" else weekday
    if field not in ("year", "quarter", "month", "day", "doy"):
        return None
    months = months_of(days)
    if field == "year":
        years = months // 12 + 1970
        return np.where(years > 0, years, years - 1)
    if field in ("month", "quarter"):
        return months % 12 + 1 if field == "month" else months % 12 // 3 + 1
    return days - month_start(months if field == "day" else months // 12 * 12) + 1


def extract(as_double: bool) -> Maker:
    """EXTRACT (a numeric), or date_part (a double)."""

    def make(params: Params, result: DataType) -> Kernel:
        kind = params[1].kind
        through_stamp = as_double and kind is Kind.DATE
        function = _time_field if kind is Kind.TIME else _field_of(Kind.TIMESTAMP if through_stamp else kind)

        def double(field: str, value: int) -> float | None:
            image = function(field, value)
            return None if image is None else float(image)

        def kernel(field: Values, value: Values) -> Outcome:
            fault = None
            if through_stamp:
                value, fault = date_to_stamp(value, pa.timestamp("us"))
            if isinstance(field, pa.Scalar):
                quick = _whole_field(field_of(field.as_py()) or "", value)
                if quick is not None:
                    return pc.cast(quick, result.arrow), fault
            raw = col.retyped(value, pa.int32() if value.type == pa.date32() else pa.int64())
            out, own = fallback.map_values(double if as_double else function, result.arrow, [field, raw])
            return out, col.first_error(fault, own)

        return kernel

    return make
