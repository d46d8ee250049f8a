"""The heap of a process that holds a dataflow: one for all threads, which gives free memory back to the system when asked.

Always: where an allocator has no such thing, nothing happens, and what the user has set in the environment stays. Called by
whatever process holds a dataflow; `environment` sees to it that threads have no heaps of their own.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

import pyarrow as pa


def share_one_heap() -> None:
    """Let Arrow's buffers lie in the C library's heap with everything else: what is let go of serves whoever needs it next."""
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())


def give_back() -> None:
    """Return to the system what the C library's allocator, and Arrow's where it is another, keep of memory that is free."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
