# mypy: allow-untyped-defs
"""Order-preserving 64-bit images of column values, straight from Arrow buffers.

Always: if one value sorts before another (Postgres's ascending order, collation C, NULLS LAST), its image is not the
greater one. Called by `headrace.engine.batch.keys`.
"""

from __future__ import annotations

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import U64_NEW, helper, kernel, repeated
from headrace.engine.kernels.hashing import (
    BYTES32,
    BYTES64,
    D128,
    F32,
    F64,
    FIXED,
    I8,
    I16,
    I32,
    I64,
    NUMERIC_TEXT,
    _fixed_word,
    _trimmed_length,
    _valid,
)
from headrace.engine.kernels.memory import load_i32, load_i64, load_u8, load_u64

_SIGN = np.uint64(0x8000000000000000)
_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
_NAN_IMAGE = np.uint64(0xFFFFFFFFFFFFFFFE)
_DECIMAL_LAST = np.uint64(0xFFFFFFFFFFFFFFFE)
_INFINITE = np.uint64(0x7FF0000000000000)
_INFINITE32 = np.uint64(0x7F800000)
_ZERO = np.uint64(0)
_INFINITY_IMAGE = np.uint64(0xFFFFFFFFFFFFFFFD)
_DIGITS = 13
_POWER_SHIFT = np.uint64(44)
_POWER_BIAS = 1 << 15
_MINUS, _POINT, _LETTER_I, _LETTER_N = np.uint8(45), np.uint8(46), np.uint8(73), np.uint8(78)
_32 = np.uint64(32)


@helper
def _float_image(bits):
    if bits & ~_SIGN > _INFINITE:
        return _NAN_IMAGE
    if bits & ~_SIGN == _ZERO:
        return _SIGN
    return ~bits if bits & _SIGN else bits | _SIGN


@helper
def _prefix(start, length):
    image = _ZERO
    for k in range(min(length, 8)):
        image |= np.uint64(load_u8(start + k)) << np.uint64(56 - 8 * k)
    return image


@helper
def _decimal_image(low, high):
    """Exact for unscaled values of 64 bits; beyond, the end of the lane on that side."""
    if high == 0 and low < _SIGN:
        return low | _SIGN
    if high == -1 and low >= _SIGN:
        return low ^ _SIGN
    return _DECIMAL_LAST if high >= 0 else _ZERO


@helper
def _numeral_image(start, length):
    """Sign, power of ten and first digits of the number that a decimal text stands for."""
    negative = load_u8(start) == _MINUS
    begin = 1 if negative else 0
    letter = load_u8(start + begin)
    if letter == _LETTER_N:
        return _NAN_IMAGE
    if letter == _LETTER_I:
        return _ZERO if negative else _INFINITY_IMAGE
    power = 0
    digits = 0
    mantissa = np.int64(0)
    fraction = False
    for k in range(begin, length):
        letter = load_u8(start + k)
        if letter == _POINT:
            fraction = True
            continue
        digit = np.int64(letter) - 48
        if digits == 0 and digit == 0:
            power -= 1 if fraction else 0
            continue
        power += 0 if fraction else 1
        if digits < _DIGITS:
            mantissa = mantissa * 10 + digit
            digits += 1
    if digits == 0:
        return _SIGN
    for _ in range(_DIGITS - digits):
        mantissa *= 10
    magnitude = (np.uint64(power + _POWER_BIAS) << _POWER_SHIFT) | np.uint64(mantissa)
    return _SIGN - magnitude if negative else _SIGN + magnitude


@helper
def _text_image(start, length, form):
    if form == NUMERIC_TEXT:
        return _numeral_image(start, length)
    return _prefix(start, _trimmed_length(start, length, form))


@helper
def _image(values, data, i, shape):
    code, form, width = shape
    if code == BYTES64:
        begin = load_i64(values + i * 8)
        return _text_image(data + begin, load_i64(values + i * 8 + 8) - begin, form)
    if code == BYTES32:
        begin = np.int64(load_i32(values + i * 4))
        return _text_image(data + begin, np.int64(load_i32(values + i * 4 + 4)) - begin, form)
    if code == FIXED:
        return _prefix(values + i * width, width)
    if code == D128:
        return _decimal_image(load_u64(values + i * 16), load_i64(values + i * 16 + 8))
    word = _fixed_word(values, i, code, 0)
    if code == F64:
        return _float_image(word)
    if code == F32:
        # Moved to the top half, a float's bits keep the meaning of sign and order that a double's have.
        if word & np.uint64(0x7FFFFFFF) > _INFINITE32:
            return _NAN_IMAGE
        image = word << _32
        if image & ~_SIGN == _ZERO:
            return _SIGN
        return ~image if image & _SIGN else image | _SIGN
    if code in (I64, I32, I16, I8):
        return word ^ _SIGN
    return word


@kernel(types.void(types.int64, types.int64, repeated(types.int64, 3), U64_NEW))
def order_lane(batch, column, shape, lane):
    """Fill `lane` with the images of one column of the record batch at address `batch`.

    `shape`: the lane's code, which form of a text counts (see `hashing`), the width of fixed-size binaries.
    """
    code = shape[0]
    array = load_i64(load_i64(batch + 48) + column * 8)
    offset = load_i64(array + 16) + load_i64(batch + 16)
    buffers = load_i64(array + 40)
    bitmap = load_i64(buffers) if load_i64(array + 8) != 0 else 0
    values = load_i64(buffers + 8)
    data = load_i64(buffers + 16) if code in (BYTES32, BYTES64) else 0
    for row in range(len(lane)):
        i = offset + row
        lane[row] = _image(values, data, i, shape) if _valid(bitmap, i) else _LAST
