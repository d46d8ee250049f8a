# mypy: allow-untyped-defs
"""Averages as Postgres's numeric division writes them: sums of known scale by counts, digit for digit.

Always: an answer has the scale that Postgres chooses and is rounded half away from zero; operands whose long division
would not fit 64-bit words are told, and never approximated. Called by the aggregates.
"""

from __future__ import annotations

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64, I64_NEW, helper, kernel

U8 = types.Array(types.uint8, 1, "A", readonly=True)
U8_NEW = types.Array(types.uint8, 1, "C")

ROOM = 96
"""Bytes that one answer needs at most."""

_MOST = 1_800_000_000_000_000_000
"""Ten times a remainder below this fits an unsigned word."""

_TEN = np.uint64(10)
_MINUS, _POINT, _ZERO, _NINE = np.uint8(45), np.uint8(46), np.uint8(48), np.uint8(57)


@helper
def _power(exponent):
    found = 1
    for _ in range(exponent):
        found *= 10
    return found


@helper
def _digits(value):
    count = 1
    while value >= 10:
        value //= 10
        count += 1
    return count


@helper
def _leading(value, scale):
    """(weight, value) of the first digit in base 10000; (0, 0) for zero."""
    if value == 0:
        return 0, 0
    weight = (_digits(value) - 1 - scale) // 4
    shift = 4 * weight + scale
    return weight, value // _power(shift) if shift >= 0 else value * _power(-shift)


@helper
def _round_up(out, begin, end):
    """Add one to the last digit written; returns the new end, one further where a digit came to the front."""
    at = end - 1
    while at >= begin:
        if out[at] == _POINT:
            at -= 1
            continue
        if out[at] != _NINE:
            out[at] += np.uint8(1)
            return end
        out[at] = _ZERO
        at -= 1
    for k in range(end, begin, -1):
        out[k] = out[k - 1]
    out[begin] = np.uint8(49)
    return end + 1


@helper
def _write(negative, value, divisor, scale, out, at):
    """value / divisor with `scale` digits behind the point, from place `at` on; returns the place after it."""
    begin = at + 1 if negative else at
    whole = value // divisor
    rest = np.uint64(value % divisor)
    by = np.uint64(divisor)
    count = _digits(whole)
    for k in range(count - 1, -1, -1):
        out[begin + k] = _ZERO + np.uint8(whole % 10)
        whole //= 10
    end = begin + count
    if scale > 0:
        out[end] = _POINT
        end += 1
    for _ in range(scale):
        rest *= _TEN
        out[end] = _ZERO + np.uint8(rest // by)
        rest %= by
        end += 1
    if rest + rest >= by:
        end = _round_up(out, begin, end)
    if not negative:
        return end
    for k in range(begin, end):
        if out[k] != _POINT and out[k] != _ZERO:
            out[at] = _MINUS
            return end
    for k in range(begin, end):
        out[k - 1] = out[k]
    return end - 1


@kernel(types.boolean(I64, I64, types.int64, I64, U8, I64_NEW, U8_NEW))
def quotients(low, high, scale, counts, skipped, offsets, out):
    """Images of sums (two words, `scale` digits behind the point) by counts; nothing where `skipped`.

    `offsets` has an entry more than there are rows, `out` ROOM bytes a row. False if some row is too large, in which
    case the outputs mean nothing.
    """
    unit = _power(scale) if scale <= 18 else 0
    at = 0
    offsets[0] = 0
    for k in range(len(low)):
        if skipped[k] == 0:
            count = counts[k]
            if high[k] != low[k] >> 63 or low[k] == -9223372036854775808 or unit == 0 or count > _MOST // unit:
                return False
            value = abs(low[k])
            weight_a, first_a = _leading(value, scale)
            weight_b, first_b = _leading(count, 0)
            weight = weight_a - weight_b - (1 if first_a <= first_b else 0)
            at = _write(low[k] < 0, value, count * unit, max(16 - 4 * weight, scale), out, at)
        offsets[k + 1] = at
    return True
