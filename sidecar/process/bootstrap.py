"""What must stand before libraries are first imported: numba's cache of machine code, one heap, and what they are to do without.

Imported first by every entry point. What the user has set stays.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder

from headrace.sidecar.devstack.cache import cache_folder

os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder() / "kernels"))
os.environ.setdefault("NUMBA_CPU_NAME", "generic")

_ARENAS = -8
"""`M_ARENA_MAX` of mallopt(3)."""
if "MALLOC_ARENA_MAX" not in os.environ:
    # a heap of its own for each thread keeps what that thread has let go of, in pieces
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_ARENAS, 1)


class _Absent(MetaPathFinder):
    """Finds nothing, and lets nobody else find `package`."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:  # noqa: ARG002
        if fullname == self._package:
            raise ModuleNotFoundError(f"this process does without {fullname}", name=fullname)


def forgo(package: str) -> None:
    """Let this process do without an optional package that libraries import wherever it is installed."""
    sys.meta_path.insert(0, _Absent(package))
