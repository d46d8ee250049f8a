"""Trigonometric and hyperbolic functions of double precision, in radians and in degrees.

Always: they go through `fallback`, whose C library is the one whose last digit Postgres shows; those in degrees are
exact at multiples of 30, 45 and 60, as Postgres makes them. Registered in the catalogue at import.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pyarrow as pa

from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Maker, entry, refused
from headrace.engine.schema import Kind

OUT_OF_RANGE = "input is out of range"
_RADIAN = 0.0174532925199432957692
_HALF_ASIN, _HALF_ACOS, _ATAN_1 = math.asin(0.5), math.acos(0.5), math.atan(1.0)
_SIN_30, _REST_60 = math.sin(30.0 * _RADIAN), 1.0 - math.cos(60.0 * _RADIAN)


def _python(function: Callable[..., float]) -> Maker:
    return lambda _params, _result: lambda *values: fallback.map_values(function, pa.float64(), values)


def _finite(function: Callable[[float], float]) -> Callable[[float], float]:
    """`function` of what is not infinite."""

    def checked(value: float) -> float:
        if math.isinf(value):
            raise RowError(OUT_OF_RANGE)
        return function(value)

    return checked


def _within(low: float, high: float, function: Callable[[float], float]) -> Callable[[float], float]:
    """`function` of NaN and of what lies between the bounds."""

    def checked(value: float) -> float:
        if value < low or value > high:
            raise RowError(OUT_OF_RANGE)
        return value if value != value else function(value)

    return checked


def _cot(value: float) -> float:
    tangent = math.tan(value)
    return 1.0 / tangent if tangent else math.copysign(math.inf, tangent)


def _endless(function: Callable[[float], float], odd: bool) -> Callable[[float], float]:
    """`function`, infinite where its result is too large."""

    def unbounded(value: float) -> float:
        try:
            return function(value)
        except OverflowError:
            return math.copysign(math.inf, value) if odd else math.inf

    return unbounded


def _atanh(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) == 1.0 else math.atanh(value)


def _sin_to_30(degrees: float) -> float:
    return (math.sin(degrees * _RADIAN) / _SIN_30) / 2.0


def _cos_to_60(degrees: float) -> float:
    return 1.0 - ((1.0 - math.cos(degrees * _RADIAN)) / _REST_60) / 2.0


def _sin_of(degrees: float) -> float:
    """The sine of 0 to 90 degrees."""
    return _sin_to_30(degrees) if degrees <= 30.0 else _cos_to_60(90.0 - degrees)


def _cos_of(degrees: float) -> float:
    """The cosine of 0 to 90 degrees."""
    return _cos_to_60(degrees) if degrees <= 60.0 else _sin_to_30(90.0 - degrees)


def _quadrant(degrees: float) -> tuple[float, bool, bool, bool]:
    """(the angle in the first quadrant, whether it was negative, beyond 180 degrees, and then beyond 90)."""
    angle = math.fmod(degrees, 360.0)
    # Minus zero stays as it is.
    below, angle = angle < 0.0, -angle if angle < 0.0 else angle
    beyond = angle > 180.0
    angle = 360.0 - angle if beyond else angle
    obtuse = angle > 90.0
    return (180.0 - angle if obtuse else angle), below, beyond, obtuse


def _sind(degrees: float) -> float:
    angle, below, beyond, _ = _quadrant(degrees)
    return (-1 if below != beyond else 1) * _sin_of(angle)


def _cosd(degrees: float) -> float:
    angle, _, _, obtuse = _quadrant(degrees)
    return (-1 if obtuse else 1) * _cos_of(angle)


def _ratio(over: Callable[[float], float], under: Callable[[float], float]) -> Callable[[float], float]:
    one = over(45.0) / under(45.0)

    def ratio(degrees: float) -> float:
        angle, below, beyond, obtuse = _quadrant(degrees)
        sign = -1 if (below != beyond) != obtuse else 1
        bottom = under(angle)
        found = sign * ((over(angle) / bottom if bottom else math.copysign(math.inf, bottom)) / one)
        return found or 0.0

    return ratio


def _asin_of(value: float) -> float:
    """The arc sine, in degrees, of 0 to 1."""
    return math.asin(value) / _HALF_ASIN * 30.0 if value <= 0.5 else 90.0 - math.acos(value) / _HALF_ACOS * 60.0


def _acos_of(value: float) -> float:
    """The arc cosine, in degrees, of 0 to 1."""
    return 90.0 - math.asin(value) / _HALF_ASIN * 30.0 if value <= 0.5 else math.acos(value) / _HALF_ACOS * 60.0


def _asind(value: float) -> float:
    return _asin_of(value) if value >= 0.0 else -_asin_of(-value)


def _acosd(value: float) -> float:
    return _acos_of(value) if value >= 0.0 else 90.0 + _asin_of(-value)


def _degrees(value: float) -> float:
    found = value / _RADIAN
    if math.isinf(found) and not math.isinf(value):
        raise RowError("value out of range: overflow")
    return found


def _radians(value: float) -> float:
    found = value * _RADIAN
    if found == 0 and value != 0:
        raise RowError("value out of range: underflow")
    return found


_ONE_ARGUMENT: dict[str, Callable[[float], float]] = {
    "sin": _finite(math.sin),
    "cos": _finite(math.cos),
    "tan": _finite(math.tan),
    "cot": _finite(_cot),
    "asin": _within(-1, 1, math.asin),
    "acos": _within(-1, 1, math.acos),
    "atan": math.atan,
    "sinh": _endless(math.sinh, odd=True),
    "cosh": _endless(math.cosh, odd=False),
    "tanh": math.tanh,
    "asinh": math.asinh,
    "acosh": _within(1, math.inf, math.acosh),
    "atanh": _within(-1, 1, _atanh),
    "sind": _finite(_sind),
    "cosd": _finite(_cosd),
    "tand": _finite(_ratio(_sin_of, _cos_of)),
    "cotd": _finite(_ratio(_cos_of, _sin_of)),
    "asind": _within(-1, 1, _asind),
    "acosd": _within(-1, 1, _acosd),
    "atand": lambda value: math.atan(value) / _ATAN_1 * 45.0,
    "degrees": _degrees,
    "radians": _radians,
}


def _register() -> None:
    d = Kind.DOUBLE
    for name, function in _ONE_ARGUMENT.items():
        entry(name, (d,), d, _python(function), fallback=True)
    entry("atan2", (d, d), d, _python(math.atan2), fallback=True)
    entry("atan2d", (d, d), d, _python(lambda y, x: math.atan2(y, x) / _ATAN_1 * 45.0), fallback=True)
    entry("pi", (), d, lambda _params, _result: lambda: (pa.scalar(math.pi), None))
    # Python's own are not those of the C library, to the last digit.
    for name in ("gamma", "lgamma"):
        refused(name, d)


_register()
