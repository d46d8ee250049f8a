"""Every cast the engine computes, with Postgres's rounding, range errors and messages.

Always: `cast_kernel` is None where values and lane stay as they are; integers from floats round half to even, from
numerics half away from zero. Called by `evaluate`; what may be cast where is said in `coercion`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.operators.expressions.array import array_text
from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core import fallback, text_io, text_output
from headrace.engine.operators.expressions.core.coercion import FLOATS, INTEGERS, STRINGS, NoSuchFunction, can_cast
from headrace.engine.operators.expressions.core.conversions import conversion_of
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Outcome, Values
from headrace.engine.operators.expressions.core.ir import Value
from headrace.engine.operators.expressions.core.text_types import family_of
from headrace.engine.operators.expressions.datetime import calendar_text as calendar
from headrace.engine.operators.expressions.json import json_text
from headrace.engine.operators.expressions.network import network_text
from headrace.engine.operators.expressions.numeric import decimal_math, decimals
from headrace.engine.operators.expressions.numeric.arithmetic import out_of_range
from headrace.engine.schema import DataType, Kind

STRING = pa.large_string()


def literal_scalar(value: Value, datatype: DataType) -> Outcome:
    """(constant in the type's lane, message or None) of a literal."""
    lane = datatype.arrow
    if value is None:
        return pa.scalar(None, lane), None
    if isinstance(value, str) and datatype.kind not in (Kind.TEXT, Kind.VARCHAR, Kind.BPCHAR):
        values, errors = text_io.read_text(pa.array([value], STRING), datatype)
        return values[0], None if errors is None else errors[0]
    return pa.scalar(value, lane), None


def cast_kernel(source: DataType, target: DataType) -> Kernel | None:
    """The kernel of CAST(source AS target); None if nothing is to do. Raises NoSuchFunction if there is none."""
    if source == target:
        return None
    if not can_cast(source, target, "explicit"):
        raise NoSuchFunction(f"cannot cast type {source} to {target}")
    named = conversion_of(source, target)
    if named is not None:
        return None if target == source.bare else _named(named.one, source, target)
    if target.element is not None and source.element is not None:
        return _elementwise(source.element, target.element)
    if source.name == "name":
        # A name is a text that was cut off.
        return cast_kernel(DataType(Kind.TEXT), target)
    if target.kind in STRINGS:
        return _to_string(source, target)
    if target.name == "name":
        return _to_name(source)
    if target.kind in (Kind.JSON, Kind.JSONB):
        read = json_text.canonical if target.kind is Kind.JSONB else json_text.checked
        return None if source.kind is Kind.JSONB else lambda value: fallback.map_values(read, STRING, [value])
    if source.kind is Kind.JSONB:
        return _from_json(target)
    if source.kind in STRINGS:
        return _from_string(target)
    if target.kind is Kind.NUMERIC:
        return _to_numeric(source, target)
    if source.kind is target.kind:
        return None
    if target.kind in INTEGERS:
        return _to_integer(source, target)
    if target.kind in FLOATS:
        return _to_float(source, target)
    if target.kind is Kind.BOOLEAN:
        return lambda value: (pc.not_equal(value, pa.scalar(0, source.arrow)), None)
    return _calendar(source, target)


def _to_name(source: DataType) -> Kernel:
    cut = text_io.reader(DataType(Kind.OTHER, name="name"))

    def kernel(value: Values) -> Outcome:
        text = text_output.image_of(value, source)
        text = pc.ascii_rtrim(text, " ") if source.kind is Kind.BPCHAR else text
        return fallback.map_values(cut, STRING, [text])

    return kernel


def _named(one: Callable[[str, DataType], str | None], source: DataType, target: DataType) -> Kernel:
    read = text_io.reader(target)

    def converted(image: str) -> object:
        text = one(image, target)
        return None if text is None else read(text)

    return lambda value: text_io.read_each(converted, target, [text_output.image_of(value, source)])


def _from_json(target: DataType) -> Kernel:
    """A jsonb's number or truth value."""
    wanted = "boolean" if target.kind is Kind.BOOLEAN else "number"
    exact = DataType(Kind.NUMERIC)
    convert = None if target == exact or wanted == "boolean" else cast_kernel(exact, target)

    def one(text: str) -> str | None:
        kind = json_text.kind_of(text)
        if kind not in (wanted, "null"):
            found = {"number": "numeric"}.get(kind, kind)
            raise RowError(f"cannot cast jsonb {found} to type {target.kind.value}")
        return None if kind == "null" else text

    def kernel(value: Values) -> Outcome:
        texts, errors = fallback.map_values(one, STRING, [value])
        if wanted == "boolean":
            return pc.equal(texts, "true"), errors
        values, lost = (texts, None) if convert is None else convert(texts)
        return values, col.first_error(errors, lost)

    return kernel


def _elementwise(source: DataType, target: DataType) -> Kernel | None:
    """Arrays cast element by element; the first that fails is its row's error."""
    inner = cast_kernel(source, target)
    if inner is None or (source.kind is target.kind and target == DataType(target.kind)):
        return None

    def kernel(value: Values) -> Outcome:
        rows = col.length(value)
        counts, texts, unread = array_text.exploded(value, rows, any_shape=True)
        values, before = text_io.read_text(texts, source)
        values, errors = inner(values)
        errors = col.first_error(before, errors)
        out = array_text.imploded(counts, text_output.image_of(values, target), col.as_column(value, rows))
        if errors is not None:
            errors = array_text.first_of_each(counts, errors)
        return out, col.first_error(unread, errors)

    return kernel


def _from_string(target: DataType) -> Kernel:
    family = family_of(target)
    if family is not None:
        return lambda value: fallback.map_values(family.read, STRING, [value])
    return lambda value: text_io.read_text(value, target)


def _to_string(source: DataType, target: DataType) -> Kernel | None:
    inner: Callable[[Values], Values] | None = None
    if source.kind is Kind.BPCHAR and target.kind is not Kind.BPCHAR:
        inner = lambda value: pc.ascii_rtrim(value, " ")  # noqa: E731
    elif source.kind is Kind.BOOLEAN:
        inner = lambda value: pc.if_else(value, "true", "false").cast(STRING)  # noqa: E731
    elif source.name == "inet":
        inner = lambda value: fallback.map_values(network_text.full, STRING, [value])[0]  # noqa: E731
    elif source.kind not in STRINGS:
        inner = lambda value: text_output.image_of(value, source)  # noqa: E731
    if target.length is None:
        image = inner
        return None if image is None else lambda value: (image(value), None)
    limit, padded = target.length, target.kind is Kind.BPCHAR

    def kernel(value: Values) -> Outcome:
        text = value if inner is None else inner(value)
        text = pc.utf8_slice_codeunits(text, 0, limit)
        return (pc.utf8_rpad(text, limit, " ") if padded else text), None

    return kernel


def _to_numeric(source: DataType, target: DataType) -> Kernel | None:
    if source.kind is Kind.NUMERIC and target.precision is None:
        if target.scale is None or not target.fixed_scale:
            return (lambda value: (decimals.text_image(value, source), None)) if source.fixed_scale else None
        if source.fixed_scale and decimals.scale_of(source) == target.scale:
            return None
    if source.kind in INTEGERS and target.precision is None:
        if target.scale == 0:
            whole = col.caster(pa.decimal128(19, 0))
            return lambda value: (col.retyped(whole(value), target.arrow), None)
        if target.scale is None:
            return lambda value: (pc.cast(value, STRING), None)
    if source.kind is Kind.NUMERIC and source.fixed_scale and target.fixed_scale and target.precision is not None:
        return _constrain_fixed(source, target)
    return _constrain_text(source, target)


def _constrain_fixed(source: DataType, target: DataType) -> Kernel:
    scale, own = target.scale or 0, decimals.scale_of(source)
    if target.precision is None or scale < 0 or target.precision <= scale:
        return _constrain_text(source, target)
    bound = pa.scalar(Decimal(f"1E{target.precision - scale}"), pa.decimal256(76, scale))

    def kernel(value: Values) -> Outcome:
        out = decimals.wide(value, max(scale, own))
        if scale < own:
            out = pc.cast(pc.round(out, scale, "half_towards_infinity"), pa.decimal256(76, scale))
        lost = pc.greater_equal(pc.abs(out), bound)
        if pc.any(lost).as_py() is not True:
            return pc.cast(out, target.arrow), None
        kept = pc.cast(pc.if_else(lost, pa.scalar(None, out.type), out), target.arrow)
        message = pc.if_else(lost, pa.scalar("numeric field overflow", col.MESSAGE), pa.scalar(None, col.MESSAGE))
        return kept, message

    return kernel


def _float_digits(value: float, digits: int) -> str:
    if value != value:
        return decimal_math.NAN
    if math.isinf(value):
        return decimal_math.INFINITY if value > 0 else decimal_math.MINUS_INFINITY
    return decimal_math.parse(f"{value:.{digits}g}")


def _constrain_text(source: DataType, target: DataType) -> Kernel:
    digits = 15 if source.kind is Kind.DOUBLE else 6

    def one(value: Any) -> str:
        image = _float_digits(value, digits) if source.kind in FLOATS else str(value)
        if target.precision is not None:
            image = decimal_math.constrain(image, target.precision, target.scale or 0)
        elif target.fixed_scale and (image in decimal_math.SPECIAL or decimal_math.split(image)[1] != target.scale):
            raise RowError(f"numeric {image} has not the scale {target.scale} of its column")
        return text_io.lane_image(image, target)

    def kernel(value: Values) -> Outcome:
        text = decimals.text_image(value, source) if source.kind is Kind.NUMERIC else value
        out, errors = fallback.map_values(one, STRING, [text])
        return (pc.cast(out, target.arrow) if target.fixed_scale else out), errors

    return kernel


def _to_integer(source: DataType, target: DataType) -> Kernel:
    lane, message = target.arrow, out_of_range(target)
    if source.kind is Kind.BOOLEAN:
        return lambda value: (pc.cast(value, lane), None)
    if source.kind is Kind.NUMERIC:
        return _numeric_to_integer(source, target)
    info = np.iinfo(lane.to_pandas_dtype())
    convert = col.caster(lane)

    def kernel(value: Values) -> Outcome:
        if source.kind in INTEGERS:
            try:
                return convert(value), None
            except pa.ArrowInvalid:
                data = col.operand(value)
        else:
            data = np.rint(col.operand(value))
        there = col.valid(value)
        if source.kind in FLOATS:
            good = (data >= float(info.min)) & (data < -float(info.min))
        else:
            good = (data >= info.min) & (data <= info.max)
        kept = np.where(good, data, 0).astype(lane.to_pandas_dtype())
        return col.failing(col.build(kept, lane, ~(there & good)), (there & ~good, message))

    return kernel


def _numeric_to_integer(source: DataType, target: DataType) -> Kernel:
    bound, message = 1 << (target.arrow.bit_width - 1), out_of_range(target)

    def one(image: str) -> int:
        if image in decimal_math.SPECIAL:
            raise RowError(f"cannot convert {'NaN' if image == 'NaN' else 'infinity'} to {target.kind.value}")
        value = decimal_math.rescale(decimal_math.split(image), 0)
        if not -bound <= value < bound:
            raise RowError(message)
        return value

    def kernel(value: Values) -> Outcome:
        if source.fixed_scale:
            try:
                whole = pc.round(value, 0, "half_towards_infinity") if decimals.scale_of(source) else value
                return pc.cast(whole, target.arrow), None
            except pa.ArrowInvalid:
                pass
        return fallback.map_values(one, target.arrow, [decimals.text_image(value, source)])

    return kernel


def _to_float(source: DataType, target: DataType) -> Kernel:
    lane = target.arrow
    if source.kind in INTEGERS or (source.kind is Kind.REAL and target.kind is Kind.DOUBLE):
        convert = col.caster(lane, safe=False)
        return lambda value: (convert(value), None)
    if source.kind is Kind.NUMERIC:
        read = text_io.reader(target)
        return lambda value: fallback.map_values(read, lane, [decimals.text_image(value, source)])

    def kernel(value: Values) -> Outcome:
        data = col.operand(value)
        with np.errstate(all="ignore"):
            out = data.astype(np.float32)
        there = col.valid(value)
        return col.failing(
            col.build(out, lane, ~there),
            (there & np.isinf(out) & ~np.isinf(data), "value out of range: overflow"),
            (there & (out == 0) & (data != 0), "value out of range: underflow"),
        )

    return kernel


def _calendar(source: DataType, target: DataType) -> Kernel:
    lane = target.arrow
    if source.kind is Kind.DATE:
        return lambda value: date_to_stamp(value, lane)
    if target.kind is Kind.DATE:
        return lambda value: (_stamp_to_date(value), None)
    if target.kind is Kind.TIME:
        return lambda value: (_stamp_to_time(value), None)
    return lambda value: (col.retyped(value, lane), None)


def date_to_stamp(value: Values, lane: pa.DataType) -> Outcome:
    """Midnight (UTC) of dates, in a timestamp lane."""
    days = col.operand(value).astype(np.int64)
    there = col.valid(value)
    infinite = (days == calendar.DATE_INFINITY) | (days == calendar.DATE_MINUS_INFINITY)
    lost = (days > calendar.STAMP_LIMIT // calendar.DAY) & ~infinite & there
    late = lost & (days < calendar.STAMP_MAX_DAY)
    with np.errstate(all="ignore"):
        micros = days * calendar.DAY
    micros = np.where(days == calendar.DATE_INFINITY, calendar.STAMP_INFINITY, micros)
    micros = np.where(days == calendar.DATE_MINUS_INFINITY, calendar.STAMP_MINUS_INFINITY, micros)
    return col.failing(
        col.build(micros, lane, ~there), (late, calendar.LATE), (lost, "date out of range for timestamp")
    )


def _stamp_to_date(value: Values) -> Values:
    micros = col.operand(value)
    days = micros // calendar.DAY
    days = np.where(micros == calendar.STAMP_INFINITY, calendar.DATE_INFINITY, days)
    days = np.where(micros == calendar.STAMP_MINUS_INFINITY, calendar.DATE_MINUS_INFINITY, days)
    return col.build(days.astype(np.int32), pa.date32(), ~col.valid(value))


def _stamp_to_time(value: Values) -> Values:
    micros = col.operand(value)
    infinite = (micros == calendar.STAMP_INFINITY) | (micros == calendar.STAMP_MINUS_INFINITY)
    return col.build(micros % calendar.DAY, pa.time64("us"), ~col.valid(value) | infinite)
