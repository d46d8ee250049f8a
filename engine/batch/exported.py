"""A payload as kernels see it: the structs of Arrow's C data interface.

Always: the address is good for as long as the object lives, and what it points to is never written. Called by updates
and identities.
"""

from __future__ import annotations

import ctypes

import pyarrow as pa

_address_of = ctypes.pythonapi.PyCapsule_GetPointer
_address_of.restype = ctypes.c_void_p
_address_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Exported:
    """A record batch as an ArrowArray struct at `address`."""

    __slots__ = ("_capsule", "address")

    def __init__(self, rows: pa.RecordBatch) -> None:
        _, self._capsule = rows.__arrow_c_array__()
        self.address: int = _address_of(self._capsule, b"arrow_array")
