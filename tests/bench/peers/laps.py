"""What a command took on our side: wall and processor seconds of each physical batch, and resident memory.

Always: processor time is that of the whole process, so that no thread of a library works for nothing. Called by our side's
sessions; the peer has the same in Rust.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

T = TypeVar("T")


@dataclass
class Answer:
    """Laps of one command; `rows` that were fed, `checksum` and number `out` of the updates that came out; `ways`: how a
    recursion followed the changes of each lap."""

    rows: int = 0
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    checksum: int = 0
    out: int = 0
    ways: list[str] = field(default_factory=list)

    def lap(self, work: Callable[[], T]) -> T:
        """Run `work` as one lap."""
        start, used = time.perf_counter(), time.process_time()
        found = work()
        self.cpu.append(time.process_time() - used)
        self.wall.append(time.perf_counter() - start)
        return found

    def add(self, found: int, updates: int) -> None:
        """A checksum of so many updates more."""
        self.checksum = (self.checksum + found) % 2**64
        self.out += updates

    def line(self) -> dict[str, Any]:
        """As the other end reads it."""
        return {
            "rows": self.rows, "wall": self.wall, "cpu": self.cpu, "checksum": f"{self.checksum:016x}", "out": self.out,
            "bytes": resident(), "ways": self.ways,
        }  # fmt: skip


def resident() -> int:
    """Resident bytes, what allocators only keep for later given back first."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
