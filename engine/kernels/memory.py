"""Reads of fixed-width values at an address, writes and copies: how kernels see Arrow buffers and the lanes of many batches.

Always: the caller owns what the address points into and keeps it alive during the call; only `copy` and the stores
write, and only into arrays born in the calling kernel or handed to it to be filled or changed. Addresses come from Arrow's C data
interface or from numpy, never from data. Called by `hashing`, `entries`, `lookup`, `gather`,
`merge_output` and `sparse_rules`.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from headrace.engine.kernels.compiler import JIT_OFF, helper


def _loader(numba_type: Any, ctypes_type: Any, numpy_type: Any) -> Any:
    if JIT_OFF:

        def read(address: Any) -> Any:
            return numpy_type(ctypes_type.from_address(int(address)).value)

        return read

    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            pointer = builder.inttoptr(args[0], context.get_data_type(numba_type).as_pointer())
            return builder.load(pointer, align=1)

        return numba_type(types.int64), generate

    return load


load_u8 = _loader(types.uint8, ctypes.c_uint8, np.uint8)
load_i8 = _loader(types.int8, ctypes.c_int8, np.int8)
load_u16 = _loader(types.uint16, ctypes.c_uint16, np.uint16)
load_i16 = _loader(types.int16, ctypes.c_int16, np.int16)
load_u32 = _loader(types.uint32, ctypes.c_uint32, np.uint32)
load_i32 = _loader(types.int32, ctypes.c_int32, np.int32)
load_u64 = _loader(types.uint64, ctypes.c_uint64, np.uint64)
load_i64 = _loader(types.int64, ctypes.c_int64, np.int64)


def _storer(numba_type: Any, ctypes_type: Any) -> Any:
    if JIT_OFF:

        def write(address: Any, value: Any) -> None:
            ctypes_type.from_address(int(address)).value = int(value)

        return write

    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            pointer = builder.inttoptr(args[0], context.get_data_type(numba_type).as_pointer())
            builder.store(args[1], pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, numba_type), generate

    return store


store_u8 = _storer(types.uint8, ctypes.c_uint8)
store_i32 = _storer(types.int32, ctypes.c_int32)
store_i64 = _storer(types.int64, ctypes.c_int64)
"""store(address, value): writes that one value."""


@helper
def address(lane: Any) -> Any:
    """Where the lane's first entry lies."""
    return lane.ctypes.data


def _copier(raw: Any) -> Any:
    if JIT_OFF:

        def copied(target: Any, source: Any, size: Any) -> None:
            ctypes.memmove(int(target), int(source), int(size))

        return copied

    @intrinsic
    def copy_bytes(typingctx: Any, target: Any, source: Any, size: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            pointer = context.get_data_type(types.uint8).as_pointer()
            to, at = (builder.inttoptr(a, pointer) for a in args[:2])
            raw(builder, to, at, args[2], 1, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), generate

    return copy_bytes


copy = _copier(cgutils.raw_memcpy)
"""copy(target, source, size): `size` bytes from address to address; the two do not overlap."""

move = _copier(cgutils.raw_memmove)
"""As `copy`, and the two may overlap."""
