"""How a kernel is compiled: one explicit signature, cached on disk in a folder named by a digest of its sources.

Always: a cached kernel is used only while its module, every kernel module that it imports, numba itself and the kind of
processor are what they were at compilation, and it is loaded when it is first called. With the JIT off
(NUMBA_DISABLE_JIT=1) every kernel is plain Python and wraps integers as compiled code does; with bounds checks
(NUMBA_BOUNDSCHECK=1) kernels have a cache of their own. Called by the kernel modules alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core import registry
from numba.core.caching import UserProvidedCacheLocator
from numba.core.compiler_lock import global_compiler_lock

from headrace.engine import kernels

# numba fills its settings in at import, which its stubs cannot show.
config: Any = numba.config

Function = Callable[..., Any]
"""What a kernel is to its callers: the signature is checked when it is called, by numba."""

JIT_OFF = bool(config.DISABLE_JIT)
"""True when kernels run as plain Python."""

U64 = types.Array(types.uint64, 1, "A", readonly=True)
I64 = types.Array(types.int64, 1, "A", readonly=True)
U64_OUT = types.Array(types.uint64, 1, "A")
I64_OUT = types.Array(types.int64, 1, "A")
U64_NEW = types.Array(types.uint64, 1, "C")
I64_NEW = types.Array(types.int64, 1, "C")
I64_TABLE = types.Array(types.int64, 2, "C", readonly=True)
"""Read-only inputs may have any stride (a constant lane has stride 0); arrays born in a kernel are contiguous."""


def repeated(kind: Any, count: int) -> Any:
    """The type of a tuple of `count` values of one numba type."""
    return types.UniTuple(kind, count)  # type: ignore[no-untyped-call]


IDS = repeated(U64, 5)
"""The lanes that identify a row inside a batch: hash, check, order, high and low half of the fingerprint."""
FACTS = repeated(I64, 3)
"""The lanes that say what happened to it: time, diff, position of the row in the payload."""

_BASE = config.CACHE_DIR
_PROCESSOR = registry.cpu_target.target_context.codegen().magic_tuple()
"""The kind of processor that is compiled for."""
_COMPILER = f"{numba.__version__} {np.__version__} {sys.version_info[:2]} {_PROCESSOR}"

_CHECKED = bool(config.BOUNDSCHECK)
_RAW = frozenset({"entries", "hashing", "lookup", "order_images"})
"""Modules that read at addresses, which bounds checks do not see: they are compiled as ever."""


class DigestCacheLocator(UserProvidedCacheLocator):
    """The folder of cached kernels that `kernels.cache_folder` names, also where nobody may write to it (an image's root).

    Its name holds the digest of all that they are compiled from, so that neither the sources' place nor their times matter.
    numba's own locators pass over a folder that cannot be written to, and would compile every kernel at every start. Where
    a kernel is missing from it, compiling ends with the OSError of the write: whoever builds an image calls `kernels.warm`.
    """

    def __init__(self, function: Function, file: str) -> None:
        super().__init__(function, file)  # type: ignore[no-untyped-call]
        self._cache_path = config.CACHE_DIR

    def get_source_stamp(self) -> str:
        """The folder's name: the digest."""
        return str(self._cache_path).rpartition("/")[2]

    def ensure_cache_path(self) -> None:
        """Raise OSError where the folder is empty and cannot be written to."""
        if not kernels.filled(self._cache_path):
            super().ensure_cache_path()  # type: ignore[no-untyped-call]


_LOCATORS = f"{__name__}.{DigestCacheLocator.__name__}"
_waiting: list[Callable[[], None]] = []


@contextmanager
def _compiling(module: str) -> Iterator[str]:
    """Have numba compile as `module` wants it meanwhile, and keep what it compiles in the folder that this gives."""
    before = config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES, config.BOUNDSCHECK
    folder = kernels.cache_folder(module, _compiler(module), _BASE)
    config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = folder, _LOCATORS
    if module in _RAW:
        config.BOUNDSCHECK = None
    try:
        yield folder
    finally:
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES, config.BOUNDSCHECK = before


def kernel(signature: Any) -> Callable[[Function], Function]:
    """Compile a function for one signature (a numba signature); one that is in the cache is loaded when it is first called.

    Loading takes some 20 ms of processor time and keeps LLVM's memory, and no set of views uses all kernels.
    """

    def decorate(function: Function) -> Function:
        if JIT_OFF:
            return _wrapping(function)
        module = function.__module__.rpartition(".")[2]
        with _compiling(module) as folder:
            made: Any = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
        load = _loading(made, signature, module)
        if kernels.holds(folder, f"{module}.{function.__qualname__}-{function.__code__.co_firstlineno}."):
            _waiting.append(load)
        else:
            load()
        compiled: Function = made
        return compiled

    return decorate


def _loading(made: Any, signature: Any, module: str) -> Callable[[], None]:
    """What compiles or loads a kernel, once; its first call does, and whoever compiles a caller of it."""

    def load() -> None:
        with global_compiler_lock:
            if made._can_compile:
                with _compiling(module):
                    made.compile(signature)
                made.disable_compile()

    def callable_for(*_: Any) -> Any:
        load()
        return made

    def template(args: Any, kws: Any) -> Any:
        load()
        return type(made).get_call_template(made, args, kws)

    made._compile_for_args = callable_for
    made.get_call_template = template
    return load


def load_all() -> None:
    """Load the cached kernels of the modules imported so far that were not called yet."""
    while _waiting:
        _waiting.pop()()


def routine(signature: Any) -> Callable[[Function], int]:
    """Compile a function to be called by its address, which this gives (0 with the JIT off): none of its callers holds it."""

    def decorate(function: Function) -> int:
        if JIT_OFF:
            return 0
        module = function.__module__.rpartition(".")[2]
        with _compiling(module):
            compiled: Any = numba.cfunc(signature, cache=True, error_model="numpy")(function)
            return int(compiled.address)

    return decorate


def helper(function: Function) -> Function:
    """A small function that only kernels call: compiled into each of its callers, for the types that they give it."""
    if JIT_OFF:
        return function
    compiled: Function = numba.njit(inline="never", error_model="numpy")(function)
    return compiled


def _wrapping(function: Function) -> Function:
    @wraps(function)
    def run(*args: Any) -> Any:
        with np.errstate(over="ignore"):
            return function(*args)

    return run


def digest(module: str) -> str:
    """Names what the kernels of `module` (a file of this folder) are compiled from and with, as 16 hex digits."""
    return kernels.digest(module, _compiler(module))


def _compiler(module: str) -> str:
    return f"{_COMPILER} bounds checked" if _CHECKED and module not in _RAW else _COMPILER
