"""Exact sums of doubles, rounded once: a fixed-point accumulator as wide as the exponent range of a double.

Always: the sum does not depend on the order of its terms, and taking a term away undoes adding it. Called by the
reduce operators alone.
"""

from __future__ import annotations

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64, I64_NEW, helper, kernel, repeated

U8_NEW = types.Array(types.uint8, 1, "C")

_LIMBS = 70
"""32-bit limbs of weight 2^(32 i - 1074): the greatest double ends in limb 65, the rest takes carries."""
_LOW = np.int64(0xFFFFFFFF)
_FRACTION = np.int64((1 << 52) - 1)
_INFINITY = np.int64(0x7FF0000000000000)
_NAN = np.int64(0x7FF8000000000000)
_SIGN = np.int64(-(1 << 63))


@helper
def _add(limbs, bits, times):  # type: ignore[no-untyped-def]
    exponent = (bits >> 52) & 0x7FF
    mantissa = bits & _FRACTION
    if exponent > 0:
        mantissa |= np.int64(1) << 52
    else:
        exponent = 1
    if bits < 0:
        times = -times
    shift = exponent - 1
    at = shift >> 5
    offset = shift & 31
    low = (mantissa & _LOW) << offset
    high = (mantissa >> 32) << offset
    limbs[at] += times * (low & _LOW)
    limbs[at + 1] += times * ((low >> 32) & _LOW)
    limbs[at + 1] += times * (high & _LOW)
    limbs[at + 2] += times * (high >> 32)


@helper
def _carry(limbs, digits, sign):  # type: ignore[no-untyped-def]
    carry = np.int64(0)
    for i in range(_LIMBS):
        total = sign * limbs[i] + carry
        digits[i] = total & _LOW
        carry = total >> 32
    return carry


@helper
def _rounded(limbs, digits):  # type: ignore[no-untyped-def]
    """The bits of the double nearest to the sum, ties to even."""
    sign = np.int64(0)
    if _carry(limbs, digits, np.int64(1)) < 0:
        _carry(limbs, digits, np.int64(-1))
        sign = _SIGN
    top = _LIMBS - 1
    while top > 0 and digits[top] == 0:
        top -= 1
    high = 0
    while high < 32 and (digits[top] >> high) != 0:
        high += 1
    last = 32 * top + high - 1
    if last <= 52:
        return sign | digits[0] | (digits[1] << 32)
    shift = last - 52
    mantissa = np.int64(0)
    for b in range(53):
        bit = shift + b
        mantissa |= ((digits[bit >> 5] >> (bit & 31)) & 1) << b
    half = shift - 1
    if (digits[half >> 5] >> (half & 31)) & 1:
        sticky = (digits[half >> 5] & ((np.int64(1) << (half & 31)) - 1)) != 0
        below = (half >> 5) - 1
        while not sticky and below >= 0:
            sticky = digits[below] != 0
            below -= 1
        if sticky or mantissa & 1:
            mantissa += 1
    if shift >= 2046:
        return sign | _INFINITY
    bits = (np.int64(shift) << 52) + mantissa
    return sign | min(bits, _INFINITY)


@kernel(types.void(repeated(I64, 4), I64, I64, I64, I64_NEW, U8_NEW))
def exact_sums(entries, bits, starts, version_times, out, overflow):  # type: ignore[no-untyped-def]
    """Bits of the sum of each group's doubles (given as bits) at each version.

    `entries`: the rows by group, then time; and of each row its group, time and diff; fewer than 2^30 live ones a group.
    `overflow`: 1 where every term is finite and the sum is not. Group g's versions are starts[g] … starts[g+1].
    """
    order, probe, times, diffs = entries
    limbs = np.zeros(_LIMBS, np.int64)
    digits = np.zeros(_LIMBS, np.int64)
    k = 0
    for g in range(len(starts) - 1):
        limbs[:] = 0
        nans = 0
        plus = 0
        minus = 0
        while k < len(order) and probe[order[k]] < g:
            k += 1
        for v in range(starts[g], starts[g + 1]):
            while k < len(order) and probe[order[k]] == g and times[order[k]] <= version_times[v]:
                row = order[k]
                word = bits[row]
                if (word & ~_SIGN) > _INFINITY:
                    nans += diffs[row]
                elif word == _INFINITY:
                    plus += diffs[row]
                elif word == (_INFINITY | _SIGN):
                    minus += diffs[row]
                else:
                    _add(limbs, word, diffs[row])
                k += 1
            overflow[v] = 0
            if nans > 0 or (plus > 0 and minus > 0):
                out[v] = _NAN
            elif plus > 0:
                out[v] = _INFINITY
            elif minus > 0:
                out[v] = _INFINITY | _SIGN
            else:
                out[v] = _rounded(limbs, digits)
                overflow[v] = 1 if (out[v] & ~_SIGN) == _INFINITY else 0
