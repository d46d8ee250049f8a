"""Functions of double precision: rounding, roots and powers, with Postgres's domain and range errors.

Always: rounding is half to even; transcendental functions go through `fallback`, whose C library is the one whose last
digit Postgres shows. Registered in the catalogue at import.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Maker, Outcome, Values, entry
from headrace.engine.schema import DataType, Kind

_OVERFLOW, _UNDERFLOW = "value out of range: overflow", "value out of range: underflow"


def _vector(function: Callable[..., object]) -> Maker:
    def make(_params: tuple[DataType, ...], result: DataType) -> Kernel:
        def kernel(value: Values) -> Outcome:
            return col.build(np.asarray(function(col.operand(value))), result.arrow, ~col.valid(value)), None

        return kernel

    return make


def _python(function: Callable[..., float]) -> Maker:
    return lambda _params, _result: lambda *values: fallback.map_values(function, pa.float64(), values)


def _sqrt(value: float) -> float:
    if value < 0:
        raise RowError("cannot take square root of a negative number")
    return math.sqrt(value)


def _power(base: float, exponent: float) -> float:
    if base != base or exponent != exponent:
        return 1.0 if base == 1.0 or exponent == 0.0 else math.nan
    if base == 0 and exponent < 0:
        raise RowError("zero raised to a negative power is undefined")
    if base < 0 and not math.isinf(exponent) and math.floor(exponent) != exponent:
        raise RowError("a negative number raised to a non-integer power yields a complex result")
    if math.isinf(base) or math.isinf(exponent):
        return math.pow(base, exponent)
    try:
        out = math.pow(base, exponent)
    except OverflowError:
        raise RowError(_OVERFLOW) from None
    if out == 0 and base != 0:
        raise RowError(_UNDERFLOW)
    return out


def _exp(value: float) -> float:
    if math.isinf(value):
        return value if value > 0 else 0.0
    try:
        out = math.exp(value)
    except OverflowError:
        raise RowError(_OVERFLOW) from None
    if out == 0:
        raise RowError(_UNDERFLOW)
    return out


def _logarithm(function: Callable[[float], float]) -> Callable[[float], float]:
    def logarithm(value: float) -> float:
        if value == 0:
            raise RowError("cannot take logarithm of zero")
        if value < 0:
            raise RowError("cannot take logarithm of a negative number")
        return function(value)

    return logarithm


def _sign(values: object) -> object:
    data = np.asarray(values)
    return np.where(data > 0, 1.0, np.where(data < 0, -1.0, 0.0))


def _bucket(value: float, low: float, high: float, count: int) -> int:
    if count <= 0:
        raise RowError("count must be greater than zero")
    if value != value or low != low or high != high:
        raise RowError("operand, lower bound, and upper bound cannot be NaN")
    if math.isinf(low) or math.isinf(high):
        raise RowError("lower and upper bounds must be finite")
    if low == high:
        raise RowError("lower bound cannot equal upper bound")
    if value < low if low < high else value > low:
        return 0
    if value >= high if low < high else value <= high:
        if count == 2**31 - 1:
            raise RowError("integer out of range")
        return count + 1
    if math.isinf(high - low):
        value, low, high = value / 2, low / 2, high / 2
    return min(int(count * ((value - low) / (high - low))), count - 1) + 1


def _bucket_of(_params: tuple[DataType, ...], _result: DataType) -> Kernel:
    return lambda *values: fallback.map_values(_bucket, pa.int32(), values)


def _register() -> None:
    d = Kind.DOUBLE
    entry("round", (d,), d, _vector(np.rint))
    entry("ceil", (d,), d, _vector(np.ceil))
    entry("ceiling", (d,), d, _vector(np.ceil))
    entry("floor", (d,), d, _vector(np.floor))
    entry("trunc", (d,), d, _vector(np.trunc))
    entry("sign", (d,), d, _vector(_sign))
    entry("sqrt", (d,), d, _python(_sqrt), fallback=True)
    entry("power", (d, d), d, _python(_power), fallback=True)
    entry("^", (d, d), d, _python(_power), fallback=True)
    entry("exp", (d,), d, _python(_exp), fallback=True)
    entry("ln", (d,), d, _python(_logarithm(math.log)), fallback=True)
    entry("log", (d,), d, _python(_logarithm(math.log10)), fallback=True)
    entry("log10", (d,), d, _python(_logarithm(math.log10)), fallback=True)
    entry("|/", (d,), d, _python(_sqrt), fallback=True)
    for name in ("cbrt", "||/"):
        entry(name, (d,), d, _python(math.cbrt), fallback=True)
    entry("erf", (d,), d, _python(math.erf), fallback=True)
    entry("erfc", (d,), d, _python(math.erfc), fallback=True)
    entry("width_bucket", (d, d, d, Kind.INTEGER), Kind.INTEGER, _bucket_of, fallback=True)


_register()
