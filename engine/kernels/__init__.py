"""The loops over flat lanes, compiled by Numba: the only package that imports it. `warm` compiles or loads them all.

Always: what is compiled is cached in a folder named by a digest of its sources. This module alone of the engine sees
files, and only the program's own: the kernels' sources and their cache.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import pkgutil
import tempfile
from functools import cache
from pathlib import Path

from headrace.engine.errors import InvariantBroken

_FOLDER = Path(__file__).parent


def warm() -> tuple[str, ...]:
    """Compile every kernel, or load it from the cache, so that nothing is compiled or loaded later; the modules, by name.

    Called by the build to fill the cache, and by whoever measures. The cache's folder is numba's (NUMBA_CACHE_DIR), or else
    beside the sources. A program that only imports the kernels loads each cached one when it is first called.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    for name in names:
        importlib.import_module(f"{__name__}.{name}")
    importlib.import_module(f"{__name__}.compiler").load_all()
    return tuple(names)


@cache
def imported(module: str, folder: Path = _FOLDER) -> frozenset[str]:
    """The files of this folder that one of them imports, by its syntax tree: in whatever way the import is written.

    Raises InvariantBroken where that names a file that is not there.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse((folder / f"{module}.py").read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(filter(None, (__name__ if node.level else "", node.module)))
            names = [f"{base}.{alias.name}" if base == __name__ else base for alias in node.names]
        else:
            continue
        found |= {n.removeprefix(f"{__name__}.").partition(".")[0] for n in names if n.startswith(f"{__name__}.")}
    for name in found:
        if not (folder / f"{name}.py").exists():
            raise InvariantBroken("a kernel imports what is no file of its folder", module=module, imports=name)
    return frozenset(found)


@cache
def digest(module: str, compiler: str, folder: Path = _FOLDER) -> str:
    """Names what the kernels of `module` (a file of `folder`) are compiled from, as 16 hex digits.

    `compiler`: with what they are compiled, versions and settings. Raises InvariantBroken for a module that does not import
    the compiler: then its imports were not understood, and machine code would outlive its sources.
    """
    if "compiler" not in imported(module, folder):
        raise InvariantBroken("a module of kernels does not import their compiler", module=module)
    found: set[str] = set()
    todo = {module}
    while todo:
        found |= todo
        todo = {name for one in todo for name in imported(one, folder)} - found
    text = b"".join((folder / f"{name}.py").read_bytes() for name in sorted(found))
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


@cache
def _cached(folder: str) -> tuple[str, ...]:
    return tuple(path.name for path in Path(folder).glob("*.nbc"))


def holds(folder: str, name: str) -> bool:
    """Whether the folder had, when this was first asked of it, machine code of the kernel whose files' names begin so."""
    return any(one.startswith(name) for one in _cached(folder))


def filled(folder: str) -> bool:
    """Whether the folder is there and has anything in it."""
    place = Path(folder)
    return place.is_dir() and next(place.iterdir(), None) is not None
