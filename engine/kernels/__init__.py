"""The loops over flat lanes, compiled by Numba: the only package that imports it. `warm` compiles or loads them all.

Always: what is compiled is cached in a folder named by a digest of its sources. This module alone of the engine sees
files, and only the program's own: the kernels' sources and their cache.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import re
import tempfile
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent
_IMPORTS = re.compile(r"^(?:from engine\.kernels\.(\w+) import|from engine\.kernels import (.+))", re.MULTILINE)


def warm() -> tuple[str, ...]:
    """Compile every kernel, or load it from the cache, so that nothing is compiled later; the modules, by name.

    Called by hosts before they report ready, and by the build to fill the cache. The cache's folder is numba's
    (NUMBA_CACHE_DIR), or else beside the sources.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    for name in names:
        importlib.import_module(f"{__name__}.{name}")
    return tuple(names)


@cache
def digest(module: str, compiler: str) -> str:
    """Names what the kernels of `module` (a file of this folder) are compiled from, as 16 hex digits.

    `compiler`: with what they are compiled, versions and settings.
    """
    found: set[str] = set()
    todo = [module, "compiler"]
    while todo:
        name = todo.pop()
        path = _FOLDER / f"{name}.py"
        if name in found or not path.exists():
            continue
        found.add(name)
        for one, many in _IMPORTS.findall(path.read_text()):
            todo += [one] if one else re.findall(r"\w+", many)
    text = b"".join((_FOLDER / f"{name}.py").read_bytes() for name in sorted(found))
    return hashlib.sha256(compiler.encode() + text).hexdigest()[:16]


@cache
def cache_folder(module: str, compiler: str, base: str) -> str:
    """The folder of the machine code of `module`, made where it is missing: in `base`, or else where one can be made."""
    bases = [Path(base)] if base else [_FOLDER / "__pycache__", Path(tempfile.gettempdir()) / "headrace-kernels"]
    name = f"{module}-{digest(module, compiler)}"
    for place in bases[:-1]:
        folder = place / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ".writable").touch()
        except OSError:
            continue
        return str(folder)
    folder = bases[-1] / name
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder)
