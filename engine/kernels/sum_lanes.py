# mypy: allow-untyped-defs
"""What a row adds to the lanes of an aggregate, straight from Arrow buffers.

Always: a null adds nothing, in every lane. Called by `headrace.engine.operators.aggregates`, which owns the meaning of the lanes.
"""

from __future__ import annotations

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import kernel
from headrace.engine.kernels.memory import load_i16, load_i32, load_i64, load_u8

PRESENT, BOOL, I16, I32, I64, D128 = range(6)
"""What is read of a value: only that it is there; a boolean; an integer of so many bits; the two words of a decimal."""

_LOW = 0xFFFFFFFF


@kernel(types.void(types.int64, types.int64, types.int64, types.Array(types.int64, 2, "A")))
def contributions(struct, column, kind, out):
    """Fill `out`, int64[rows, width], from a column of the payload at address `struct`.

    Lane 0 is 1 where there is a value; then the limbs of the value: of a boolean the one, of I16 and I32 two of 16 bits,
    of I64 two of 32, of D128 four of 32; the last limb has the sign.
    """
    child = load_i64(load_i64(struct + 48) + column * 8)
    offset = load_i64(child + 16) + load_i64(struct + 16)
    buffers = load_i64(child + 40)
    bitmap = load_i64(buffers) if load_i64(child + 8) != 0 else 0
    values = load_i64(buffers + 8)
    for k in range(len(out)):
        i = offset + k
        if bitmap != 0 and (load_u8(bitmap + (i >> 3)) >> np.uint8(i & 7)) & np.uint8(1) == 0:
            for c in range(out.shape[1]):
                out[k, c] = 0
            continue
        out[k, 0] = 1
        if kind == BOOL:
            out[k, 1] = (load_u8(values + (i >> 3)) >> np.uint8(i & 7)) & np.uint8(1)
        elif kind in (I16, I32):
            value = np.int64(load_i32(values + i * 4)) if kind == I32 else np.int64(load_i16(values + i * 2))
            out[k, 1] = value & 0xFFFF
            out[k, 2] = value >> 16
        elif kind == I64:
            word = load_i64(values + i * 8)
            out[k, 1] = word & _LOW
            out[k, 2] = word >> 32
        elif kind == D128:
            low = load_i64(values + i * 16)
            high = load_i64(values + i * 16 + 8)
            out[k, 1] = low & _LOW
            out[k, 2] = (low >> 32) & _LOW
            out[k, 3] = high & _LOW
            out[k, 4] = high >> 32
