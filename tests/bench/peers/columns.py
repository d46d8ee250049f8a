"""The data that both sides of a benchmark read: columns of 64-bit integers in files, and checksums of what comes out.

Always: `PREFIX.NAME` holds raw little-endian 64-bit integers, or texts of one width, some 64-bit words; a
checksum depends neither on the order of updates nor on how far they are consolidated. The peer has the same code in Rust.
Called by the benches and by our side of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

UInt64s = npt.NDArray[np.uint64]
Lane = npt.NDArray[Any]

TEXT = 32
"""Bytes of a text."""

_SEED = np.uint64(0x9E3779B97F4A7C15)


def mixed(words: Lane) -> UInt64s:
    """A bijection of 64-bit words that spreads them."""
    x = words.astype(np.uint64) if words.dtype != np.uint64 else words.copy()
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def hashes(words: Sequence[Lane]) -> UInt64s:
    """One hash a row, of its words in their order."""
    found = np.full(len(words[0]), _SEED, np.uint64)
    for lane in words:
        found = mixed(found + lane.view(np.uint64))
    return found


def checksum(words: Sequence[Lane], diffs: Lane) -> int:
    """The sum of diff × hash over all rows, modulo 2^64. `words`: 64-bit lanes of each row, its epoch the last if it counts."""
    return int((hashes(words) * diffs.view(np.uint64)).sum(dtype=np.uint64)) if len(diffs) else 0


def write(prefix: Path, **columns: Lane) -> Path:
    """Write each column to `prefix.NAME`, and remove what a run before left there; returns `prefix`."""
    for old in prefix.parent.glob(prefix.name + ".*"):
        old.unlink()
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for name, lane in columns.items():
        assert lane.dtype.itemsize % 8 == 0, name
        np.ascontiguousarray(lane).tofile(f"{prefix}.{name}")
    return prefix


def read(prefix: str, name: str) -> npt.NDArray[np.int64] | None:
    """A column as int64, or None where there is none."""
    path = Path(f"{prefix}.{name}")
    return np.fromfile(path, "<i8") if path.exists() else None


def texts(count: int, seed: int) -> npt.NDArray[np.bytes_]:
    """So many different texts of 32 hexadecimal digits, no two alike in their second half."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    words = mixed(np.arange(count, dtype=np.uint64) + np.uint64(seed << 40))
    made = np.empty((count, TEXT), np.uint8)
    made[:, : TEXT // 2] = digits[7]
    for k in range(16):
        made[:, TEXT // 2 + k] = digits[((words >> np.uint64(4 * k)) & np.uint64(15)).astype(np.int64)]
    return made.reshape(-1).view(f"S{TEXT}")
