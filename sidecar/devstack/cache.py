"""Where everything fetched or generated once is kept: jars, class archives, the kernels' machine code.

One folder a user, shared by all clones: `HEADRACE_CACHE`, else `headrace` below the XDG cache folder. Whatever lies in
it can be deleted at any time. Called by the jars, the JVMs and the Makefile.
"""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The cache folder, made if it is not there."""
    named = os.environ.get("HEADRACE_CACHE")
    if named:
        folder = Path(named).expanduser()
    else:
        base = os.environ.get("XDG_CACHE_HOME")
        folder = (Path(base) if base else Path.home() / ".cache") / "headrace"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()
