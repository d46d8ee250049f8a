# mypy: allow-untyped-defs
"""A few rows taken through a list of expressions in one call, by a program that is data: nothing is compiled for a view.

Always: a register has one value a row, in two words, and whether it is there; what a program cannot say exactly (an overflow,
a division by zero, a decimal of more than 64 bits where two are multiplied) it does not say at all, and whoever called it
evaluates the expressions one by one. It is one file, as one kernel has every operation. Called by
`headrace.engine.operators.row_programs`, which makes the programs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64, I64_NEW, I64_TABLE, helper, kernel, repeated
from headrace.engine.kernels.gather import (
    BITS,
    BYTES,
    DATA,
    NULLS,
    OFFSETS64,
    VALIDITY,
    VALUES,
    _describe,
    _lay_out,
    _valid,
    assemble,
)
from headrace.engine.kernels.memory import address, copy, load_i16, load_i32, load_i64, load_u8
from headrace.engine.kernels.numbers128 import below_power, negated, product, total

DONE, LONG, ALL = range(3)
"""How it went: or it takes more than this; or all rows are kept, just as they are."""

LOAD, ADD, SUBTRACT, MULTIPLY, DIVIDE, REMAINDER, NEGATE, RANGE, COMPARE, AND, OR, NOT, THERE, CHOOSE, COALESCE = range(
    15
)
"""What a step does; its operands are registers, but for what is said here.

LOAD: source (0 the rows, 1 the constants), column, width. ADD … NEGATE: the last operand is the bits of an integer, or DECIMAL.
RANGE: the value must fit so many bits, or as a DECIMAL so many digits (the second operand). COMPARE: two registers, how they
are ordered, and the sum of the outcomes (LESS, SAME, MORE) that are true. THERE: 1 where the value is not NULL. CHOOSE: the
second where the first is true, else the third. COALESCE: the first, or the second where that is NULL.
"""
DECIMAL = 128
LENGTH, FLOAT_ORDER, SCALE = range(15, 18)
"""LENGTH: characters of a text in UTF-8. FLOAT_ORDER: an integer in the order of floats of so many bits. SCALE: a decimal times
the power of ten that is the second operand."""

WORD_ORDER, DECIMAL_ORDER, BYTES_ORDER = range(3)
LESS, SAME, MORE = 1, 2, 4

_OP, _A, _B, _C, _D = range(5)
_LOW, _HIGH, _IS = range(3)
_FIXED2, _FIXED4, _FIXED8, _FIXED16 = 2, 4, 8, 16
_BYTES: Any = types.Array(types.uint8, 1, "C")
_TABLE: Any = types.Array(types.int64, 2, "C")
_MADE: Any = types.Tuple((_BYTES, _BYTES, _TABLE, I64_NEW, _TABLE, types.int64))  # type: ignore[no-untyped-call]


@helper
def _load(struct, column, width, step, rows, out):
    """Fill a register from a column of the payload at address `struct`; `step`: 1, or 0 for a constant."""
    child = load_i64(load_i64(struct + 48) + column * 8)
    buffers = load_i64(child + 40)
    bitmap = load_i64(buffers) if load_i64(child + 8) != 0 else 0
    values = load_i64(buffers + 8)
    data = load_i64(buffers + 16) if width == OFFSETS64 else 0
    offset = load_i64(child + 16) + load_i64(struct + 16)
    for k in range(rows):
        i = offset + k * step
        if not _valid(bitmap, i):
            out[_LOW, k], out[_HIGH, k], out[_IS, k] = 0, 0, 0
            continue
        out[_IS, k] = 1
        if width == OFFSETS64:
            begin = load_i64(values + i * 8)
            out[_LOW, k], out[_HIGH, k] = data + begin, load_i64(values + i * 8 + 8) - begin
        elif width == _FIXED16:
            out[_LOW, k], out[_HIGH, k] = load_i64(values + i * 16), load_i64(values + i * 16 + 8)
        else:
            if width == _FIXED8:
                word = load_i64(values + i * 8)
            elif width == _FIXED4:
                word = np.int64(load_i32(values + i * 4))
            elif width == _FIXED2:
                word = np.int64(load_i16(values + i * 2))
            else:
                word = np.int64((load_u8(values + (i >> 3)) >> np.uint8(i & 7)) & np.uint8(1))
            out[_LOW, k], out[_HIGH, k] = word, word >> 63


@helper
def _fits(word, bits):
    """True if an integer fits so many bits."""
    return bits == 64 or word >> (bits - 1) == word >> 63


@helper
def _sum(a, b, k, sign, bits, out):
    """One row of a sum, or with `sign` -1 a difference; False where it does not fit."""
    low, high = b[_LOW, k], b[_HIGH, k]
    if sign < 0:
        low, high = negated(low, high)
    low, high, fits = total(a[_LOW, k], a[_HIGH, k], low, high)
    out[_LOW, k], out[_HIGH, k] = low, high
    if bits == DECIMAL:
        return fits and below_power(low, high, 38)
    return fits and high == low >> 63 and _fits(low, bits)


@helper
def _quotient(a, b, k, bits, out, rest):
    """One row of an integer quotient that is cut off, or what is left; False for a divisor of zero, and where it does not fit."""
    left, right = a[_LOW, k], b[_LOW, k]
    if right == 0 or (right == -1 and not _fits(-left, bits)) or (right == -1 and left == -left and left != 0):
        return False
    found = left // right
    if found * right != left and (left < 0) != (right < 0):
        found += 1
    if rest:
        found = left - found * right
    out[_LOW, k], out[_HIGH, k] = found, found >> 63
    return True


@helper
def _arithmetic(step, registers, k, out):
    """One row of a step that computes with numbers that are there; False where its value cannot be said."""
    a, b = registers[step[_A]], registers[step[_B]]
    what, bits = step[_OP], step[_C]
    if what == ADD:
        return _sum(a, b, k, 1, bits, out)
    if what == SUBTRACT:
        return _sum(a, b, k, -1, bits, out)
    if what == MULTIPLY:
        if a[_HIGH, k] != a[_LOW, k] >> 63 or b[_HIGH, k] != b[_LOW, k] >> 63:
            return False
        low, high = product(a[_LOW, k], b[_LOW, k])
        out[_LOW, k], out[_HIGH, k] = low, high
        return bits == DECIMAL or (high == low >> 63 and _fits(low, bits))
    return _quotient(a, b, k, bits, out, what == REMAINDER)


@helper
def _alone(step, a, k, out):
    """One row of a step over one register whose value is there; False where it cannot be said."""
    what, bits = step[_OP], step[_B]
    low, high = a[_LOW, k], a[_HIGH, k]
    if what == NEGATE:
        low, high = negated(low, high)
        out[_LOW, k], out[_HIGH, k] = low, high
        return bits == DECIMAL or (high == low >> 63 and _fits(low, bits))
    if what == SCALE:
        factor = 1
        for _ in range(bits):
            factor *= 10
        out[_LOW, k], out[_HIGH, k] = product(low, factor)
        return high == low >> 63
    if what == LENGTH:
        count = 0
        for n in range(high):
            if load_u8(low + n) & np.uint8(0xC0) != np.uint8(0x80):
                count += 1
        out[_LOW, k], out[_HIGH, k] = count, 0
        return count < 2147483648
    if what == FLOAT_ORDER:
        out[_LOW, k] = _float_order(low, bits)
        out[_HIGH, k] = out[_LOW, k] >> 63
        return True
    # RANGE
    out[_LOW, k], out[_HIGH, k] = low, high
    if step[_C] > 0:
        return below_power(low, high, step[_C])
    return high == low >> 63 and _fits(low, bits)


@helper
def _float_order(word, bits):
    """An integer in the order of Postgres's floats: the zeros are equal, and so are all NaNs, above everything else."""
    most, infinite = (0x7FFFFFFF, 0x7F800000) if bits == 32 else (0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000)
    size = word & most
    if size > infinite:
        return most
    return -size if word < 0 else size


@helper
def _order_bytes(a, b, k):
    """-1, 0 or 1, as bytes are ordered."""
    mine, theirs = a[_HIGH, k], b[_HIGH, k]
    for n in range(min(mine, theirs)):
        left, right = load_u8(a[_LOW, k] + n), load_u8(b[_LOW, k] + n)
        if left != right:
            return -1 if left < right else 1
    return 0 if mine == theirs else (-1 if mine < theirs else 1)


@helper
def _order(a, b, k, how):
    """-1, 0 or 1: how two values that are there are ordered."""
    if how == BYTES_ORDER:
        return _order_bytes(a, b, k)
    if how == DECIMAL_ORDER and a[_HIGH, k] != b[_HIGH, k]:
        return -1 if a[_HIGH, k] < b[_HIGH, k] else 1
    left, right = a[_LOW, k], b[_LOW, k]
    if left == right:
        return 0
    if how == DECIMAL_ORDER:
        return -1 if np.uint64(left) < np.uint64(right) else 1
    return -1 if left < right else 1


@helper
def _logic(step, registers, k, out):
    """One row of a step that looks at what is there, or whether it is."""
    what, a = step[_OP], registers[step[_A]]
    out[_LOW, k], out[_HIGH, k], out[_IS, k] = 0, 0, 1
    if what == THERE:
        out[_LOW, k] = a[_IS, k]
        return
    if what in (COALESCE, CHOOSE):
        if what == CHOOSE:
            picked = registers[step[_B]] if a[_IS, k] != 0 and a[_LOW, k] != 0 else registers[step[_C]]
        else:
            picked = a if a[_IS, k] != 0 else registers[step[_B]]
        for lane in range(3):
            out[lane, k] = picked[lane, k]
        return
    if what == NOT:
        out[_LOW, k], out[_IS, k] = 1 - a[_LOW, k], a[_IS, k]
    elif what == COMPARE:
        b = registers[step[_B]]
        out[_IS, k] = a[_IS, k] & b[_IS, k]
        if out[_IS, k] != 0:
            out[_LOW, k] = (step[_D] >> (_order(a, b, k, step[_C]) + 1)) & 1
    else:
        b = registers[step[_B]]
        decides = 0 if what == AND else 1
        if (a[_IS, k] != 0 and a[_LOW, k] == decides) or (b[_IS, k] != 0 and b[_LOW, k] == decides):
            out[_LOW, k] = decides
        else:
            out[_LOW, k], out[_IS, k] = 1 - decides, a[_IS, k] & b[_IS, k]
    if out[_IS, k] == 0:
        out[_LOW, k] = 0


@helper
def _computed(structs, steps, rows, registers):
    """Run a program; False where a value cannot be said."""
    for n in range(len(steps)):
        step, out = steps[n], registers[n]
        what = step[_OP]
        if what == LOAD:
            _load(structs[step[_A]], step[_B], step[_C], 1 - step[_A], rows, out)
        elif ADD <= what <= REMAINDER:
            for k in range(rows):
                out[_IS, k] = registers[step[_A], _IS, k] & registers[step[_B], _IS, k]
                if out[_IS, k] == 0:
                    out[_LOW, k], out[_HIGH, k] = 0, 0
                elif not _arithmetic(step, registers, k, out):
                    return False
        elif what in (NEGATE, RANGE, LENGTH, FLOAT_ORDER, SCALE):
            for k in range(rows):
                out[_IS, k] = registers[step[_A], _IS, k]
                if out[_IS, k] == 0:
                    out[_LOW, k], out[_HIGH, k] = 0, 0
                elif not _alone(step, registers[step[_A]], k, out):
                    return False
        else:
            for k in range(rows):
                _logic(step, registers, k, out)
    return True


@helper
def _alike(outs, registers, i, j):
    """True if two rows have the same values."""
    for c in range(len(outs)):
        values = registers[outs[c, 0]]
        if values[_IS, i] != values[_IS, j]:
            return False
        if outs[c, 1] != OFFSETS64:
            if values[_LOW, i] != values[_LOW, j] or values[_HIGH, i] != values[_HIGH, j]:
                return False
            continue
        size = values[_HIGH, i]
        if size != values[_HIGH, j]:
            return False
        for n in range(size):
            if load_u8(values[_LOW, i] + n) != load_u8(values[_LOW, j] + n):
                return False
    return True


@helper
def _unpaired(outs, registers, times, diffs, kept):
    """Fill `kept` with the rows but for those of -1 and +1, one behind the other at one time, that are alike; how many."""
    n = 0
    k = 0
    while k < len(times):
        pair = k + 1 < len(times) and diffs[k] == -1 and diffs[k + 1] == 1 and times[k] == times[k + 1]
        if pair and _alike(outs, registers, k, k + 1):
            k += 2
            continue
        kept[n] = k
        n += 1
        k += 1
    return n


@helper
def _write(width, values, kept, place, block, data):
    """Write a column's buffers, of the rows `kept`."""
    begin = place[VALUES]
    for k in range(len(kept)):
        i = kept[k]
        if values[_IS, i] != 0:
            if place[NULLS] > 0:
                block[place[VALIDITY] + (k >> 3)] |= np.uint8(1 << (k & 7))
            if width == BITS and values[_LOW, i] != 0:
                block[begin + (k >> 3)] |= np.uint8(1 << (k & 7))
    if width in (_FIXED8, _FIXED16):
        words = block[begin : begin + len(kept) * width].view(np.int64)
        for k in range(len(kept)):
            if width == _FIXED8:
                words[k] = values[_LOW, kept[k]]
            else:
                words[2 * k], words[2 * k + 1] = values[_LOW, kept[k]], values[_HIGH, kept[k]]
    elif width == _FIXED4:
        short = block[begin : begin + len(kept) * 4].view(np.int32)
        for k in range(len(kept)):
            short[k] = values[_LOW, kept[k]]
    elif width == _FIXED2:
        tiny = block[begin : begin + len(kept) * 2].view(np.int16)
        for k in range(len(kept)):
            tiny[k] = values[_LOW, kept[k]]
    elif width == OFFSETS64:
        offsets = block[begin : begin + (len(kept) + 1) * 8].view(np.int64)
        at, base = 0, address(data) + place[DATA]
        offsets[0] = 0
        for k in range(len(kept)):
            size = values[_HIGH, kept[k]]
            if size > 0:
                copy(base + at, values[_LOW, kept[k]], size)
                at += size
            offsets[k + 1] = at


@helper
def _laid(outs, registers, kept):
    """The rows `kept` as `assemble` gives rows."""
    places = np.zeros((len(outs), 6), np.int64)
    for c in range(len(outs)):
        values = registers[outs[c, 0]]
        for k in kept:
            if values[_IS, k] == 0:
                places[c, NULLS] += 1
            elif outs[c, 1] == OFFSETS64:
                places[c, BYTES] += values[_HIGH, k]
    size, total_bytes = _lay_out(outs, len(kept), places)
    block, data = np.zeros(size, np.uint8), np.empty(total_bytes, np.uint8)
    for c in range(len(outs)):
        _write(outs[c, 1], registers[outs[c, 0]], kept, places[c], block, data)
    return block, data, places, _describe(outs, len(kept), places, address(block), address(data))


@helper
def _none(how):
    """No rows, and how it went."""
    none = np.empty(0, np.uint8)
    return none, none, np.empty((0, 6), np.int64), np.empty(0, np.int64), np.empty((2, 0), np.int64), how


@helper
def _told(kept, times, diffs):
    """Times and diffs of the rows `kept`."""
    facts = np.empty((2, len(kept)), np.int64)
    for k in range(len(kept)):
        facts[0, k], facts[1, k] = times[kept[k]], diffs[kept[k]]
    return facts


@kernel(_MADE(repeated(types.int64, 2), I64_TABLE, I64_TABLE, I64, I64, types.boolean))
def project_rows(structs, steps, outs, times, diffs, paired):
    """The values of expressions: rows as `assemble` gives them, times and diffs of each, and how it went.

    `structs`: addresses of the rows and of one row of constants; `steps`: int64[registers, 5] of what each register is;
    `outs`: (register, width, 0) of each column; `paired`: a row of -1 and the one of +1 behind it cancel where they are alike.
    """
    rows = len(times)
    registers = np.empty((len(steps), 3, rows), np.int64)
    if not _computed(structs, steps, rows, registers):
        return _none(LONG)
    kept = np.arange(rows)
    size = _unpaired(outs, registers, times, diffs, kept) if paired else rows
    if size == 0:
        return _none(DONE)
    kept = kept[:size]
    block, data, places, words = _laid(outs, registers, kept)
    return block, data, places, words, _told(kept, times, diffs), DONE


@kernel(_MADE(repeated(types.int64, 2), I64_TABLE, I64_TABLE, I64, I64, types.int64))
def keep_rows(structs, steps, plan, times, diffs, predicate):
    """As `project_rows`, the rows whose `predicate` is true just as they are, by the plan of `assemble`."""
    rows = len(times)
    registers = np.empty((len(steps), 3, rows), np.int64)
    if not _computed(structs, steps, rows, registers):
        return _none(LONG)
    kept = np.empty(rows, np.int64)
    size = 0
    for k in range(rows):
        if registers[predicate, _IS, k] != 0 and registers[predicate, _LOW, k] != 0:
            kept[size] = k
            size += 1
    if size == 0 or size == rows:
        return _none(DONE if size == 0 else ALL)
    places = np.empty(1, np.int64)
    places[0] = structs[0]
    block, data, where, words = assemble(
        places, plan, np.zeros((1, size), np.int64), kept[:size].copy().reshape((1, size))
    )
    return block, data, where, words, _told(kept[:size], times, diffs), DONE
