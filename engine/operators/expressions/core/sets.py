"""Functions that return a set of rows: series of numbers and times, the elements of an array, the parts of a text.

Always: a kernel here takes columns alone and gives, of each row, how many rows it makes and these in order; NULL makes
none; a row that fails makes none and has a message. Registered in the catalogue at import; called by `spread`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.batch.updates import Int64s
from headrace.engine.operators.expressions.array import array_text, arrays
from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core import text_io, text_output
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Maker, Pseudo, by_function, entry
from headrace.engine.operators.expressions.datetime import calendar
from headrace.engine.operators.expressions.datetime.date_parts import infinite_stamps
from headrace.engine.operators.expressions.numeric import decimal_math
from headrace.engine.schema import DataType, Kind

STRING = pa.large_string()
Params = tuple[DataType, ...]
MOST = 1 << 24
TOO_MANY = f"a set of more than {MOST} rows"


class Made(NamedTuple):
    """How many rows each row makes, their columns, and the messages of rows that fail."""

    counts: Int64s
    columns: list[pa.Array]
    errors: pa.Array | None


SetKernel = Callable[..., Made]


def _there(values: tuple[pa.Array, ...]) -> Any:
    return np.broadcast_to(col.all_valid(*values), (len(values[0]),))


def _series(_params: Params, result: DataType) -> Any:
    """generate_series of integers, in columns."""
    lane = result.arrow

    def kernel(*values: pa.Array) -> Made:
        there = _there(values)
        first, last = (np.where(there, col.numbers(v), 0).astype(np.int64) for v in values[:2])
        step = np.where(there, col.numbers(values[2]), 1).astype(np.int64) if len(values) > 2 else np.ones_like(first)
        up = step > 0
        with np.errstate(over="ignore"):
            # Differences of the extremes fit in what has no sign.
            span = np.where(
                up, last.view(np.uint64) - first.view(np.uint64), first.view(np.uint64) - last.view(np.uint64)
            )
            size = np.where(up, step.view(np.uint64), -step.view(np.uint64))
        zero = there & (step == 0)
        some = there & ~zero & np.where(up, first <= last, first >= last)
        steps = np.where(some, span // np.maximum(size, 1), 0)
        many = some & (steps >= MOST)
        counts = np.where(some & ~many, steps + 1, 0).astype(np.int64)
        errors = col.first_error(
            col.messages(zero, "step size cannot equal zero", len(there)), col.messages(many, TOO_MANY, len(there))
        )
        at = np.repeat(np.arange(len(counts)), counts)
        within = np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)
        found = first[at] + within * step[at]
        return Made(counts, [_narrowed(found, lane)], errors)

    return kernel


def _one(_params: Params, _result: DataType) -> Any:
    return lambda values: Made(np.ones(len(values), np.int64), [values], None)


def _narrowed(found: Int64s, lane: pa.DataType) -> pa.Array:
    values = pa.array(found)
    return values.cast(lane) if pa.types.is_integer(lane) else col.retyped(values, lane)


def each(function: Callable[..., list[Any]], lane: pa.DataType | None = None, width: int = 1) -> Maker:
    """A set function in Python, once a row; what it gives are the result's images, or values of `lane`; of `width`
    columns: rows, of which the first columns are texts.
    """

    def make(params: Params, result: DataType) -> Any:
        def kernel(*values: pa.Array) -> Made:
            found = [
                v if p.kind in _NUMBERS else text_output.image_of(v, p) for v, p in zip(values, params, strict=True)
            ]
            counts = np.zeros(len(values[0]), np.int64)
            faults: list[str | None] = [None] * len(counts)
            out: list[Any] = []
            for row, args in enumerate(zip(*(f.to_pylist() for f in found), strict=True)):
                try:
                    some = function(*args)
                except RowError as error:
                    faults[row] = str(error)
                    continue
                counts[row] = len(some)
                out += some
            errors = pa.array(faults, col.MESSAGE) if any(f is not None for f in faults) else None
            lanes = [[row[i] for row in out] for i in range(width)] if width > 1 else [out]
            columns = [pa.array(texts, STRING) for texts in lanes[:-1]]
            if lane is not None:
                return Made(counts, [*columns, pa.array(lanes[-1], lane)], errors)
            return Made(counts, [*columns, text_io.read_text(pa.array(lanes[-1], STRING), result)[0]], errors)

        return kernel

    return make


_NUMBERS = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT)


def _numeric_series(first: str | None, last: str | None, step: str | None = "1") -> list[str]:
    if first is None or last is None or step is None:
        return []
    for what, value in (("start value", first), ("stop value", last), ("step size", step)):
        if value in decimal_math.SPECIAL:
            raise RowError(f"{what} cannot be {'NaN' if value == decimal_math.NAN else 'infinity'}")
    parts = [decimal_math.split(v) for v in (first, last, step)]
    scale = max(s for _, s in parts)
    start, end, by = (decimal_math.rescale(p, scale) for p in parts)
    if by == 0:
        raise RowError("step size cannot equal zero")
    count = max((end - start) // by + 1, 0)
    if count > MOST:
        raise RowError(TOO_MANY)
    shown = max(parts[0][1], parts[2][1])
    rest = (decimal_math.image((decimal_math.rescale((start + i * by, scale), shown), shown)) for i in range(1, count))
    return [first, *rest] if count else []


def _stamps(params: Params, result: DataType) -> Any:
    """generate_series of timestamps: each one the interval after the one before."""
    signature = by_function(f"+({result.kind.value},other)")
    assert signature.make is not None
    shift = signature.make((result, params[2]), result)
    plain = _series((result,) * 3, result)

    def kernel(first: pa.Array, last: pa.Array, step: pa.Array) -> Made:
        parts, errors = calendar.interval_parts(step)
        months, days, micros = (np.broadcast_to(np.asarray(p, np.int64), (len(first),)) for p in parts)
        there = _there((first, last, step)) & (np.True_ if errors is None else ~col.valid(errors))
        # Months as long as Postgres takes them for when it compares intervals.
        size = (months * 30 + days) * calendar.DAY + micros
        ends = [np.where(there, col.numbers(v), 0) for v in (first, last)]
        endless = there & (infinite_stamps(ends[0]) | infinite_stamps(ends[1]))
        with np.errstate(all="ignore"):
            many = there & ~endless & (np.abs((ends[1] / 1.0 - ends[0]) / size) > MOST)
        errors = col.first_error(
            errors,
            col.messages(there & (size == 0), "step size cannot equal zero", len(first)),
            col.messages(endless, "a series from or to infinity is not supported", len(first)),
            col.messages(many, TOO_MANY, len(first)),
        )
        good = there if errors is None else there & ~col.valid(errors)
        if not np.any(months[good]):
            lanes = [col.build(lane, pa.int64(), ~good) for lane in (*ends, size)]
            made = plain(*lanes)
            return Made(made.counts, made.columns, col.first_error(errors, made.errors))
        return _stepped(first, last, step, shift, good, size > 0, errors)

    return kernel


def _stepped(
    first: pa.Array, last: pa.Array, step: pa.Array, shift: Any, good: Any, up: Any, errors: pa.Array | None
) -> Made:
    """The series of all rows at once, one step after the other."""
    current, end = first, col.numbers(last)
    live = np.flatnonzero(good)
    rows, made = [np.empty(0, np.int64)], [first[:0]]
    while len(live):
        ours = col.numbers(current)
        live = live[np.where(up[live], ours[live] <= end[live], ours[live] >= end[live])]
        rows.append(live)
        made.append(current.take(pa.array(live)))
        current, lost = shift(current, step)
        if lost is not None:
            failing = col.valid(lost) & np.isin(np.arange(len(first)), live)
            errors = col.first_error(errors, pc.if_else(pa.array(failing), lost, pa.scalar(None, col.MESSAGE)))
            live = live[~failing[live]]
    at = np.concatenate(rows)
    order = np.argsort(at, kind="stable")
    if errors is not None:
        order = order[~col.valid(errors)[at[order]]]
    counts = np.bincount(at[order], minlength=len(first)).astype(np.int64)
    return Made(counts, [pa.concat_arrays(made).take(pa.array(order))], errors)


def _elements(_params: Params, result: DataType) -> Any:
    def kernel(value: pa.Array) -> Made:
        counts, texts, errors = array_text.exploded(value, len(value), any_shape=True)
        return Made(counts, [text_io.read_text(texts, result)[0]], errors)

    return kernel


def _subscripts(image: str | None, dimension: int | None, backwards: str | bool | None = False) -> list[int]:
    if image is None or dimension is None or backwards is None:
        return []
    shape = array_text.read(image)[0]
    if not 1 <= dimension <= len(shape):
        return []
    low = array_text.lows(image, len(shape))[dimension - 1]
    found = range(low, low + shape[dimension - 1])
    return list(found[::-1] if backwards in (True, "t") else found)


def _parts(text: str | None, separator: str | None, missing: str | None = None) -> list[str | None]:
    return arrays.split_text(text, separator, missing) or []


ONE = "$one"
"""The function that gives its argument as a row of one column: a value in FROM."""


def _register() -> None:
    name = "generate_series"
    for kind in (Kind.INTEGER, Kind.BIGINT):
        entry(name, (kind, kind), kind, _series, columns=((name, None),))
        entry(name, (kind, kind, kind), kind, _series, columns=((name, None),))
    numeric, unscaled = Kind.NUMERIC, lambda _params: DataType(Kind.NUMERIC)
    for count in (2, 3):
        entry(name, (numeric,) * count, unscaled, each(_numeric_series), fallback=True, columns=((name, None),))
    for kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
        entry(name, (kind, kind, Kind.OTHER), kind, _stamps, columns=((name, None),))
    entry("unnest", (Pseudo.ARRAY,), lambda p: arrays.element_of(p[0]), _elements, columns=(("unnest", None),))
    entry(ONE, (None,), lambda p: p[0], _one, strict=False, columns=((ONE, None),))
    name = "generate_subscripts"
    subscripts = each(_subscripts, pa.int32())
    for more in ((), (Kind.BOOLEAN,)):
        params = (Pseudo.ARRAY, Kind.INTEGER, *more)
        entry(name, params, Kind.INTEGER, subscripts, fallback=True, columns=((name, None),))
    name = "string_to_table"
    for params in ((Kind.TEXT,) * 2, (Kind.TEXT,) * 3):
        entry(name, params, Kind.TEXT, each(_parts), fallback=True, columns=((name, None),))


_register()
