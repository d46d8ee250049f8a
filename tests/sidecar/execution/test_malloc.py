"""One heap for all threads of a sidecar, in a process of its own, as the C library counts its heaps."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

GLIBC = pytest.mark.skipif("glibc" not in (os.confstr("CS_GNU_LIBC_VERSION") or ""), reason="another C library")
THREADS = """
import headrace.sidecar.process.bootstrap
import ctypes, threading
import pyarrow as pa
from headrace.sidecar.execution.malloc import share_one_heap
share_one_heap()
barrier = threading.Barrier(4)
def work():
    held = [bytes(200 + i) for i in range(5000)]
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.malloc_stats()
print(pa.default_memory_pool().backend_name)
"""


def heaps(**environment: str) -> tuple[int, str]:
    """How many heaps there are once four threads have allocated at once, and whose Arrow's buffers are."""
    plain = {k: v for k, v in os.environ.items() if k not in ("MALLOC_ARENA_MAX", "ARROW_DEFAULT_MEMORY_POOL")}
    told = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, check=True, env=plain | environment
    )
    return told.stderr.count("Arena "), told.stdout.strip()


@GLIBC
def test_all_threads_share_one_heap() -> None:
    assert heaps() == (1, "system")


@GLIBC
def test_what_the_user_has_set_stays() -> None:
    several, pool = heaps(MALLOC_ARENA_MAX="8", ARROW_DEFAULT_MEMORY_POOL="mimalloc")
    assert several > 1
    assert pool == "mimalloc"
