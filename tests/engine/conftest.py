"""Settings of the engine's property tests: no deadline an example, as a first call may load a kernel.

Where kernels run as plain Python or with bounds checks (`make test-kernels`) examples are fewer.
"""

from __future__ import annotations

import numba
from hypothesis import settings

from headrace.engine.kernels.compiler import JIT_OFF

settings.register_profile("engine", deadline=None)
settings.register_profile("checked", deadline=None, max_examples=20)
settings.load_profile("checked" if JIT_OFF or numba.config.BOUNDSCHECK else "engine")
