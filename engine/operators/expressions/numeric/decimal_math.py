"""Postgres's NUMERIC on Python integers: a value is (coefficient, scale), or one of NaN, Infinity, -Infinity.

Always: scales of results follow Postgres's rules digit for digit; rounding is half away from zero; whatever Postgres
refuses raises `RowError` with its message. Pure functions on text images, called per distinct value through `fallback`.
"""

from __future__ import annotations

import math
import re
import sys

from headrace.engine.operators.expressions.core.fallback import RowError

# Postgres's numerics have up to 147,454 digits, more than Python reads and writes by default.
sys.set_int_max_str_digits(0)

NAN, INFINITY, MINUS_INFINITY = "NaN", "Infinity", "-Infinity"
SPECIAL = (NAN, INFINITY, MINUS_INFINITY)
_WORDS = {
    "nan": NAN,
    "inf": INFINITY,
    "infinity": INFINITY,
    "+inf": INFINITY,
    "+infinity": INFINITY,
    "-inf": MINUS_INFINITY,
    "-infinity": MINUS_INFINITY,
}
_DECIMAL = re.compile(r"([+-]?)(\d+(?:_\d+)*)?(?:\.(\d+(?:_\d+)*)?)?(?:[eE]([+-]?\d+(?:_\d+)*))?", re.ASCII)
_RADIX = re.compile(r"([+-]?)(0[xX](?:_?[0-9a-fA-F]+)+|0[oO](?:_?[0-7]+)+|0[bB](?:_?[01]+)+)", re.ASCII)
MAX_SCALE, MAX_WEIGHT_DIGITS = 16383, 131072
BLANKS = " \t\n\r\v\f"

Number = tuple[int, int]


def invalid(type_name: str, text: str) -> RowError:
    """Postgres's message for text that is no value of a type."""
    return RowError(f'invalid input syntax for type {type_name}: "{text}"')


def parse(text: str) -> str:
    """The canonical image of what numeric_in reads. Raises RowError."""
    body = text.strip(BLANKS)
    word = _WORDS.get(body.lower())
    if word is not None:
        return word
    radix = _RADIX.fullmatch(body)
    if radix:
        value = int(radix[2].replace("_", ""), 0)
        return image((-value if radix[1] == "-" else value, 0))
    match = _DECIMAL.fullmatch(body)
    if not match or (match[2] is None and match[3] is None):
        raise invalid("numeric", text)
    whole, part = (match[2] or "").replace("_", ""), (match[3] or "").replace("_", "")
    exponent = int((match[4] or "0").replace("_", ""))
    if abs(exponent) > MAX_WEIGHT_DIGITS + MAX_SCALE:
        raise RowError("value overflows numeric format")
    coefficient, scale = int((whole + part) or "0"), len(part) - exponent
    if scale < 0:
        coefficient, scale = coefficient * 10**-scale, 0
    return image((-coefficient if match[1] == "-" else coefficient, scale))


def split(text: str) -> Number:
    """(coefficient, scale) of a canonical image that is not special."""
    whole, _, part = text.partition(".")
    return int(whole + part), len(part)


def image(number: Number) -> str:
    """The canonical image. Raises RowError when Postgres's format cannot hold it."""
    coefficient, scale = number
    if scale > MAX_SCALE:
        coefficient, scale = rescale(number, MAX_SCALE), MAX_SCALE
    digits = str(abs(coefficient)).rjust(scale + 1, "0")
    if len(digits) - scale > MAX_WEIGHT_DIGITS:
        raise RowError("value overflows numeric format")
    sign = "-" if coefficient < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits


def rounded(numerator: int, denominator: int) -> int:
    """numerator / denominator rounded half away from zero; the denominator is positive."""
    quotient, rest = divmod(abs(numerator), denominator)
    quotient += 2 * rest >= denominator
    return -quotient if numerator < 0 else quotient


def rescale(number: Number, scale: int) -> int:
    """The coefficient at `scale` (may be negative), rounded half away from zero."""
    coefficient, own = number
    return coefficient * 10 ** (scale - own) if scale >= own else rounded(coefficient, 10 ** (own - scale))


def at_scale(number: Number, scale: int) -> Number:
    """`number` rounded to `scale`; a negative scale rounds left of the point and displays none."""
    coefficient = rescale(number, scale)
    return (coefficient, scale) if scale >= 0 else (coefficient * 10**-scale, 0)


def constrain(text: str, precision: int, scale: int) -> str:
    """The image as numeric(precision, scale). Raises RowError on overflow."""
    if text == NAN:
        return text
    if text in SPECIAL:
        raise RowError("numeric field overflow")
    coefficient = rescale(split(text), scale)
    if abs(coefficient) >= 10**precision:
        raise RowError("numeric field overflow")
    return image((coefficient, scale) if scale >= 0 else (coefficient * 10**-scale, 0))


def _infinite(text: str) -> float:
    return {NAN: float("nan"), INFINITY: float("inf"), MINUS_INFINITY: float("-inf")}.get(text, 0.0)


def _sign(text: str) -> int:
    if text in SPECIAL:
        return 0 if text == NAN else 1 if text == INFINITY else -1
    coefficient = split(text)[0]
    return (coefficient > 0) - (coefficient < 0)


def _special(value: float) -> str:
    return NAN if value != value else INFINITY if value > 0 else MINUS_INFINITY


def add(left: str, right: str) -> str:
    """left + right."""
    if left in SPECIAL or right in SPECIAL:
        return _special(_infinite(left) + _infinite(right))
    (a, s), (b, t) = split(left), split(right)
    scale = max(s, t)
    return image((a * 10 ** (scale - s) + b * 10 ** (scale - t), scale))


def negate(text: str) -> str:
    """-text."""
    if text in SPECIAL:
        return {NAN: NAN, INFINITY: MINUS_INFINITY, MINUS_INFINITY: INFINITY}[text]
    coefficient, scale = split(text)
    return image((-coefficient, scale))


def subtract(left: str, right: str) -> str:
    """left - right."""
    return add(left, negate(right))


def multiply(left: str, right: str) -> str:
    """left * right."""
    if left in SPECIAL or right in SPECIAL:
        if NAN in (left, right):
            return NAN
        return _special(float("inf") * _sign(left) * _sign(right)) if _sign(left) and _sign(right) else NAN
    (a, s), (b, t) = split(left), split(right)
    return image((a * b, s + t))


def _leading(number: Number) -> tuple[int, int]:
    """(weight, value) of the first digit in base 10000; (0, 0) for zero."""
    coefficient, scale = abs(number[0]), number[1]
    if not coefficient:
        return 0, 0
    weight = (len(str(coefficient)) - 1 - scale) // 4
    shift = 4 * weight + scale
    return weight, coefficient // 10**shift if shift >= 0 else coefficient * 10**-shift


def quotient_scale(left: Number, right: Number) -> int:
    """The display scale that Postgres gives left / right: 16 significant digits at least, and both scales."""
    (weight_a, first_a), (weight_b, first_b) = _leading(left), _leading(right)
    weight = weight_a - weight_b - (first_a <= first_b)
    return min(max(16 - 4 * weight, left[1], right[1], 0), 1000)


def divide(left: str, right: str) -> str:
    """left / right. Raises RowError on division by zero."""
    if left in SPECIAL or right in SPECIAL:
        if NAN in (left, right):
            return NAN
        if left in SPECIAL:
            if right in SPECIAL:
                return NAN
            if not _sign(right):
                raise RowError("division by zero")
            return _special(float("inf") * _sign(left) * _sign(right))
        return "0"
    a, b = split(left), split(right)
    if not b[0]:
        raise RowError("division by zero")
    return _divided(a, b)


def _divided(a: Number, b: Number) -> str:
    scale = quotient_scale(a, b)
    numerator, denominator = a[0] * 10 ** (scale + b[1]), b[0] * 10 ** a[1]
    if denominator < 0:
        numerator, denominator = -numerator, -denominator
    return image((rounded(numerator, denominator), scale))


def remainder(left: str, right: str) -> str:
    """left % right, with the sign of left. Raises RowError on division by zero."""
    if left in SPECIAL or right in SPECIAL:
        if NAN in (left, right):
            return NAN
        if left in SPECIAL:
            if right not in SPECIAL and not _sign(right):
                raise RowError("division by zero")
            return NAN
        return left
    (a, s), (b, t) = split(left), split(right)
    if not b:
        raise RowError("division by zero")
    scale = max(s, t)
    a, b = a * 10 ** (scale - s), b * 10 ** (scale - t)
    rest = abs(a) % abs(b)
    return image((-rest if a < 0 else rest, scale))


def round_to(text: str, scale: int) -> str:
    """round(text, scale)."""
    if text in SPECIAL:
        return text
    return image(at_scale(split(text), max(min(scale, MAX_SCALE), -MAX_WEIGHT_DIGITS - 1)))


def truncate_to(text: str, scale: int) -> str:
    """trunc(text, scale)."""
    if text in SPECIAL:
        return text
    scale = max(min(scale, MAX_SCALE), -MAX_WEIGHT_DIGITS)
    coefficient, own = split(text)
    if scale >= own:
        return image((coefficient * 10 ** (scale - own), scale))
    kept = abs(coefficient) // 10 ** (own - scale) * (-1 if coefficient < 0 else 1)
    return image((kept, scale) if scale >= 0 else (kept * 10**-scale, 0))


def ceiling(text: str) -> str:
    """ceil(text)."""
    if text in SPECIAL:
        return text
    coefficient, scale = split(text)
    return image((-(-coefficient // 10**scale), 0))


def floor(text: str) -> str:
    """floor(text)."""
    if text in SPECIAL:
        return text
    coefficient, scale = split(text)
    return image((coefficient // 10**scale, 0))


def absolute(text: str) -> str:
    """abs(text)."""
    return INFINITY if text == MINUS_INFINITY else text.lstrip("-")


def sign(text: str) -> str:
    """sign(text)."""
    return NAN if text == NAN else str(_sign(text))


def quotient(left: str, right: str) -> str:
    """div(left, right): the whole part of their quotient. Raises RowError on division by zero."""
    if left in SPECIAL or right in SPECIAL:
        return divide(left, right)
    (a, s), (b, t) = split(left), split(right)
    if not b:
        raise RowError("division by zero")
    whole = abs(a) * 10**t // (abs(b) * 10**s)
    return image((-whole if (a < 0) != (b < 0) else whole, 0))


def greatest_divisor(left: str, right: str) -> str:
    """gcd(left, right)."""
    if left in SPECIAL or right in SPECIAL:
        return NAN
    scale = max(split(left)[1], split(right)[1])
    return image((math.gcd(rescale(split(left), scale), rescale(split(right), scale)), scale))


def least_multiple(left: str, right: str) -> str:
    """lcm(left, right)."""
    if left in SPECIAL or right in SPECIAL:
        return NAN
    scale = max(split(left)[1], split(right)[1])
    return image((math.lcm(rescale(split(left), scale), rescale(split(right), scale)), scale))


def scale_of(text: str) -> int | None:
    """scale(text); None for what is no number."""
    return None if text in SPECIAL else len(text.partition(".")[2])


def least_scale(text: str) -> int | None:
    """min_scale(text): the digits after the point without trailing zeros; None for what is no number."""
    return None if text in SPECIAL else len(text.partition(".")[2].rstrip("0"))


def trimmed(text: str) -> str:
    """trim_scale(text)."""
    return text if text in SPECIAL or "." not in text else text.rstrip("0").rstrip(".")


def factorial(number: int) -> str:
    """factorial(number). Raises RowError below zero and where the result is too large."""
    if number < 0:
        raise RowError("factorial of a negative number is undefined")
    if number > 32177:
        raise RowError("value overflows numeric format")
    return str(math.factorial(number))


def bucket(text: str, low: str, high: str, count: int) -> int:
    """width_bucket(text, low, high, count). Raises RowError for bounds and counts that make no buckets."""
    if count <= 0:
        raise RowError("count must be greater than zero")
    if NAN in (text, low, high):
        raise RowError("operand, lower bound, and upper bound cannot be NaN")
    if low in SPECIAL or high in SPECIAL:
        raise RowError("lower and upper bounds must be finite")
    scale = max(split(low)[1], split(high)[1], 0 if text in SPECIAL else split(text)[1])
    first, last = rescale(split(low), scale), rescale(split(high), scale)
    if first == last:
        raise RowError("lower bound cannot equal upper bound")
    turned = first > last
    if text in SPECIAL:
        below = (text == MINUS_INFINITY) != turned
        above = not below
        value = 0
    else:
        value = rescale(split(text), scale)
        below = value > first if turned else value < first
        above = value <= last if turned else value >= last
    if below:
        return 0
    if above and count == 2**31 - 1:
        raise RowError("integer out of range")
    return count + 1 if above else (value - first) * count // (last - first) + 1


def square(text: str) -> str:
    """A number by itself, with all of its digits: more of them than a numeric has room for.

    >>> square("-1.5"), square("-Infinity"), square("0.01")
    ('2.25', 'Infinity', '0.0001')
    """
    if text in SPECIAL:
        return NAN if text == NAN else "Infinity"
    coefficient, scale = split(text)
    digits = str(coefficient * coefficient).rjust(2 * scale + 1, "0")
    return f"{digits[: -2 * scale]}.{digits[-2 * scale :]}" if scale else digits


def spread(count: int, total: str, squares: str, *, sample: bool, root: bool) -> str | None:
    """Variance or standard deviation from the number, the sum and the sum of squares, digit for digit as Postgres's.

    >>> spread(3, "6", "14", sample=True, root=False)
    '1.00000000000000000000'
    """
    if count < 1 + sample:
        return None
    if total in SPECIAL or squares in SPECIAL:
        return NAN
    whole, parts = split(total), split(squares)
    scale = max(2 * whole[1], parts[1])
    above = count * rescale(parts, scale) - rescale((whole[0] ** 2, 2 * whole[1]), scale)
    if above <= 0:
        return "0"
    found = _divided((above, scale), (count * (count - sample), 0))
    if not root:
        return found
    coefficient, scale = split(found)
    # The root with one digit more, of which half and above rounds up.
    return image(((math.isqrt(coefficient * 10 ** (scale + 2)) + 5) // 10, scale))
