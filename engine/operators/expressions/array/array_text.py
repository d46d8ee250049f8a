"""Arrays as their text image: read to the images of their elements and spelled as Postgres spells them.

Always: elements are text images, None for NULL; an array of several dimensions, or one that does not begin at 1, is read
where its shape does not matter and fails its row elsewhere. Called by the array functions, the casts and the aggregates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import Int64s
from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Values

Elements = list[str | None]

SHAPED = "arrays of several dimensions, or that do not begin at 1, are not supported here"
_BLANK = " \t\n\r\v\f"
_QUOTED = re.compile(r'[{}",\\ \t\n\r\v\f]')
_TOKEN = re.compile(r'[ \t\n\r\v\f]*(?:([{},])|"((?:[^"\\]|\\.)*)"|((?:[^{},"\\]|\\.)+))[ \t\n\r\v\f]*', re.DOTALL)


def spell(elements: Sequence[str | None], shape: Sequence[int] = ()) -> str:
    """The image of an array, of one dimension if `shape` does not say more.

    >>> spell(["a", None, "null", "b c"]), spell(["1", "2", "3", "4"], (2, 2))
    ('{a,NULL,"null","b c"}', '{{1,2},{3,4}}')
    """
    if len(shape) > 1:
        size = len(elements) // shape[0]
        parts = (spell(elements[i : i + size], shape[1:]) for i in range(0, len(elements), size))
        return "{" + ",".join(parts) + "}"
    return "{" + ",".join(_element(e) for e in elements) + "}"


def _element(image: str | None) -> str:
    if image is None:
        return "NULL"
    if image and not _QUOTED.search(image) and image.upper() != "NULL":
        return image
    return '"' + image.replace("\\", "\\\\").replace('"', '\\"') + '"'


def elements(image: str) -> Elements:
    """The elements of an array of one dimension. Raises RowError for another shape and for what is no array.

    >>> elements('{1,NULL,"a b"}')
    ['1', None, 'a b']
    """
    shape, found = read(image)
    if len(shape) > 1 or bounds(image):
        raise RowError(SHAPED)
    return found


def flat(image: str) -> Elements:
    """The elements in their order, whatever the array's shape is."""
    return read(image)[1]


def bounds(image: str) -> str:
    """The bounds that are written before an array, as Postgres shows them: none where all begin at 1."""
    body = image.strip(_BLANK)
    if not body.startswith("["):
        return ""
    found = re.findall(r"\[\s*([+-]?\d+)\s*(?::\s*([+-]?\d+)\s*)?\]", body.partition("=")[0])
    pairs = [(int(a), int(b)) if b else (1, int(a)) for a, b in found]
    return "".join(f"[{a}:{b}]" for a, b in pairs) + "=" if any(a != 1 for a, _ in pairs) else ""


def lows(image: str, dimensions: int) -> tuple[int, ...]:
    """The lower bound of each dimension."""
    written = bounds(image)
    if not written:
        return (1,) * dimensions
    return tuple(int(part.partition(":")[0]) for part in written.strip("[]=").split("]["))


def shaped(elements: Sequence[str | None], shape: Sequence[int], lower: Sequence[int]) -> str:
    """The image of an array whose dimensions begin at `lower`.

    >>> shaped(["1", "2"], (2,), (0,)), shaped(["1", "2"], (2, 1), (1, 1))
    ('[0:1]={1,2}', '{{1},{2}}')
    """
    if not elements:
        return "{}"
    ends = "".join(f"[{low}:{low + size - 1}]" for low, size in zip(lower, shape, strict=True))
    return (f"{ends}=" if any(low != 1 for low in lower) else "") + spell(elements, shape)


def read(image: str) -> tuple[tuple[int, ...], Elements]:
    """(size of each dimension, elements). Raises RowError."""
    body = image.strip(_BLANK)
    if not body.startswith("["):
        return _read(image, body)
    sizes, at = _sizes(body, image)
    found = _read(image, body[at:].strip(_BLANK))
    if found[0] != sizes:
        raise RowError(f'malformed array literal: "{image}"')
    return found


_BOUND = re.compile(r"\[([+-]?\d+)(?::([+-]?\d+))?\][ \t\n\r\v\f]*(=?)", re.ASCII)
_MOST_BOUND = 2**31 - 1
_MOST_DIMENSIONS = 6


def _sizes(body: str, image: str) -> tuple[tuple[int, ...], int]:
    """(the size of each dimension whose bounds stand before an array, where the array begins). Raises RowError."""
    found: list[int] = []
    at, ends = 0, False
    while not ends:
        match = _BOUND.match(body, at)
        if len(found) == _MOST_DIMENSIONS and body[at : at + 1] == "[":
            raise RowError(f"number of array dimensions exceeds the maximum allowed ({_MOST_DIMENSIONS})")
        if match is None:
            raise RowError(f'malformed array literal: "{image}"')
        low, high = (int(match[1]), int(match[2])) if match[2] else (1, int(match[1]))
        if min(low, high) < -_MOST_BOUND - 1 or max(low, high) > _MOST_BOUND:
            raise RowError("array bound is out of integer range")
        if high < low:
            raise RowError("upper bound cannot be less than lower bound")
        if high == _MOST_BOUND:
            raise RowError(f"array upper bound is too large: {high}")
        found.append(high - low + 1)
        at, ends = match.end(), bool(match[3])
    return tuple(found), at


def _read(image: str, body: str) -> tuple[tuple[int, ...], Elements]:
    if not re.search(r'[\\"]', body) and body[1:-1].isascii() and body.count("{") == 1 and body.endswith("}"):
        plain = [e.strip(_BLANK) for e in body[1:-1].split(",")]
        if body.startswith("{") and "}" not in body[:-1] and (all(plain) or plain == [""]):
            found: Elements = [None if e.upper() == "NULL" else e for e in plain if e]
            return ((len(found),) if found else ()), found
    return _tokens(image, body)


def _tokens(image: str, body: str) -> tuple[tuple[int, ...], Elements]:
    """As `read`, token by token."""
    fault = RowError(f'malformed array literal: "{image}"')
    found: Elements = []
    sizes: dict[int, int] = {}
    counts: list[int] = []
    wanted, closed, at = "open", False, 0
    leaf = 0
    while at < len(body):
        match = _TOKEN.match(body, at)
        if match is None or closed:
            raise fault
        at = match.end()
        sign, quoted, bare = match[1], match[2], match[3]
        if sign == "{":
            if wanted not in ("open", "item") or (leaf and len(counts) >= leaf):
                raise fault
            counts.append(0)
            wanted = "item"
        elif sign == "}":
            if wanted not in ("comma", "item") or (wanted == "item" and counts[-1]):
                raise fault
            depth, count = len(counts), counts.pop()
            if sizes.setdefault(depth, count) != count:
                raise fault
            closed = not counts
            if counts:
                counts[-1] += 1
            wanted = "comma"
        elif sign == ",":
            if wanted != "comma":
                raise fault
            wanted = "item"
        else:
            if wanted != "item" or (leaf and len(counts) != leaf):
                raise fault
            leaf = len(counts)
            counts[-1] += 1
            text = quoted if quoted is not None else bare.rstrip(_BLANK)
            is_null = quoted is None and text.upper() == "NULL"
            found.append(None if is_null else re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL))
            wanted = "comma"
    shape = tuple(sizes[d] for d in sorted(sizes))
    if not closed or prod(shape) != len(found):
        raise fault
    return (shape if found else ()), found


def exploded(value: Values, rows: int, *, any_shape: bool = False) -> tuple[Int64s, pa.Array, pa.Array | None]:
    """(elements of each row, their images, messages of rows that cannot be read); NULL has no elements."""
    column = col.as_column(value, rows)
    counts = np.zeros(rows, np.int64)
    images: Elements = []
    faults: list[str | None] = [None] * rows
    look = flat if any_shape else elements
    known: dict[str, Elements | str] = {}
    for row, image in enumerate(column.to_pylist()):
        if image is None:
            continue
        found = known.get(image)
        if found is None:
            try:
                found = look(image)
            except RowError as error:
                found = str(error)
            known[image] = found
        if isinstance(found, str):
            faults[row] = found
            continue
        counts[row] = len(found)
        images += found
    messages = pa.array(faults, col.MESSAGE) if any(f is not None for f in faults) else None
    return counts, pa.array(images, pa.large_string()), messages


def first_of_each(counts: Int64s, messages: pa.Array) -> pa.Array:
    """Of each row the first message among its elements'."""
    out: list[str | None] = [None] * len(counts)
    row_of = np.repeat(np.arange(len(counts)), counts).tolist()
    for row, message in zip(row_of, messages.to_pylist(), strict=True):
        if out[row] is None:
            out[row] = message
    return pa.array(out, col.MESSAGE)


def imploded(counts: Int64s, images: pa.Array, like: pa.Array) -> pa.Array:
    """Arrays of `counts` elements each, in the shape of `like`; NULL where that is."""
    texts = images.to_pylist()
    ends = np.cumsum(counts).tolist()
    starts = [0, *ends[:-1]] if ends else []
    out = [
        None if image is None else _as(image, texts[start:end])
        for start, end, image in zip(starts, ends, like.to_pylist(), strict=True)
    ]
    return pa.array(out, pa.large_string())


def _as(image: str, found: Elements) -> str:
    """Elements in the shape of an array; those of one that could not be read are none."""
    shape = read(image)[0] if found else ()
    return shaped(found, shape, lows(image, len(shape)))
