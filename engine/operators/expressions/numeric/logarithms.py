"""Roots, powers, exponentials and logarithms of NUMERIC, digit for digit as Postgres rounds them.

Always: Postgres's rules say how many digits of the result there are (16 significant ones at least, and no fewer than an
argument shows); those are worked out with digits to spare and rounded half away from zero. Pure functions on text images,
called once per distinct value by `numeric`; whatever Postgres refuses raises `RowError`.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.numeric import decimal_math
from headrace.engine.operators.expressions.numeric.decimal_math import INFINITY, MINUS_INFINITY, NAN, SPECIAL

OVERFLOW = "value overflows numeric format"
_DIGITS, _MOST_SCALE, _MOST_RESULT = 16, 1000, 2000
_LOG_E = 0.434294481903252
_SPARE = 12


def _context(digits: int) -> Context:
    return Context(prec=max(digits, 1) + _SPARE, rounding=ROUND_HALF_UP, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


def _rounded(value: Decimal, scale: int) -> str:
    """The image of `value` at `scale`. Raises RowError where it is too large."""
    if value.adjusted() >= decimal_math.MAX_WEIGHT_DIGITS:
        raise RowError(OVERFLOW)
    wide = _context(value.adjusted() + scale + 2)
    found = format(value.quantize(Decimal(1).scaleb(-scale), context=wide), "f")
    return found.lstrip("-") if not found.strip("-0.") else found


def _scale(text: str) -> int:
    return len(text.partition(".")[2])


def _limited(scale: int, *texts: str) -> int:
    """A result's scale: no less than an argument's, from 0 to 1000."""
    return min(max(scale, 0, *(_scale(t) for t in texts)), _MOST_SCALE)


def _digits_of(text: str) -> tuple[list[int], int]:
    """(the digits in base 10000 without trailing zeros, the weight of the first); ([], 0) for zero."""
    whole, _, part = text.lstrip("-").partition(".")
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    digits = whole + part.ljust(-(-len(part) // 4) * 4, "0")
    groups = [int(digits[i : i + 4]) for i in range(0, len(digits), 4)]
    weight = len(whole) // 4 - 1
    while groups and groups[0] == 0:
        groups, weight = groups[1:], weight - 1
    while groups and groups[-1] == 0:
        groups.pop()
    return groups, weight if groups else 0


def _logarithm_weight(text: str) -> int:
    """Postgres's estimate of the decimal weight of ln(text)."""
    groups, weight = _digits_of(text)
    if text.startswith("-") or not groups:
        return 0
    if Decimal("0.9") <= Decimal(text) <= Decimal("1.1"):
        rest, at = _digits_of(decimal_math.subtract(text, "1"))
        return at * 4 + int(math.log10(rest[0])) if rest else 0
    digits, at = groups[0], weight * 4
    if len(groups) > 1:
        digits, at = digits * 10000 + groups[1], at - 4
    return int(math.log10(abs(math.log(digits) + at * 2.302585092994046)))


def _check_logarithm(text: str) -> None:
    if text == NAN:
        return
    if text.startswith("-") and text.strip("-0."):
        raise RowError("cannot take logarithm of a negative number")
    if text != INFINITY and not text.strip("-0."):
        raise RowError("cannot take logarithm of zero")


def square_root(text: str) -> str:
    """sqrt(text)."""
    if text in (NAN, INFINITY):
        return text
    if text.startswith("-"):
        raise RowError("cannot take square root of a negative number")
    scale = _limited(_DIGITS - (_digits_of(text)[1] * 2 + 1), text)
    coefficient, own = decimal_math.split(text)
    # The root with one digit more, of which half and above rounds up.
    shift = 2 * scale + 2 - own
    radicand = coefficient * 10**shift if shift >= 0 else coefficient // 10**-shift
    return decimal_math.image(((math.isqrt(radicand) + 5) // 10, scale))


def exponential(text: str) -> str:
    """exp(text)."""
    if text in SPECIAL:
        return "0" if text == MINUS_INFINITY else text
    value = float(text)
    scale = _limited(_DIGITS - int(max(min(value * _LOG_E, _MOST_RESULT), -_MOST_RESULT)), text)
    return _exponential(Decimal(text), scale)


def _exponential(value: Decimal, scale: int) -> str:
    if abs(value) >= _MOST_RESULT * 3:
        if value > 0:
            raise RowError(OVERFLOW)
        return _rounded(Decimal(0), scale)
    return _rounded(_context(scale + int(abs(value) * Decimal(_LOG_E)) + 2).exp(value), scale)


def natural_logarithm(text: str) -> str:
    """ln(text)."""
    _check_logarithm(text)
    if text in SPECIAL:
        return text
    weight = _logarithm_weight(text)
    scale = _limited(_DIGITS - weight, text)
    return _rounded(_context(scale + max(weight, 0) + 2).ln(Decimal(text)), scale)


def logarithm(base: str, text: str) -> str:
    """log(base, text)."""
    if NAN in (base, text):
        return NAN
    if base in SPECIAL or text in SPECIAL:
        for message in ("cannot take logarithm of a negative number", "cannot take logarithm of zero"):
            for value in (base, text):
                try:
                    _check_logarithm(value)
                except RowError as error:
                    if str(error) == message:
                        raise
        if base == INFINITY:
            return NAN if text == INFINITY else "0"
        return INFINITY
    _check_logarithm(base)
    _check_logarithm(text)
    weights = _logarithm_weight(base), _logarithm_weight(text)
    scale = _limited(_DIGITS - (weights[1] - weights[0]), base, text)
    wide = _context(scale + abs(weights[0]) + abs(weights[1]) + 8)
    bottom = wide.ln(Decimal(base))
    if not bottom:
        raise RowError("division by zero")
    return _rounded(wide.divide(wide.ln(Decimal(text)), bottom), scale)


def _is_whole(text: str) -> bool:
    return not text.partition(".")[2].strip("0")


def power(base: str, exponent: str) -> str:
    """base ^ exponent. Raises RowError for what is undefined, complex or too large."""
    special = base in SPECIAL or exponent in SPECIAL
    if NAN in (base, exponent):
        one = (base == NAN and exponent not in SPECIAL and not exponent.strip("-0.")) or (
            exponent == NAN and base not in SPECIAL and Decimal(base) == 1
        )
        return "1" if one else NAN
    below, up = base.startswith("-"), not exponent.startswith("-")
    zero = base not in SPECIAL and not base.strip("-0.")
    if zero and not up:
        raise RowError("zero raised to a negative power is undefined")
    if below and exponent not in SPECIAL and not _is_whole(exponent):
        raise RowError("a negative number raised to a non-integer power yields a complex result")
    if special:
        return _infinite_power(base, exponent, zero=zero, up=up)
    if _is_whole(exponent) and -(2**31) <= int(exponent.partition(".")[0]) < 2**31:
        return _whole_power(base, int(exponent.partition(".")[0]), _scale(exponent))
    return _power(base, exponent)


def _infinite_power(base: str, exponent: str, *, zero: bool, up: bool) -> str:
    if (base not in SPECIAL and Decimal(base) == 1) or (exponent not in SPECIAL and not exponent.strip("-0.")):
        return "1"
    if zero:
        return "0"
    if exponent in SPECIAL:
        if base not in SPECIAL and Decimal(base) == -1:
            return "1"
        large = base in SPECIAL or abs(Decimal(base)) > 1
        return INFINITY if large == up else "0"
    if not up:
        return "0"
    odd = int(exponent.partition(".")[0]) % 2 == 1
    return MINUS_INFINITY if base == MINUS_INFINITY and odd else INFINITY


def _whole_power(base: str, exponent: int, shown: int) -> str:
    groups, weight = _digits_of(base)
    size = 0.0
    if groups:
        taken = groups[:4]
        first = float(sum(g * 10000 ** (len(taken) - 1 - i) for i, g in enumerate(taken)))
        size = exponent * (math.log10(first) + (weight - len(taken) + 1) * 4)
    if size > 32768 * 4:
        raise RowError(OVERFLOW)
    if size + 1 < -_MOST_SCALE:
        return decimal_math.image((0, _MOST_SCALE))
    scale = min(max(_DIGITS - int(size), _scale(base), shown, 0), _MOST_SCALE)
    if exponent == 0:
        return decimal_math.image((10**scale, scale))
    wide = _context(int(abs(size)) + scale + 4 + len(str(abs(exponent))))
    if abs(exponent) <= 2:
        # Exact in Postgres too.
        wide = _context(2 * len(base) + scale + int(abs(size)) + 4)
    return _rounded(wide.power(Decimal(base), exponent), scale)


def _estimate(value: Decimal, places: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-places), context=_context(max(value.adjusted(), 0) + places + 2))


def _power(base: str, exponent: str) -> str:
    if not base.strip("-0."):
        return decimal_math.image((0, _DIGITS))
    negative, base = base.startswith("-"), base.lstrip("-")
    value = Decimal(exponent)
    weight = _logarithm_weight(base)
    # The scale follows from an estimate of eight digits, rounded as Postgres's: near a power of ten another one differs.
    places = max(8 - weight, 0)
    logarithm = _estimate(_context(places + 40).ln(Decimal(base)), places)
    rough = _estimate(_context(places + len(exponent) + 40).multiply(logarithm, value), places)
    if abs(rough) > Decimal(_MOST_RESULT) * Decimal("3.01"):
        if rough > 0:
            raise RowError(OVERFLOW)
        return decimal_math.image((0, _MOST_SCALE))
    size = int(float(rough) * _LOG_E)
    scale = _limited(_DIGITS - size, base, exponent)
    wide = _context(max(scale + size, 0) + abs(weight) + len(exponent) + 20)
    found = _exponential(wide.multiply(wide.ln(Decimal(base)), value), scale)
    odd = negative and int(exponent.partition(".")[0]) % 2 == 1
    return decimal_math.negate(found) if odd else found
