# mypy: allow-untyped-defs
"""Key identities and row fingerprints, straight from Arrow buffers.

Always: the identity of a single column of at most 64 bits is a bijection of its value (exact); everything else is a
128-bit hash over length-framed words, so that no two different rows feed it the same words. NULL differs from every
value. Called by `headrace.engine.batch.keys`, which owns the meaning of a plan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from headrace.engine.kernels.compiler import I64_TABLE, JIT_OFF, U64_NEW, helper, kernel, repeated, routine
from headrace.engine.kernels.memory import (
    load_i8,
    load_i16,
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    store_i64,
)

BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, D128, BYTES32, BYTES64, FIXED = range(15)
"""Codes of Arrow's lanes. BYTES32 and BYTES64: strings and binaries by the width of their offsets."""

IMAGE, VALUE, TRIMMED, NUMERIC_TEXT = range(4)
"""What of a value counts: its identical image; its value (minus zero is zero); its text without trailing blanks; the
number that its decimal text stands for. NaN equals NaN in all of them."""

_1 = np.uint64(1)
_5 = np.uint64(5)
_27 = np.uint64(27)
_31 = np.uint64(31)
_33 = np.uint64(33)
_ZERO = np.uint64(0)
_FULL = np.uint64(0xFFFFFFFFFFFFFFFF)
_MIX_A = np.uint64(0xFF51AFD7ED558CCD)
_MIX_B = np.uint64(0xC4CEB9FE1A85EC53)
_MUL_1 = np.uint64(0x87C37B91114253D5)
_MUL_2 = np.uint64(0x4CF5AD432745937F)
_ADD_1 = np.uint64(0x52DCE729)
_ADD_2 = np.uint64(0x38495AB5)
_SEED_1 = np.uint64(0x243F6A8885A308D3)
_SEED_2 = np.uint64(0x13198A2E03707344)
_NULL = np.uint64(0x7FFFFFFFFFFFFFFD)
_VALID = np.uint64(0x0000000000000001)
_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
_SIGN = np.uint64(0x8000000000000000)
_INFINITE = np.uint64(0x7FF0000000000000)
_NAN = np.uint64(0x7FF8000000000000)
_SIGN32 = np.uint64(0x80000000)
_INFINITE32 = np.uint64(0x7F800000)
_NAN32 = np.uint64(0x7FC00000)
_BLANK = np.uint8(32)
_DOT = np.uint8(46)
_DIGIT_0 = np.uint8(48)


@helper
def _rotate(word, bits):
    return (word << bits) | (word >> (np.uint64(64) - bits))


@helper
def scramble(word):
    """A bijection of 64-bit words whose every output bit depends on every input bit."""
    word = (word ^ (word >> _33)) * _MIX_A
    word = (word ^ (word >> _33)) * _MIX_B
    return word ^ (word >> _33)


@helper
def _absorb(one, two, first, second):
    one = one ^ (_rotate(first * _MUL_1, _31) * _MUL_2)
    one = (_rotate(one, _27) + two) * _5 + _ADD_1
    two = two ^ (_rotate(second * _MUL_2, _33) * _MUL_1)
    two = (_rotate(two, _31) + one) * _5 + _ADD_2
    return one, two


@helper
def _valid(bitmap, i):
    if bitmap == 0:
        return True
    return (load_u8(bitmap + (i >> 3)) >> np.uint8(i & 7)) & np.uint8(1) != 0


@helper
def _fixed_word(values, i, code, form):
    if code in (I64, U64):
        return load_u64(values + i * 8)
    if code == I32:
        return np.uint64(np.int64(load_i32(values + i * 4)))
    if code == F64:
        bits = load_u64(values + i * 8)
        if bits & ~_SIGN > _INFINITE:
            return _NAN
        return _ZERO if form == VALUE and bits == _SIGN else bits
    if code == BOOL:
        return np.uint64((load_u8(values + (i >> 3)) >> np.uint8(i & 7)) & np.uint8(1))
    if code == I16:
        return np.uint64(np.int64(load_i16(values + i * 2)))
    if code == F32:
        bits = np.uint64(load_u32(values + i * 4))
        if bits & ~_SIGN32 > _INFINITE32:
            return _NAN32
        return _ZERO if form == VALUE and bits == _SIGN32 else bits
    if code == I8:
        return np.uint64(np.int64(load_i8(values + i)))
    if code == U8:
        return np.uint64(load_u8(values + i))
    if code == U16:
        return np.uint64(load_u16(values + i * 2))
    return np.uint64(load_u32(values + i * 4))


@helper
def _trimmed_length(start, length, form):
    if form == TRIMMED:
        while length > 0 and load_u8(start + length - 1) == _BLANK:
            length -= 1
        return length
    if form == NUMERIC_TEXT:
        has_point = False
        for k in range(length):
            if load_u8(start + k) == _DOT:
                has_point = True
        if has_point:
            while load_u8(start + length - 1) == _DIGIT_0:
                length -= 1
            if load_u8(start + length - 1) == _DOT:
                length -= 1
    return length


@helper
def _absorb_bytes(one, two, start, length):
    one, two = _absorb(one, two, np.uint64(length), _VALID)
    at = 0
    while at + 16 <= length:
        one, two = _absorb(one, two, load_u64(start + at), load_u64(start + at + 8))
        at += 16
    if at < length:
        first = _ZERO
        second = _ZERO
        if at + 8 <= length:
            first = load_u64(start + at)
            at += 8
            for k in range(length - at):
                second |= np.uint64(load_u8(start + at + k)) << np.uint64(8 * k)
        else:
            for k in range(length - at):
                first |= np.uint64(load_u8(start + at + k)) << np.uint64(8 * k)
        one, two = _absorb(one, two, first, second)
    return one, two


@helper
def _absorb_value(one, two, shape, lie, i):
    """Feed entry `i` of a column to a state. `shape`: (code, form, width); `lie`: addresses of bitmap, values and data."""
    code, form, width = shape
    bitmap, values, data = lie
    if not _valid(bitmap, i):
        return _absorb(one, two, _ZERO, _NULL)
    if code == BYTES64:
        begin = load_i64(values + i * 8)
        length = _trimmed_length(data + begin, load_i64(values + i * 8 + 8) - begin, form)
        return _absorb_bytes(one, two, data + begin, length)
    if code == BYTES32:
        begin = np.int64(load_i32(values + i * 4))
        length = _trimmed_length(data + begin, np.int64(load_i32(values + i * 4 + 4)) - begin, form)
        return _absorb_bytes(one, two, data + begin, length)
    if code == FIXED:
        return _absorb_bytes(one, two, values + i * width, width)
    if code == D128:
        return _absorb(one, two, load_u64(values + i * 16), load_u64(values + i * 16 + 8))
    return _absorb(one, two, _fixed_word(values, i, code, form), _VALID)


@helper
def _lie(column, code):
    """Where a column's bitmap (0: none), values and bytes lie. `column`: address of its ArrowArray."""
    buffers = load_i64(column + 40)
    bitmap = load_i64(buffers) if load_i64(column + 8) != 0 else 0
    return bitmap, load_i64(buffers + 8), load_i64(buffers + 16) if code in (BYTES32, BYTES64) else 0


@helper
def _settled(one, two):
    """A state that was fed everything, made into the two halves of an identity."""
    one = one + two
    two = scramble(two + one)
    one = scramble(one) + two
    return one, two + one


@helper
def _row_image(struct, steps, count, row):
    children = load_i64(struct + 48)
    first_row = load_i64(struct + 16)
    one = _SEED_1
    two = _SEED_2
    for k in range(count):
        step = steps + 32 * k
        column = load_i64(children + load_i64(step) * 8)
        shape = (load_i64(step + 8), load_i64(step + 16), load_i64(step + 24))
        one, two = _absorb_value(one, two, shape, _lie(column, shape[0]), load_i64(column + 16) + first_row + row)
    return _settled(one, two)


@routine(types.int64(types.int64, types.int64, types.int64, types.int64, types.int64))
def ROW_IMAGE(struct, steps, count, row, out):
    """Writes to address `out` the identity of one row of the record batch at `struct`, by `count` steps at address `steps`."""
    one, two = _row_image(struct, steps, count, row)
    store_i64(out, np.int64(one))
    store_i64(out + 8, np.int64(two))
    return 0


def _caller() -> Any:
    if JIT_OFF:

        def run(routine: Any, struct: Any, steps: Any, count: Any, row: Any) -> Any:  # noqa: ARG001
            return _row_image(struct, steps, count, row)

        return run

    @intrinsic
    def call(typingctx: Any, routine: Any, struct: Any, steps: Any, count: Any, row: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = context.get_data_type(types.int64)
            room = cgutils.alloca_once(builder, word, size=2)  # type: ignore[no-untyped-call]
            kind = ir.FunctionType(word, [word] * 5).as_pointer()
            builder.call(builder.inttoptr(args[0], kind), [*args[1:], builder.ptrtoint(room, word)])
            halves = [builder.load(builder.gep(room, [word(k)])) for k in range(2)]
            return context.make_tuple(builder, signature.return_type, halves)

        return repeated(types.uint64, 2)(*[types.int64] * 5), generate

    return call


row_image = _caller()
"""row_image(ROW_IMAGE, struct, steps, count, row): the 128-bit identity of one row, as `hash_rows` makes it of all."""


@helper
def _absorb_column(column, shape, first_row, ones, twos):
    """Feed one column to the states. `column`: address of its ArrowArray; `shape`: (code, form, width)."""
    offset = load_i64(column + 16) + first_row
    lie = _lie(column, shape[0])
    for row in range(len(ones)):
        ones[row], twos[row] = _absorb_value(ones[row], twos[row], shape, lie, offset + row)


@helper
def _exact_column(column, shape, first_row, mask, hashes, checks):
    code, form, _ = shape
    offset = load_i64(column + 16) + first_row
    buffers = load_i64(column + 40)
    bitmap = load_i64(buffers) if load_i64(column + 8) != 0 else 0
    values = load_i64(buffers + 8)
    settled = True
    for row in range(len(hashes)):
        i = offset + row
        if _valid(bitmap, i):
            word = _fixed_word(values, i, code, form)
            hashes[row] = scramble(word) & mask
            checks[row] = _ZERO if mask == _FULL else word
        else:
            hashes[row] = _NULL_HASH & mask
            checks[row] = _1 if mask == _FULL else _NULL_HASH
            settled = False
    return settled and mask == _FULL


@kernel(types.boolean(types.int64, I64_TABLE, types.boolean, types.uint64, U64_NEW, U64_NEW))
def hash_rows(batch, plan, exact, mask, ones, twos):
    """Fill `ones` and `twos` with the 128-bit identity of each row; true if `twos` is zero throughout.

    `batch`: address of the ArrowArray struct of a record batch; `plan`: (column, code, form, width) a row; `exact`: the
    plan is one column of at most 64 bits, hashed by a bijection; `mask` weakens the first half (tests of collisions).
    """
    children = load_i64(batch + 48)
    first_row = load_i64(batch + 16)
    if exact:
        column = load_i64(children + plan[0, 0] * 8)
        return _exact_column(column, (plan[0, 1], plan[0, 2], plan[0, 3]), first_row, mask, ones, twos)
    for row in range(len(ones)):
        ones[row] = _SEED_1
        twos[row] = _SEED_2
    for k in range(len(plan)):
        column = load_i64(children + plan[k, 0] * 8)
        _absorb_column(column, (plan[k, 1], plan[k, 2], plan[k, 3]), first_row, ones, twos)
    for row in range(len(ones)):
        one, twos[row] = _settled(ones[row], twos[row])
        ones[row] = one & mask
    return False
