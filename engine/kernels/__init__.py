"""The loops over flat lanes, compiled by Numba: the only package that imports it. `warm` compiles or loads them all."""

from __future__ import annotations

import importlib
import pkgutil


def warm() -> tuple[str, ...]:
    """Compile every kernel, or load it from the cache, so that nothing is compiled later; the modules, by name.

    Called by hosts before they report ready, and by the build to fill the cache. The cache's folder is numba's
    (NUMBA_CACHE_DIR), or else beside the sources.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    for name in names:
        importlib.import_module(f"{__name__}.{name}")
    return tuple(names)
