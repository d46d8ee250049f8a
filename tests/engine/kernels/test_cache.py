"""The cache of machine code: used where nobody may write to it, from sources in any place, a kernel when it is first called."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.engine import errors, kernels
from headrace.engine.kernels.compiler import JIT_OFF

pytestmark = pytest.mark.skipif(JIT_OFF, reason="nothing is cached with the JIT off")

PROGRAM = """
import sys, tempfile, threading
from numba.core import caching

if sys.argv[1] == "read-only":
    def refused(*_, **__):
        raise OSError(30, "Read-only file system")
    tempfile.TemporaryFile = refused
    caching.IndexDataCacheFile._open_for_write = refused

import numpy as np
from headrace.engine.kernels import key_prefilter

def told():
    stats = key_prefilter.sift.stats
    print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))

told()
table, hashes = np.zeros((0, 16), np.int64), np.zeros(0, np.uint64)
threads = [threading.Thread(target=key_prefilter.sift, args=(table, hashes)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
told()
print(key_prefilter.__file__)
"""


def loaded(folder: Path, mode: str, sources: Path | None = None) -> tuple[list[int], list[int], str]:
    """How often a new process took a kernel from the cache in `folder`, and compiled it: when it has imported it, and when
    four threads have called it; and the file of its source."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "HOME": str(folder / "home")}
    if sources is not None:
        environment["PYTHONPATH"] = str(sources)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, mode], env=environment, capture_output=True, text=True, check=False,
        cwd=sources,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, then, place = done.stdout.splitlines()
    return [int(n) for n in first.split()], [int(n) for n in then.split()], place


def test_a_filled_folder_is_used_from_any_place_and_where_it_cannot_be_written_to(tmp_path: Path) -> None:
    first, then, here = loaded(tmp_path / "cache", "writable")
    assert first == then == [0, 1], "compiled when it was imported"
    first, then, _ = loaded(tmp_path / "cache", "read-only")
    assert (first, then) == ([0, 0], [1, 0]), "loaded when it was called, once"
    package = tmp_path / "elsewhere" / "headrace" / "engine"
    shutil.copytree(Path(kernels.__file__).parent, package / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(errors.__file__, package / "errors.py")
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    first, then, elsewhere = loaded(tmp_path / "cache", "read-only", tmp_path / "elsewhere")
    assert elsewhere != here
    assert (first, then) == ([0, 0], [1, 0])
