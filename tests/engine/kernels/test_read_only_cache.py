"""Cached kernels are used from a folder that nobody may write to, as in an image with a read-only root."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.engine.kernels.compiler import JIT_OFF

pytestmark = pytest.mark.skipif(JIT_OFF, reason="nothing is cached with the JIT off")

PROGRAM = """
import sys, tempfile
from numba.core import caching

if sys.argv[1] == "read-only":
    def refused(*_, **__):
        raise OSError(30, "Read-only file system")
    tempfile.TemporaryFile = refused
    caching.IndexDataCacheFile._open_for_write = refused

from headrace.engine.kernels import key_prefilter

stats = [f.stats for f in vars(key_prefilter).values() if hasattr(f, "stats")]
assert stats
print(sum(sum(s.cache_hits.values()) for s in stats), sum(sum(s.cache_misses.values()) for s in stats))
"""


def loaded(folder: Path, mode: str) -> tuple[int, int]:
    """Kernels of one module that a new process took from the cache in `folder`, and those it compiled."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "HOME": str(folder / "home")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, mode], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    hits, misses = done.stdout.split()
    return int(hits), int(misses)


def test_a_filled_folder_is_used_where_it_cannot_be_written_to(tmp_path: Path) -> None:
    hits, compiled = loaded(tmp_path, "writable")
    assert hits == 0
    assert compiled > 0
    hits, compiled = loaded(tmp_path, "read-only")
    assert hits > 0
    assert compiled == 0
