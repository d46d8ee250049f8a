"""Array functions and operators, over the arrays' text images.

Always: elements are compared by Postgres's equality of their type; an array whose shape a function does not take fails
its row. What works on whole arrays goes through `fallback`. Registered in the catalogue at import.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.engine.operators.expressions.array import array_text
from headrace.engine.operators.expressions.array.array_text import spell
from headrace.engine.operators.expressions.core import coercion, fallback, text_io, text_output
from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core.coercion import compared_by_image
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import (
    Kernel,
    Maker,
    Outcome,
    Pseudo,
    Values,
    entry,
)
from headrace.engine.operators.expressions.core.order_keys import key_of
from headrace.engine.schema import DataType, Kind

STRING = pa.large_string()
Params = tuple[DataType, ...]
ARRAY, ELEMENT = Pseudo.ARRAY, Pseudo.ELEMENT
ANY_ARRAY, ANY = Pseudo.COMPATIBLE_ARRAY, Pseudo.COMPATIBLE
NOT_FLAT = "argument must be empty or one-dimensional array"
NOT_SEARCHED = "searching for elements in multidimensional arrays is not supported"
MOST_DIMENSIONS = 6
T, N, B = Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN


def element_of(datatype: DataType) -> DataType:
    """The element type of an array's type."""
    assert datatype.element is not None
    return datatype.element


def first_array(params: Params) -> DataType:
    """The type of the first array among the parameters."""
    return next(p for p in params if p.element is not None)


def on_images(function: Callable[..., Any], *numbers: int, strict: bool = True, image: bool = False) -> Maker:
    """A function of the arguments' images (those at `numbers` stay numbers) that gives a value of the result's lane, or
    its `image`.
    """

    def make(params: Params, result: DataType) -> Kernel:
        lane = result.arrow

        def kernel(*values: Values) -> Outcome:
            pairs = zip(values, params, strict=True)
            found = [v if i in numbers else text_output.image_of(v, p) for i, (v, p) in enumerate(pairs)]
            out, errors = fallback.map_values(function, STRING if image else lane, found, strict=strict)
            if not image:
                return out, errors
            read, unread = text_io.read_text(out, result)
            return read, col.first_error(errors, unread)

        return kernel

    return make


def with_equality(function: Callable[..., Any], *numbers: int, strict: bool = True) -> Maker:
    """As `on_images`; the function is given first what tells elements apart."""

    def make(params: Params, result: DataType) -> Kernel:
        element = element_of(first_array(params))
        key = key_of(element)
        if key is None and element.kind is Kind.OTHER and compared_by_image(element):
            key = str
        if key is None:
            message = f"could not identify an equality operator for type {element}"

            def failing(*_args: Any) -> Any:
                raise RowError(message)

            return on_images(failing, *numbers, strict=strict)(params, result)

        def keyed(image: str | None) -> Any:
            return None if image is None else key(image)

        return on_images(lambda *args: function(keyed, *args), *numbers, strict=strict)(params, result)

    return make


def _made(params: Params, _result: DataType) -> Kernel:
    def kernel(*values: Values) -> Outcome:
        rows = col.length(*values)
        found = [
            text_output.image_of(col.as_column(v, rows), p).to_pylist() for v, p in zip(values, params, strict=True)
        ]
        return pa.array([spell(row) for row in zip(*found, strict=True)], STRING), None

    return kernel


def _length(image: str, dimension: int) -> int | None:
    shape = array_text.read(image)[0]
    return shape[dimension - 1] if 1 <= dimension <= len(shape) else None


def _upper(image: str, dimension: int) -> int | None:
    size, low = _length(image, dimension), _lower(image, dimension)
    return None if size is None or low is None else low + size - 1


def _lower(image: str, dimension: int) -> int | None:
    shape = array_text.read(image)[0]
    return array_text.lows(image, len(shape))[dimension - 1] if 1 <= dimension <= len(shape) else None


def _dims(image: str) -> str | None:
    shape = array_text.read(image)[0]
    pairs = zip(array_text.lows(image, len(shape)), shape, strict=True)
    return "".join(f"[{low}:{low + size - 1}]" for low, size in pairs) or None


def _array(image: str | None) -> Array:
    shape, found = array_text.read(image or "{}")
    return Array(shape, array_text.lows(image or "{}", len(shape)), found)


class Array(NamedTuple):
    """An array taken apart: the size and the lower bound of each dimension, and the elements."""

    shape: tuple[int, ...]
    lower: tuple[int, ...]
    found: array_text.Elements

    def image(self) -> str:
        """Its text."""
        return array_text.shaped(self.found, self.shape, self.lower)

    def flat(self, fault: str) -> Array:
        """Itself, if it has one dimension or none. Raises RowError."""
        if len(self.shape) > 1:
            raise RowError(fault)
        return self

    def of(self, found: array_text.Elements) -> str:
        """The text of an array of one dimension that begins where this one does."""
        return array_text.shaped(found, (len(found),), self.lower or (1,))


def _appended(image: str | None, element: str | None) -> str:
    array = _array(image).flat(NOT_FLAT)
    return array.of([*array.found, element])


def _prepended(element: str | None, image: str | None) -> str:
    array = _array(image).flat(NOT_FLAT)
    return array.of([element, *array.found])


def _joined(one: str | None, other: str | None) -> str | None:
    if one is None or other is None:
        return other if one is None else one
    a, b = _array(one), _array(other)
    if not a.shape or not b.shape:
        return other if not a.shape else one
    depth = len(a.shape) - len(b.shape)
    # An array of one dimension less is one element of the other's first dimension.
    inner = [
        (x.shape[1:], x.lower[1:]) if whole else (x.shape, x.lower) for x, whole in ((a, depth >= 0), (b, depth <= 0))
    ]
    if abs(depth) > 1 or inner[0] != inner[1]:
        raise RowError("cannot concatenate incompatible arrays")
    wide = a if depth >= 0 else b
    size = (a.shape[0] if depth >= 0 else 1) + (b.shape[0] if depth <= 0 else 1)
    return array_text.shaped([*a.found, *b.found], (size, *wide.shape[1:]), wide.lower)


def _of_arrays(params: Params, _result: DataType) -> Kernel:
    """Arrays as the elements of one of a dimension more."""

    def one(*found: str | None) -> str:
        arrays = [_array(image) for image in found]
        if len({(a.shape, a.lower) for a in arrays}) > 1:
            raise RowError("multidimensional arrays must have array expressions with matching dimensions")
        (shape, lower, _), elements = arrays[0], [e for a in arrays for e in a.found]
        if len(shape) >= MOST_DIMENSIONS:
            most = f"exceeds the maximum allowed ({MOST_DIMENSIONS})"
            raise RowError(f"number of array dimensions ({len(shape) + 1}) {most}")
        return array_text.shaped(elements, (len(arrays), *shape), (1, *lower))

    return lambda *values: fallback.map_values(
        one, STRING, [text_output.image_of(v, p) for v, p in zip(values, params, strict=True)], strict=False
    )


def _to_string(image: str | None, separator: str | None, missing: str | None = None) -> str | None:
    if image is None or separator is None:
        return None
    texts = (missing if e is None else e for e in array_text.flat(image))
    return separator.join(t for t in texts if t is not None)


def split_text(text: str | None, separator: str | None, missing: str | None = None) -> array_text.Elements | None:
    """The parts of a text: its characters where the separator is NULL; those equal to `missing` are NULL."""
    if text is None:
        return None
    parts = list(text) if separator is None else text.split(separator) if separator else [text]
    return [None if p == missing else p for p in parts] if text else []


def _from_string(text: str | None, separator: str | None, missing: str | None = None) -> str | None:
    parts = split_text(text, separator, missing)
    return None if parts is None else spell(parts)


def _position(key: Any, image: str | None, element: str | None, start: int | None = 1) -> int | None:
    if image is None:
        return None
    array = _array(image).flat(NOT_SEARCHED)
    if not array.found or (element is None and None not in array.found):
        return None
    if start is None:
        raise RowError("initial position must not be null")
    wanted = key(element)
    first = array.lower[0] if array.lower else 1
    return next((i for i, e in enumerate(array.found, first) if i >= start and key(e) == wanted), None)


def _positions(key: Any, image: str | None, element: str | None) -> str | None:
    if image is None:
        return None
    array = _array(image).flat(NOT_SEARCHED)
    first = array.lower[0] if array.lower else 1
    return spell([str(i) for i, e in enumerate(array.found, first) if key(e) == key(element)])


def _removed(key: Any, image: str | None, element: str | None) -> str | None:
    if image is None:
        return None
    array = _array(image).flat("removing elements from multidimensional arrays is not supported")
    return array.of([e for e in array.found if key(e) != key(element)])


def _replaced(key: Any, image: str | None, old: str | None, new: str | None) -> str | None:
    if image is None:
        return None
    array = _array(image)
    return array._replace(found=[new if key(e) == key(old) else e for e in array.found]).image()


def _contains(key: Any, one: str, other: str) -> bool:
    held = {key(e) for e in array_text.flat(one) if e is not None}
    return all(e is not None and key(e) in held for e in array_text.flat(other))


def _overlaps(key: Any, one: str, other: str) -> bool:
    held = {key(e) for e in array_text.flat(one) if e is not None}
    return any(e is not None and key(e) in held for e in array_text.flat(other))


def _trimmed(image: str, count: int) -> str:
    array = _array(image)
    size = array.shape[0] if array.shape else 0
    if not 0 <= count <= size:
        raise RowError(f"number of elements to trim must be between 0 and {size}")
    return _cut(array, 0, size - count)


def _cut(array: Array, first: int, last: int) -> str:
    """Of the first dimension what lies from `first` to before `last`; each dimension begins at 1 then."""
    if first >= last:
        return "{}"
    step = len(array.found) // array.shape[0]
    return array_text.spell(array.found[first * step : last * step], (last - first, *array.shape[1:]))


def _subscript(image: str, *places: int) -> str | None:
    array = _array(image)
    if len(places) != len(array.shape):
        return None
    at = 0
    for place, low, size in zip(places, array.lower, array.shape, strict=True):
        if not low <= place < low + size:
            return None
        at = at * size + place - low
    return array.found[at]


def _slice(image: str, *bounds: int) -> str:
    """What lies within the first and last place given for each dimension, all of those for which none are given."""
    array = _array(image)
    depth = len(array.shape)
    if not depth or len(bounds) > 2 * depth:
        return "{}"
    spans = [range(size) for size in array.shape]
    for d, (first, last) in enumerate(zip(bounds[::2], bounds[1::2], strict=True)):
        low = array.lower[d]
        spans[d] = range(max(first - low, 0), min(last - low + 1, array.shape[d]))
    if not all(spans):
        return "{}"
    places = [0]
    for size, span in zip(array.shape, spans, strict=True):
        places = [place * size + i for place in places for i in span]
    return array_text.spell([array.found[p] for p in places], tuple(len(s) for s in spans))


def _bucket(params: Params, result: DataType) -> Kernel:
    """width_bucket among thresholds: how many of them are not above the value."""
    element = element_of(params[1])
    numeric = element.kind in (*coercion.INTEGERS, *coercion.FLOATS, Kind.NUMERIC)
    key: Callable[[str], Any] = fallback.order if numeric else text_io.reader(element)

    def place(value: str, thresholds: str) -> int:
        shape, found = array_text.read(thresholds)
        if len(shape) > 1:
            raise RowError("thresholds must be one-dimensional array")
        if None in found:
            raise RowError("thresholds array must not contain NULLs")
        return bisect.bisect_right([key(str(t)) for t in found], key(value))

    return on_images(place)(params, result)


def _subscripts(params: Params, result: DataType) -> Kernel:
    return on_images(_subscript, *range(1, len(params)), image=True)(params, result)


def _slices(params: Params, result: DataType) -> Kernel:
    return on_images(_slice, *range(1, len(params)))(params, result)


def _register() -> None:
    any_of: dict[str, Any] = {"strict": False, "fallback": True}
    entry("$array", (None,), Kind.OTHER, _made, strict=False, variadic=True)
    entry("$arrays", (None,), Kind.OTHER, _of_arrays, strict=False, variadic=True)
    for count in range(1, MOST_DIMENSIONS + 1):
        entry("$subscript", (ARRAY, *[N] * count), lambda p: element_of(p[0]), _subscripts, fallback=True)
        entry("$slice", (ARRAY, *[N] * 2 * count), first_array, _slices, fallback=True)
    entry("array_length", (ARRAY, N), N, on_images(_length, 1), fallback=True)
    entry("array_upper", (ARRAY, N), N, on_images(_upper, 1), fallback=True)
    entry("array_lower", (ARRAY, N), N, on_images(_lower, 1), fallback=True)
    entry("array_ndims", (ARRAY,), N, on_images(lambda a: len(array_text.read(a)[0]) or None), fallback=True)
    entry("array_dims", (ARRAY,), T, on_images(_dims), fallback=True)
    entry("cardinality", (ARRAY,), N, on_images(lambda a: len(array_text.flat(a))), fallback=True)
    for name in ("array_append", "||"):
        entry(name, (ANY_ARRAY, ANY), first_array, on_images(_appended, strict=False), **any_of)
    for name in ("array_prepend", "||"):
        entry(name, (ANY, ANY_ARRAY), first_array, on_images(_prepended, strict=False), **any_of)
    for name in ("array_cat", "||"):
        entry(name, (ANY_ARRAY, ANY_ARRAY), first_array, on_images(_joined, strict=False), **any_of)
    entry("array_to_string", (ARRAY, T), T, on_images(_to_string), fallback=True)
    entry("array_to_string", (ARRAY, T, T), T, on_images(_to_string, strict=False), **any_of)
    text_array = DataType(Kind.OTHER, name="text[]")
    entry("string_to_array", (T, T), lambda _: text_array, on_images(_from_string, strict=False), **any_of)
    entry("string_to_array", (T, T, T), lambda _: text_array, on_images(_from_string, strict=False), **any_of)
    numbers = DataType(Kind.OTHER, name="integer[]")
    entry("array_position", (ANY_ARRAY, ANY), N, with_equality(_position, strict=False), **any_of)
    entry("array_position", (ANY_ARRAY, ANY, N), N, with_equality(_position, 2, strict=False), **any_of)
    entry("array_positions", (ANY_ARRAY, ANY), lambda _: numbers, with_equality(_positions, strict=False), **any_of)
    entry("array_remove", (ANY_ARRAY, ANY), first_array, with_equality(_removed, strict=False), **any_of)
    entry("array_replace", (ANY_ARRAY, ANY, ANY), first_array, with_equality(_replaced, strict=False), **any_of)
    entry("@>", (ARRAY, ARRAY), B, with_equality(_contains), fallback=True)
    entry("<@", (ARRAY, ARRAY), B, with_equality(lambda key, a, b: _contains(key, b, a)), fallback=True)
    entry("&&", (ARRAY, ARRAY), B, with_equality(_overlaps), fallback=True)
    entry("width_bucket", (ANY, ANY_ARRAY), N, _bucket, fallback=True)
    entry("trim_array", (ARRAY, N), first_array, on_images(_trimmed, 1), fallback=True)


_register()
