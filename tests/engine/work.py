"""How many updates operators read and write: what kernels are given and return, and the rows that are put together.

Counted for each call of a kernel from Python, by kernel: the entries of every array that it is given and of every array
that it returns. Of an array of two dimensions the longer side counts, as it has an entry an update there; where a kernel
returns a block and how many of its columns are used, those count. `assemble` counts a row once for each column. Kernels that
read batches by address count what they return (`gather`, `tally` and `copies_of`: the room of their block, which is one entry
an update that they look at; `first_live` and `first_enough`: the number of updates read, which they return); those of
`sparse_state` count what they are asked for too.
Counted besides, by name: rows of `take_rows`, rows for which `value_of` computes a window function, and distinct values
that `folded` goes through for an aggregate. What numpy and Arrow do in between is not counted.
Sorting, consolidation and the spine's merges are kept apart, in `apart`: kernels of the modules `APART`, and `FEW_APART`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba.core.registry import CPUDispatcher

import headrace.engine.kernels

APART = frozenset(
    {"sort", "consolidate", "large_batch", "merge", "merge_output", "key_prefilter", "partition", "grouping"}
)
FEW_APART = frozenset({"seal_rows", "settle", "group_rows"})
"""Kernels of other modules that only sort or consolidate."""
_BY_READ = frozenset({"gather", "tally"})
"""Kernels whose block has room for each update that they read."""


_OF_STATE = frozenset({"sparse_state", "sparse_update", "sparse_joins"})
"""Modules whose kernels look a recursion's state up by address."""
_ROWS_LAID_OUT = frozenset({"join_few", "join_results", "keep_rows", "project_rows", "regroup_rows"})
"""Kernels that return rows as bytes: what counts are their times and diffs."""


class Work:
    """Updates that were read and written, by kernel. Single writer: `counted`."""

    def __init__(self) -> None:
        self.by_kernel: Counter[str] = Counter()
        self.apart: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """All but what is kept apart."""
        return self.by_kernel.total()


def _entries(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return max(value.shape, default=0)
    return sum(map(_entries, value)) if isinstance(value, tuple) else 0


def _without_bytes(value: Any) -> Any:
    """`value` without arrays of bytes, however deep."""
    if isinstance(value, tuple):
        return tuple(map(_without_bytes, value))
    return None if isinstance(value, np.ndarray) and value.dtype == np.uint8 else value


def _returned(name: str, found: Any) -> int:
    if name in ("first_live", "first_enough"):
        return int(found[1]) + int(found[2])
    is_block = isinstance(found, tuple) and len(found) > 1 and isinstance(found[0], np.ndarray) and found[0].ndim == 2
    if is_block and name not in _BY_READ and not isinstance(found[1], np.ndarray):
        return min(max(int(found[1]), 0), found[0].shape[1]) + _entries(found[2:])
    return _entries(found)


def _kernel(function: Any, work: Work) -> Callable[..., Any]:
    name, module = function.__name__, function.__module__.rpartition(".")[2]
    counter = work.apart if module in APART or name in FEW_APART else work.by_kernel

    def run(*args: Any) -> Any:
        found = function(*args)
        if module in _OF_STATE:
            # The state and its tables are looked up by address: what is asked for is the first, and what is found is returned.
            counter[name] += _entries(args[:1]) + _entries(found)
        elif name in _ROWS_LAID_OUT:
            counter[name] += _entries(_without_bytes(args)) + _entries(_without_bytes(found))
        elif name == "assemble":
            counter[name] += len(args[1]) * args[2].shape[1]
        else:
            counter[name] += _entries(args) + _returned(name, found)
        return found

    return run


def _rows(name: str, size: Callable[..., int]) -> Callable[[Any, Work], Callable[..., Any]]:
    def wrapped(function: Any, work: Work) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            work.by_kernel[name] += size(*args)
            return function(*args)

        return run

    return wrapped


_OTHERS: dict[str, Callable[[Any, Work], Callable[..., Any]]] = {
    "headrace.engine.batch.gather_rows.take_rows": _rows("take_rows", lambda _, positions: len(positions)),
    "headrace.engine.operators.window_values.value_of": _rows("value_of", lambda _f, rows, _s, _p: rows.num_rows),
    "headrace.engine.operators.python_aggregates._folded": _rows("folded", lambda live, *_: len(live)),
}


@contextmanager
def counted() -> Iterator[Work]:
    """Counts what is done inside of the block, by whatever name a module of the engine knows a kernel."""
    headrace.engine.kernels.warm()
    work = Work()
    wrapped: dict[int, Callable[..., Any]] = {}
    patched: list[tuple[Any, str, Any]] = []
    modules = {k: m for k, m in sys.modules.items() if k.startswith("headrace.engine")}
    for name, module in modules.items():
        for attribute, value in list(vars(module).items()):
            if not callable(value):
                continue
            place = f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', '')}"
            is_kernel = isinstance(value, CPUDispatcher) and bool(value.nopython_signatures)
            if not is_kernel and place not in _OTHERS:
                continue
            if is_kernel and name.startswith("headrace.engine.kernels.") and name != value.__module__:
                continue  # kernels call each other as they were compiled
            if id(value) not in wrapped:
                wrapped[id(value)] = _kernel(value, work) if is_kernel else _OTHERS[place](value, work)
            patched.append((module, attribute, value))
    try:
        for module, attribute, value in patched:
            setattr(module, attribute, wrapped[id(value)])
        yield work
    finally:
        for module, attribute, value in patched:
            setattr(module, attribute, value)
