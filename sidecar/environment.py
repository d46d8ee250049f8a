"""What must stand in the environment before numba is first imported: the cache of machine code, for the generic CPU.

Imported first by every entry point. What the user has set stays.
"""

from __future__ import annotations

import os

from sidecar.devstack.cache import cache_folder

os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder() / "kernels"))
os.environ.setdefault("NUMBA_CPU_NAME", "generic")
