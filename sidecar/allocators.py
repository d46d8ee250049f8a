"""What allocators keep of memory that is free again goes back to the system when they are asked to give it.

Always: where an allocator has no such thing, nothing happens. Called by whatever process holds a dataflow.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

import pyarrow as pa


def give_back() -> None:
    """Return to the system what Arrow's allocator and the C library's keep of memory that is free."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
