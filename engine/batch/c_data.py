"""A payload in both of its forms: an Arrow record batch, and the structs of Arrow's C data interface that kernels see.

Always: each form is made when it is first asked for; the address is good for as long as the object lives, and what it
points to is never written. Called by updates, batches and identities.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pyarrow as pa

_address_of = ctypes.pythonapi.PyCapsule_GetPointer
_address_of.restype = ctypes.c_void_p
_address_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Exported:
    """A record batch, with an ArrowArray struct at `address`."""

    __slots__ = ("_address", "_rows", "_structs", "num_rows")

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows: pa.RecordBatch | None = rows
        self._address = 0
        self._structs: list[Any] = []
        self.num_rows: int = rows.num_rows

    @property
    def rows(self) -> pa.RecordBatch:
        """As Arrow has it."""
        return self._rows

    @property
    def schema(self) -> pa.Schema:
        """Of `rows`."""
        return self.rows.schema

    @property
    def nbytes(self) -> int:
        """The memory that it keeps."""
        return int(self.rows.get_total_buffer_size())

    def column(self, column: int) -> pa.Array:
        """One column, as Arrow has it."""
        return self.rows.column(column)

    def nulls(self, column: int) -> int:
        """How many there are in a column."""
        return int(self.rows.column(column).null_count)

    @property
    def address(self) -> int:
        """Where kernels find it."""
        if not self._address:
            # Two threads may ask at once: both are told of the first struct, and none is let go of.
            self._structs.append(self._rows.__arrow_c_array__()[1])  # type: ignore[union-attr]
            self._address = _address_of(self._structs[0], b"arrow_array")
        return self._address
