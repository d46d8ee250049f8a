"""Arithmetic and rounding on NUMERIC: exact on decimal128 where scales are known, by `decimal_math` where they are not.

Always: the result's type says which lane comes out, with Postgres's display scale; a fixed-lane result of more than 38
digits fails its row by name. Registered in the catalogue at import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Maker, Outcome, Values, entry
from headrace.engine.operators.expressions.numeric import decimal_math, decimals, logarithms
from headrace.engine.schema import MAX_DIGITS, NUMERIC, DataType, Kind

Params = tuple[DataType, ...]


def _scales(params: Sequence[DataType]) -> tuple[int, ...] | None:
    """The display scales, if all are known."""
    return tuple(decimals.scale_of(p) for p in params) if all(p.fixed_scale for p in params) else None


def sum_type(params: Params) -> DataType:
    """The type of + and -: the larger scale."""
    scales = _scales(params)
    return NUMERIC if scales is None else decimals.fixed(max(scales))


def product_type(params: Params) -> DataType:
    """The type of *: the scales add up."""
    scales = _scales(params)
    return NUMERIC if scales is None or sum(scales) > MAX_DIGITS else decimals.fixed(sum(scales))


def through_text(function: Callable[..., Any], lane: pa.DataType, params: Params) -> Kernel:
    """A kernel that hands text images to `function` once per distinct value."""

    def kernel(*values: Values) -> Outcome:
        images = [
            decimals.text_image(v, p) if p.kind is Kind.NUMERIC else v for v, p in zip(values, params, strict=True)
        ]
        return fallback.map_values(function, lane, images)

    return kernel


def _sum(arrow_name: str, slow: Callable[[str, str], str]) -> Maker:
    plain = pc.get_function(arrow_name)

    def make(params: Params, result: DataType) -> Kernel:
        scales = _scales(params)
        if scales is None or not result.fixed_scale:
            return through_text(slow, result.arrow, params)
        scale = max(scales)
        inner, lane = pa.decimal128(MAX_DIGITS - 1, scale), result.arrow
        whole = [None if p.precision is None else p.precision - (p.scale or 0) for p in params]
        always_fits = None not in whole and max(w or 0 for w in whole) + 1 + scale <= MAX_DIGITS

        def kernel(left: Values, right: Values) -> Outcome:
            a, fault = decimals.rescaled(left, scales[0], scale)
            b, then = decimals.rescaled(right, scales[1], scale)
            out = plain.call([col.retyped(a, inner), col.retyped(b, inner)])
            out = out if out.type == lane else col.retyped(out, lane)
            lost = None if always_fits else decimals.fits(out)
            if lost is None:
                return out, col.first_error(fault, then)
            out, own = col.failing(out, (lost, decimals.TOO_WIDE))
            return out, col.first_error(fault, then, own)

        return kernel

    return make


def _product(params: Params, result: DataType) -> Kernel:
    scales = _scales(params)
    if scales is None or not result.fixed_scale:
        return through_text(decimal_math.multiply, result.arrow, params)
    plain = pc.get_function("multiply")
    scale = sum(scales)
    widen = [col.caster(pa.decimal256(MAX_DIGITS, s)) for s in scales]
    # Called one digit short, Arrow's result type stays within 76; the product of two 38-digit values fits 256 bits.
    short = pa.decimal256(MAX_DIGITS - 1, scales[0])

    def kernel(left: Values, right: Values) -> Outcome:
        a, b = decimals.small(left), decimals.small(right)
        if a is not None and b is not None and decimals.reach(a) * decimals.reach(b) < 2**63:
            return decimals.from_small(a * b, result.arrow, ~col.all_valid(left, right)), None
        out = plain.call([col.retyped(widen[0](left), short), widen[1](right)])
        return decimals.narrow(out, scale)

    return kernel


def _slow(function: Callable[..., Any]) -> Maker:
    return lambda params, result: through_text(function, result.arrow, params)


def _keeps(params: Params) -> DataType:
    return decimals.fixed(decimals.scale_of(params[0])) if params[0].fixed_scale else NUMERIC


def _negate(params: Params, _result: DataType) -> Kernel:
    if not params[0].fixed_scale:
        return through_text(decimal_math.negate, pa.large_string(), params)
    return lambda value: (pc.negate(value), None)


def _absolute(params: Params, _result: DataType) -> Kernel:
    if not params[0].fixed_scale:
        return through_text(decimal_math.absolute, pa.large_string(), params)
    return lambda value: (pc.abs(value), None)


def _whole(arrow_name: str, slow: Callable[[str], str]) -> Maker:
    def make(params: Params, result: DataType) -> Kernel:
        if not params[0].fixed_scale or not result.fixed_scale:
            return through_text(slow, result.arrow, params)
        lane = result.arrow

        def kernel(value: Values) -> Outcome:
            own = decimals.scale_of(params[0])
            if own == 0:
                return value, None
            # a digit more may stand before the point than there was
            wide = value if (params[0].precision or 38) < 38 else decimals.wide(value, own)
            out = (
                pc.round(wide, 0, "half_towards_infinity")
                if arrow_name == "round"
                else pc.call_function(arrow_name, [wide])
            )
            return pc.cast(out, lane), None

        return kernel

    return make


def _integral(params: Params) -> DataType:
    return decimals.fixed(0) if params[0].fixed_scale else NUMERIC


def _round(params: Params, result: DataType) -> Kernel:
    slow = through_text(decimal_math.round_to, result.arrow, params)
    if not params[0].fixed_scale:
        return slow
    own = decimals.scale_of(params[0])

    def kernel(value: Values, digits: Values) -> Outcome:
        scale = digits.as_py() if isinstance(digits, pa.Scalar) else -1
        if not 0 <= scale < decimals.PLAIN_SCALE or own >= decimals.PLAIN_SCALE:
            return slow(value, digits)
        wide = decimals.wide(value, max(scale, own))
        if scale < own:
            wide = pc.round(wide, scale, "half_towards_infinity")
        return pc.cast(pc.cast(wide, pa.decimal256(76, scale)), pa.large_string()), None

    return kernel


_OF_ONE: dict[str, Callable[[str], str]] = {
    "sqrt": logarithms.square_root,
    "exp": logarithms.exponential,
    "ln": logarithms.natural_logarithm,
    "log": lambda text: logarithms.logarithm("10", text),
    "log10": lambda text: logarithms.logarithm("10", text),
    "trim_scale": decimal_math.trimmed,
}
_OF_TWO: dict[str, Callable[[str, str], str]] = {
    "power": logarithms.power,
    "^": logarithms.power,
    "log": logarithms.logarithm,
    "div": decimal_math.quotient,
    "gcd": decimal_math.greatest_divisor,
    "lcm": decimal_math.least_multiple,
}


def _register() -> None:
    n = Kind.NUMERIC
    entry("+", (n, n), sum_type, _sum("add", decimal_math.add))
    entry("-", (n, n), sum_type, _sum("subtract", decimal_math.subtract))
    entry("*", (n, n), product_type, _product)
    entry("/", (n, n), lambda _p: NUMERIC, _slow(decimal_math.divide), fallback=True)
    entry("%", (n, n), sum_type, _modulo, fallback=True)
    entry("mod", (n, n), sum_type, _modulo, fallback=True)
    entry("-", (n,), _keeps, _negate)
    entry("+", (n,), _keeps, lambda _p, _r: lambda value: (value, None))
    entry("abs", (n,), _keeps, _absolute)
    entry("@", (n,), _keeps, _absolute)
    entry("ceil", (n,), _integral, _whole("ceil", decimal_math.ceiling))
    entry("ceiling", (n,), _integral, _whole("ceil", decimal_math.ceiling))
    entry("floor", (n,), _integral, _whole("floor", decimal_math.floor))
    entry("round", (n,), _integral, _whole("round", lambda text: decimal_math.round_to(text, 0)))
    entry("trunc", (n,), _integral, _whole("trunc", lambda text: decimal_math.truncate_to(text, 0)))
    entry("round", (n, Kind.INTEGER), lambda _p: NUMERIC, _round, fallback=True)
    entry("trunc", (n, Kind.INTEGER), lambda _p: NUMERIC, _slow(decimal_math.truncate_to), fallback=True)
    entry("sign", (n,), lambda _p: NUMERIC, _slow(decimal_math.sign), fallback=True)
    for name, function in _OF_ONE.items():
        entry(name, (n,), lambda _p: NUMERIC, _slow(function), fallback=True)
    for name, of_two in _OF_TWO.items():
        entry(name, (n, n), lambda _p: NUMERIC, _slow(of_two), fallback=True)
    for name, counted in (("scale", decimal_math.scale_of), ("min_scale", decimal_math.least_scale)):
        entry(name, (n,), Kind.INTEGER, _slow(counted), fallback=True)
    entry("factorial", (Kind.BIGINT,), lambda _p: NUMERIC, _slow(decimal_math.factorial), fallback=True)
    entry("width_bucket", (n, n, n, Kind.INTEGER), Kind.INTEGER, _slow(decimal_math.bucket), fallback=True)


def _modulo(params: Params, result: DataType) -> Kernel:
    slow = through_text(decimal_math.remainder, pa.large_string(), params)
    if not result.fixed_scale:
        return slow

    def kernel(left: Values, right: Values) -> Outcome:
        out, errors = slow(left, right)
        return pc.cast(out, result.arrow), errors

    return kernel


_register()
