# mypy: allow-untyped-defs
"""Whole numbers of 128 bits in two 64-bit words, as decimals of known scale hold them.

Always: a number is (low word, high word with the sign), and what does not fit is told, never cut off. Called by `row_program`.
"""

from __future__ import annotations

import numpy as np

from headrace.engine.kernels.compiler import helper

_POWERS = np.array([[10**k & (2**64 - 1), 10**k >> 64] for k in range(39)], np.uint64)
"""The powers of ten, as low and high words."""

_32 = np.uint64(32)
_HALF = np.uint64(0xFFFFFFFF)


@helper
def negated(low, high):
    """The opposite; of the least number it is that itself."""
    return -low, ~high + (1 if low == 0 else 0)


@helper
def total(low, high, low2, high2):
    """(sum, whether it fits)."""
    below = low + low2
    carry = 1 if np.uint64(below) < np.uint64(low) else 0
    above = high + high2 + carry
    return below, above, ((high ^ above) & (high2 ^ above)) >= 0


@helper
def product(left, right):
    """The product of two words with signs, which always fits."""
    a, b = np.uint64(left), np.uint64(right)
    one, two = a & _HALF, a >> _32
    three, four = b & _HALF, b >> _32
    first = one * three
    middle = two * three + (first >> _32)
    other = one * four + (middle & _HALF)
    high = np.int64(two * four + (middle >> _32) + (other >> _32))
    if left < 0:
        high -= right
    if right < 0:
        high -= left
    return left * right, high


@helper
def below_power(low, high, digits):
    """True if the number has at most so many digits."""
    if high < 0:
        low, high = negated(low, high)
    if high < 0:
        return False
    above = np.int64(_POWERS[digits, 1])
    return high < above or (high == above and np.uint64(low) < _POWERS[digits, 0])
