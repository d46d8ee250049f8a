"""Arrays filled, sorted and reversed; and what lies between two labels of an enum.

Always: over the arrays' text images; of several dimensions the first is what is sorted and turned. Registered in the
catalogue at import.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from headrace.engine.operators.expressions.array import array_text
from headrace.engine.operators.expressions.array.arrays import (
    MOST_DIMENSIONS,
    Array,
    element_of,
    first_array,
    on_images,
)
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Pseudo, entry
from headrace.engine.operators.expressions.core.order_keys import key_of
from headrace.engine.operators.expressions.core.polymorphic import bare
from headrace.engine.schema import DataType, Kind, array_of

Params = tuple[DataType, ...]
ARRAY = Pseudo.ARRAY
INTEGERS = DataType(Kind.OTHER, name="integer[]")
MOST_ELEMENTS = 134_217_727
SUBSCRIPTS = "wrong number of array subscripts"


def _sizes(image: str | None) -> list[int]:
    if image is None:
        raise RowError("dimension array or low bound array cannot be null")
    shape, found = array_text.read(image)
    if len(shape) > 1:
        raise RowError(SUBSCRIPTS)
    if None in found:
        raise RowError("dimension values cannot be null")
    return [int(str(size)) for size in found]


def _filled(element: str | None, shape: str | None, lower: str | None = "{}") -> str:
    if shape is None or lower is None:
        _sizes(None)
    sizes = _sizes(shape)
    if len(sizes) > MOST_DIMENSIONS:
        raise RowError(f"number of array dimensions ({len(sizes)}) exceeds the maximum allowed ({MOST_DIMENSIONS})")
    lows = [1] * len(sizes) if lower == "{}" and sizes else _sizes(lower)
    if len(lows) != len(sizes):
        raise RowError(SUBSCRIPTS)
    if any(size < 0 for size in sizes) or prod(sizes) > MOST_ELEMENTS:
        raise RowError(f"array size exceeds the maximum allowed ({MOST_ELEMENTS})")
    for low, size in zip(lows, sizes, strict=True):
        if low + size >= 1 << 31:
            raise RowError(f"array lower bound is too large: {low}")
    return array_text.shaped([element] * prod(sizes), sizes, lows) if sizes else "{}"


def _filled_from(element: str | None, shape: str | None, lower: str | None) -> str:
    if lower is not None and not array_text.flat(lower) and shape is not None and _sizes(shape):
        raise RowError(SUBSCRIPTS)
    return _filled(element, shape, lower)


def _parts(array: Array) -> list[array_text.Elements]:
    """What stands at each place of the first dimension."""
    size = len(array.found) // array.shape[0] if array.shape else 1
    return [array.found[i : i + size] for i in range(0, len(array.found), size)]


def _joined(array: Array, parts: list[array_text.Elements]) -> str:
    return array._replace(found=[e for part in parts for e in part]).image()


def _taken(image: str) -> Array:
    shape, found = array_text.read(image)
    return Array(shape, array_text.lows(image, len(shape)), found)


def _reversed(image: str) -> str:
    array = _taken(image)
    return _joined(array, _parts(array)[::-1])


def _sorting(params: Params, result: DataType) -> Kernel:
    element = element_of(params[0])
    key = key_of(element)

    def found(image: str, descending: bool = False, nulls_first: bool | None = None) -> str:
        array = _taken(image)
        if not array.shape or array.shape[0] < 2:
            return image
        if key is None:
            raise RowError(f"could not identify a comparison function for type {element}")
        missing = [part for part in _parts(array) if len(array.shape) == 1 and part == [None]]
        there = [part for part in _parts(array) if len(array.shape) > 1 or part != [None]]
        there.sort(key=partial(_key, key), reverse=descending)
        first = descending if nulls_first is None else nulls_first
        return _joined(array, [*missing, *there] if first else [*there, *missing])

    return on_images(found, 1, 2)(params, result)


def _key(key: Callable[[str], Any], part: array_text.Elements) -> list[tuple[bool, Any]]:
    """What a place sorts by: NULL is the greatest."""
    return [(e is None, "" if e is None else key(e)) for e in part]


def _stacked(image: str | None) -> str:
    """An array that may be one of several in a larger one."""
    if image is None:
        raise RowError("cannot accumulate null arrays")
    if not array_text.read(image)[0]:
        raise RowError("cannot accumulate empty arrays")
    return image


def _labels(params: Params, result: DataType) -> Kernel:
    """The labels of an enum from one to another, NULL being no bound."""
    labels = list(next(p.labels for p in params if p.labels) or ())

    def found(first: str | None, last: str | None) -> str:
        low = 0 if first is None else labels.index(first)
        high = len(labels) if last is None else labels.index(last) + 1
        return array_text.spell(labels[low:high])

    return on_images(found, strict=False)(params, result)


def _filled_type(params: Params) -> DataType:
    return array_of(bare(params[0]))


def _register() -> None:
    entry("array_fill", (None, INTEGERS), _filled_type, on_images(_filled, strict=False), strict=False, fallback=True)
    fill = on_images(_filled_from, strict=False)
    entry("array_fill", (None, INTEGERS, INTEGERS), _filled_type, fill, strict=False, fallback=True)
    entry("$stacked", (ARRAY,), first_array, on_images(_stacked, strict=False), strict=False, fallback=True)
    entry("array_reverse", (ARRAY,), first_array, on_images(_reversed), fallback=True)
    for flags in range(3):
        entry("array_sort", (ARRAY, *[Kind.BOOLEAN] * flags), first_array, _sorting, fallback=True)
    entry("$enum range", (None, None), lambda params: array_of(params[0]), _labels, strict=False, fallback=True)


_register()
