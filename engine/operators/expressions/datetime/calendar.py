"""Dates and timestamps: arithmetic with days and intervals, date_trunc; the session's zone is UTC.

Always: infinite values are the extreme integers of their lane and stay infinite; a result out of range fails its row.
An interval is its text image, read once per distinct value. Registered in the catalogue at import.
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
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Maker, Outcome, Values, entry
from headrace.engine.operators.expressions.datetime import calendar_text as text
from headrace.engine.operators.expressions.datetime import interval_input, interval_text
from headrace.engine.operators.expressions.datetime.date_parts import (
    extract,
    field_of,
    infinite_days,
    infinite_stamps,
    month_start,
    months_of,
)
from headrace.engine.operators.expressions.datetime.intervals import is_endless, on_numbers
from headrace.engine.schema import DataType, Kind

Params = tuple[DataType, ...]
DAY = text.DAY
DATE_RANGE, STAMP_RANGE = "date out of range", "timestamp out of range"
_LAST_DAY = text.STAMP_LIMIT // DAY


def _shift_days(sign: int, date_at: int) -> Maker:
    def make(_params: Params, result: DataType) -> Kernel:
        def kernel(*values: Values) -> Outcome:
            days = col.operand(values[date_at]).astype(np.int64)
            out = days + sign * col.operand(values[1 - date_at]).astype(np.int64)
            infinite, there = infinite_days(days), col.all_valid(*values)
            lost = there & ~infinite & ((out < text.MIN_DAY) | (out >= text.MAX_DAY))
            out = np.where(infinite, days, np.where(lost, 0, out)).astype(np.int32)
            return col.failing(col.build(out, result.arrow, ~there), (lost, DATE_RANGE))

        return kernel

    return make


def _days_between(_params: Params, result: DataType) -> Kernel:
    def kernel(left: Values, right: Values) -> Outcome:
        a, b = col.operand(left).astype(np.int64), col.operand(right).astype(np.int64)
        there = col.all_valid(left, right)
        infinite = there & (infinite_days(a) | infinite_days(b))
        out = np.where(infinite, 0, a - b).astype(np.int32)
        return col.failing(col.build(out, result.arrow, ~there), (infinite, "cannot subtract infinite dates"))

    return kernel


def interval_parts(value: Values) -> tuple[tuple[Any, Any, Any], Any]:
    """((months, days, micros) as numpy or integers, messages) of intervals."""
    if isinstance(value, pa.Scalar):
        return interval_input.read(value.as_py()), None
    parts = []
    errors = None
    for i in range(3):
        out, errors = fallback.map_values(lambda s, i=i: interval_input.read(s)[i], pa.int64(), [value])
        parts.append(pc.fill_null(out, 0).to_numpy(zero_copy_only=False))
    return (parts[0], parts[1], parts[2]), errors


def _add_months(days: Any, months: Any) -> Any:
    """Day numbers moved by months; a day that the month has not becomes its last."""
    own = months_of(days)
    target = own + months
    of_month = days - month_start(own)
    last = month_start(target + 1) - month_start(target) - 1
    return month_start(target) + np.minimum(of_month, last)


def _endless(sign: int, micros: Any) -> Any:
    """1 where an interval leads to infinity, -1 to minus infinity, 0 elsewhere."""
    up, down = interval_text.INFINITE[2], interval_text.MINUS_INFINITE[2]
    return sign * (np.equal(micros, up).astype(np.int64) - np.equal(micros, down).astype(np.int64))


def _shift_stamp(sign: int, stamp_at: int) -> Maker:
    def make(params: Params, result: DataType) -> Kernel:
        from_date = params[stamp_at].kind is Kind.DATE

        def kernel(*values: Values) -> Outcome:
            stamp, too_far = values[stamp_at], None
            if from_date:
                stamp, too_far = date_to_stamp(stamp, pa.timestamp("us"))
            there = col.all_valid(stamp, values[1 - stamp_at])
            try:
                (months, days, micros), fault = interval_parts(values[1 - stamp_at])
            except RowError as error:
                rows = col.length(*values)
                return pa.nulls(rows, result.arrow), col.messages(there & np.ones(rows, bool), str(error), rows)
            raw = col.operand(stamp).astype(np.int64)
            infinite = infinite_stamps(raw)
            day, rest = np.divmod(np.where(infinite, 0, raw), DAY)
            if np.any(months):
                day = _add_months(day, sign * months)
            day = day + sign * days
            with np.errstate(all="ignore"):
                extra, rest = np.divmod(rest + sign * np.asarray(micros, np.int64), DAY)
            day = day + extra
            finite = there & ~infinite
            beyond = (day > _LAST_DAY) | ((day == _LAST_DAY) & (rest >= text.STAMP_LIMIT % DAY))
            late = finite & beyond & (day < text.STAMP_MAX_DAY)
            lost = finite & (beyond | (day < text.MIN_DAY))
            out = np.where(infinite, raw, np.where(lost, 0, day) * DAY + rest)
            endless = _endless(sign, micros)
            late &= endless == 0
            lost = np.where(endless != 0, there & infinite & (np.sign(raw) != endless), lost)
            out = np.where(endless == 0, out, np.where(endless > 0, text.STAMP_INFINITY, text.STAMP_MINUS_INFINITY))
            values_out, own = col.failing(col.build(out, result.arrow, ~there), (late, text.LATE), (lost, STAMP_RANGE))
            return values_out, col.first_error(too_far, fault, own)

        return kernel

    return make


WITHIN_HOURS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
}


def truncate(field: str, micros: Any) -> Any:
    """Timestamps cut to a field."""
    if field in WITHIN_HOURS:
        return micros // WITHIN_HOURS[field] * WITHIN_HOURS[field]
    days = micros // DAY
    if field == "day":
        return days * DAY
    if field == "week":
        return (days - (days + 3) % 7) * DAY
    months = months_of(days)
    if field == "month":
        return month_start(months) * DAY
    if field == "quarter":
        return month_start(months // 3 * 3) * DAY
    years = months // 12 + 1970
    if field == "decade":
        years = years // 10 * 10
    elif field in ("century", "millennium"):
        size = 100 if field == "century" else 1000
        years = (years - 1) // size * size + 1
    return month_start((years - 1970) * 12) * DAY


TRUNCATED = (*WITHIN_HOURS, "day", "week", "month", "quarter", "year", "decade", "century", "millennium")


def _date_trunc(params: Params, result: DataType) -> Kernel:
    name = params[1].kind.value

    def kernel(field: Values, value: Values) -> Outcome:
        rows, there = col.length(field, value), col.all_valid(field, value)
        raw = np.broadcast_to(col.operand(value), (rows,))
        out, errors = np.zeros(rows, np.int64), None
        infinite = infinite_stamps(raw)
        spellings = [field.as_py()] if isinstance(field, pa.Scalar) else pc.unique(field).drop_null().to_pylist()
        for spelled in spellings:
            chosen = np.True_ if isinstance(field, pa.Scalar) else pc.fill_null(pc.equal(field, spelled), False)
            mask = np.broadcast_to(np.asarray(chosen), (rows,)) & there
            unit = field_of(spelled)
            if unit not in TRUNCATED:
                verb = "supported" if (unit or "").startswith("timezone") else "recognized"
                message = f'unit "{spelled.lower()}" not {verb} for type {name}'
                errors = col.first_error(errors, col.messages(mask, message, rows))
                continue
            out = np.where(mask & ~infinite, truncate(unit, np.where(infinite, 0, raw)), out)
        out = np.where(infinite, raw, out)
        lost = there & ~infinite & (out // DAY < text.MIN_DAY)
        values, own = col.failing(col.build(out, result.arrow, ~there), (lost, STAMP_RANGE))
        if errors is not None:
            values = pc.if_else(errors.is_valid(), pa.scalar(None, values.type), values)
        return values, col.first_error(errors, own)

    return kernel


def _make_date(year: int, month: int, day: int) -> int:
    astronomical = year + 1 if -(2**31) < year < 0 else year
    if year in (0, -(2**31)) or not 1 <= month <= 12 or not 1 <= day <= text.month_days(astronomical, month):
        raise RowError(f"date field value out of range: {astronomical}-{month:02d}-{day:02d}")
    days = text.day_number(astronomical, month, day)
    if not text.MIN_DAY <= days < text.MAX_DAY:
        raise RowError(f"date out of range: {astronomical}-{month:02d}-{day:02d}")
    return days


def _made_date(_params: Params, result: DataType) -> Kernel:
    def kernel(*values: Values) -> Outcome:
        out, errors = fallback.map_values(_make_date, pa.int32(), values)
        return col.retyped(out, result.arrow), errors

    return kernel


def _rounded(start: int) -> Callable[[int, int], int]:
    """Seconds of so many digits, halves away from `start`."""

    def rounded(micros: int, digits: int) -> int:
        if is_endless(micros):
            return micros
        size, away = int(10 ** (6 - digits)), micros - start
        return start + (abs(away) + size // 2) // size * size * (1 if away >= 0 else -1)

    return rounded


def _register() -> None:
    date, number, interval = Kind.DATE, Kind.INTEGER, Kind.OTHER
    stamp, zoned, clock = Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.TIME
    entry("+", (date, number), date, _shift_days(1, 0))
    entry("+", (number, date), date, _shift_days(1, 1))
    entry("-", (date, number), date, _shift_days(-1, 0))
    entry("-", (date, date), number, _days_between)
    for kind, result in ((date, stamp), (stamp, stamp), (zoned, zoned)):
        entry("+", (kind, interval), result, _shift_stamp(1, 0))
        entry("+", (interval, kind), result, _shift_stamp(1, 1))
        entry("-", (kind, interval), result, _shift_stamp(-1, 0))
    for kind in (date, stamp, zoned, clock):
        entry("extract", (Kind.TEXT, kind), Kind.NUMERIC, extract(False), fallback=True)
        entry("date_part", (Kind.TEXT, kind), Kind.DOUBLE, extract(True), fallback=True)
    entry("date_trunc", (Kind.TEXT, stamp), stamp, _date_trunc)
    entry("date_trunc", (Kind.TEXT, zoned), zoned, _date_trunc)
    for kind in (stamp, zoned, clock):
        start = 0 if kind is clock else text.day_number(2000, 1, 1) * DAY
        entry("$rounded", (kind, number), kind, on_numbers(_rounded(start)), fallback=True)
    entry("make_date", (number, number, number), date, _made_date, fallback=True)


_register()
