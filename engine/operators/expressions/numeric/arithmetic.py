"""Arithmetic on integers and floats with Postgres's overflow, division and remainder rules.

Always: the fast way is Arrow's checked kernel; only when that refuses (some row fails) is the exact mask of failing
rows worked out, with wrapping arithmetic. Registered in the catalogue at import.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.coercion import FLOATS, INTEGERS
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Outcome, Values, entry
from headrace.engine.schema import DataType, Kind

DIVISION_BY_ZERO = "division by zero"


def out_of_range(datatype: DataType) -> str:
    """Postgres's message for an integer that does not fit."""
    return f"{datatype.kind.value} out of range"


def _wrapping(name: str, left: Any, right: Any) -> tuple[Any, Any]:
    """(values, overflow mask) of an integer operation on numpy columns of one width."""
    dtype = left.dtype
    with np.errstate(all="ignore"):
        if name == "+":
            out = left + right
            return out, ((left ^ out) & (right ^ out)) < 0
        if name == "-":
            out = left - right
            return out, ((left ^ right) & (left ^ out)) < 0
        out = left * right
        if dtype.itemsize < 8:
            wide = left.astype(np.int64) * right
            return out, wide != out
        divisor = np.where(left == 0, 1, left)
        # -1 * min wraps to min, whose quotient by -1 wraps back: it must be named apart.
        lost = (out // divisor != right) & (left != 0)
        low = np.iinfo(dtype).min
        return out, lost | ((left == -1) & (right == low)) | ((right == -1) & (left == low))


def _integer(name: str, arrow_name: str) -> Callable[[tuple[DataType, ...], DataType], Kernel]:
    def make(_params: tuple[DataType, ...], result: DataType) -> Kernel:
        fast = pc.get_function(arrow_name)
        message, lane = out_of_range(result), result.arrow

        def kernel(left: Values, right: Values) -> Outcome:
            try:
                return fast.call([left, right]), None
            except pa.ArrowInvalid:
                data, lost = _wrapping(name, col.operand(left), col.operand(right))
                there = col.all_valid(left, right)
                return col.failing(col.build(data, lane, ~there | lost), (lost & there, message))

        return kernel

    return make


def _divide(remainder: bool) -> Callable[[tuple[DataType, ...], DataType], Kernel]:
    def make(_params: tuple[DataType, ...], result: DataType) -> Kernel:
        fast = pc.get_function("divide_checked")
        message, lane = out_of_range(result), result.arrow

        def slow(left: Values, right: Values) -> Outcome:
            a, b = np.broadcast_arrays(col.operand(left), col.operand(right))
            there = col.all_valid(left, right)
            zero = b == 0
            lost = (b == -1) & (a == np.iinfo(a.dtype).min)
            divisor = np.where(zero | (b == -1), 1, b)
            if remainder:
                data = np.where(b == -1, 0, np.fmod(a, divisor))
                return col.failing(col.build(data, lane, ~there | zero), (zero & there, DIVISION_BY_ZERO))
            with np.errstate(all="ignore"):
                data = np.where(b == -1, -a, (a - np.fmod(a, divisor)) // divisor)
            faults = ((zero & there, DIVISION_BY_ZERO), (lost & there, message))
            return col.failing(col.build(data, lane, ~there | zero | lost), *faults)

        def kernel(left: Values, right: Values) -> Outcome:
            if remainder:
                return slow(left, right)
            try:
                return fast.call([left, right]), None
            except pa.ArrowInvalid:
                return slow(left, right)

        return kernel

    return make


def float_checked(data: Any, inputs: tuple[Values, ...], lane: pa.DataType, overflow: Any, underflow: Any) -> Outcome:
    """A float column with Postgres's range errors where the masks say so."""
    there = col.all_valid(*inputs)
    return col.failing(
        col.build(data, lane, ~there),
        (overflow & there, "value out of range: overflow"),
        (underflow & there, "value out of range: underflow"),
    )


def _float(name: str) -> Callable[[tuple[DataType, ...], DataType], Kernel]:
    def make(_params: tuple[DataType, ...], result: DataType) -> Kernel:
        lane = result.arrow

        def kernel(left: Values, right: Values) -> Outcome:
            a, b = col.operand(left), col.operand(right)
            with np.errstate(all="ignore"):
                if name == "/":
                    out = a / b
                    zero = (b == 0) & ~np.isnan(a)
                    over = np.isinf(out) & ~np.isinf(a) & ~zero
                    under = (out == 0) & (a != 0) & ~np.isinf(b)
                    there = col.all_valid(left, right)
                    built = col.build(out, lane, ~there)
                    return col.failing(
                        built,
                        (zero & there, DIVISION_BY_ZERO),
                        (over & there, "value out of range: overflow"),
                        (under & there, "value out of range: underflow"),
                    )
                out = a + b if name == "+" else a - b if name == "-" else a * b
                over = np.isinf(out) & ~np.isinf(a) & ~np.isinf(b)
                under = (out == 0) & (a != 0) & (b != 0) if name == "*" else np.False_
            return float_checked(out, (left, right), lane, over, under)

        return kernel

    return make


def _negate(_params: tuple[DataType, ...], result: DataType) -> Kernel:
    if result.kind in FLOATS:
        return lambda value: (pc.negate(value), None)
    zero = pa.scalar(0, result.arrow)
    subtract = _integer("-", "subtract_checked")((result, result), result)
    return lambda value: subtract(zero, value)


def _absolute(_params: tuple[DataType, ...], result: DataType) -> Kernel:
    if result.kind in FLOATS:
        return lambda value: (pc.abs(value), None)
    message = out_of_range(result)

    def kernel(value: Values) -> Outcome:
        try:
            return pc.abs_checked(value), None
        except pa.ArrowInvalid:
            data = col.operand(value)
            lost = (data == np.iinfo(data.dtype).min) & col.all_valid(value)
            return col.failing(pc.abs(value), (lost, message))

    return kernel


def _plus(_params: tuple[DataType, ...], _result: DataType) -> Kernel:
    return lambda value: (value, None)


def _divisors(function: Callable[[int, int], int]) -> Callable[[tuple[DataType, ...], DataType], Kernel]:
    """gcd, or lcm."""

    def make(_params: tuple[DataType, ...], result: DataType) -> Kernel:
        message, most = out_of_range(result), np.iinfo(result.arrow.to_pandas_dtype()).max

        def one(left: int, right: int) -> int:
            found = function(left, right)
            if found > most:
                raise RowError(message)
            return found

        return lambda *values: fallback.map_values(one, result.arrow, values)

    return make


def _bits(arrow_name: str) -> Callable[[tuple[DataType, ...], DataType], Kernel]:
    plain = pc.get_function(arrow_name)
    return lambda _params, _result: lambda *values: (plain.call(list(values)), None)


def _shift(left: bool) -> Callable[[tuple[DataType, ...], DataType], Kernel]:
    """Shifts as the processor does them: by the count's low bits, a smallint as an integer."""

    def make(_params: tuple[DataType, ...], result: DataType) -> Kernel:
        lane = result.arrow
        wide = np.int64 if lane.bit_width == 64 else np.int32

        def kernel(value: Values, count: Values) -> Outcome:
            data, by = col.operand(value).astype(wide), col.operand(count) & (63 if wide is np.int64 else 31)
            out = np.left_shift(data, by) if left else np.right_shift(data, by)
            return col.build(out.astype(lane.to_pandas_dtype()), lane, ~col.all_valid(value, count)), None

        return kernel

    return make


def _register() -> None:
    for kind in INTEGERS:
        for name, arrow_name in (("+", "add_checked"), ("-", "subtract_checked"), ("*", "multiply_checked")):
            entry(name, (kind, kind), kind, _integer(name, arrow_name))
        entry("/", (kind, kind), kind, _divide(False))
        entry("%", (kind, kind), kind, _divide(True))
        entry("mod", (kind, kind), kind, _divide(True))
        for name, arrow_name in (("&", "bit_wise_and"), ("|", "bit_wise_or"), ("#", "bit_wise_xor")):
            entry(name, (kind, kind), kind, _bits(arrow_name))
        entry("~", (kind,), kind, _bits("bit_wise_not"))
        entry("<<", (kind, Kind.INTEGER), kind, _shift(True))
        entry(">>", (kind, Kind.INTEGER), kind, _shift(False))
        if kind is not Kind.SMALLINT:
            entry("gcd", (kind, kind), kind, _divisors(math.gcd), fallback=True)
            entry("lcm", (kind, kind), kind, _divisors(math.lcm), fallback=True)
    for kind in FLOATS:
        for name in ("+", "-", "*", "/"):
            entry(name, (kind, kind), kind, _float(name))
    for name in ("+", "-", "*", "/"):
        for mixed in ((Kind.REAL, Kind.DOUBLE), (Kind.DOUBLE, Kind.REAL)):
            entry(name, mixed, Kind.DOUBLE, _float(name), alias=(Kind.DOUBLE, Kind.DOUBLE))
    for kind in (*INTEGERS, *FLOATS):
        entry("-", (kind,), kind, _negate)
        entry("+", (kind,), kind, _plus)
        entry("abs", (kind,), kind, _absolute)
        entry("@", (kind,), kind, _absolute)


_register()
