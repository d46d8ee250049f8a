"""Aggregates that read every value of their group in Python: the named fallback for what no kernel and no sum computes.

Always: the answer is a function of the live values alone, in whatever order they came. An aggregate of this kind is
named by its function and a JSON object of what else it needs (`folding`). Called by `holistic_aggregates`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cmp_to_key, lru_cache, partial, reduce
from typing import Any

import pyarrow as pa

from headrace.engine.batch.updates import Int64s
from headrace.engine.operators.aggregates import FLOAT_RANGE, Slot
from headrace.engine.operators.expressions.array import array_text
from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.columns import MESSAGE
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.internal import PACKED_AS_NUMBERS
from headrace.engine.operators.expressions.datetime import interval_input, interval_text
from headrace.engine.operators.expressions.json import json_text
from headrace.engine.operators.expressions.numeric import decimal_math
from headrace.engine.operators.expressions.range.range_text import Interval, Ranges, common, element_of, united
from headrace.engine.operators.regressions import REGRESSIONS, regression
from headrace.engine.operators.value_history import Clock, Stream
from headrace.engine.schema import Kind

Fold = Callable[[list[Any], Mapping[str, Any]], Any]

_FLOATS = (Kind.REAL, Kind.DOUBLE)
MOST_DIMENSIONS = 6


def folding(function: str, **options: object) -> str:
    """The name of an aggregate that is folded.

    >>> folding("string_agg", separator=",")
    'string_agg {"separator": ","}'
    """
    return f"{function} {json.dumps(options, sort_keys=True)}"


def fold_at_versions(slot: Slot, order: Int64s, stream: Stream, clock: Clock) -> tuple[pa.Array, pa.Array | None]:
    """The aggregate of each group's values at each version, and the messages of those that fail. `order`: entries by group,
    then time.
    """
    name, _, options = slot.aggregate.function.partition(" ")
    detail = json.loads(options or "{}")
    values = _numbered(stream.values.take(pa.array(order))).to_pylist()
    groups, whens, counts = (lane[order].tolist() for lane in (stream.probe, stream.times, stream.diffs))
    assert slot.arg is not None
    key = behind_key if detail.get("keyed") else _order_key(slot.arg.kind)
    fold = _FOLDS[name]
    found, faults = list[Any](), list[str | None]()
    k = 0
    for g in range(len(clock.starts) - 1):
        live: Counter[Any] = Counter()
        while k < len(groups) and groups[k] < g:
            k += 1
        for version in range(clock.starts[g], clock.starts[g + 1]):
            while k < len(groups) and groups[k] == g and whens[k] <= clock.times[version]:
                value = values[k]
                live[value] += counts[k]
                if not live[value]:
                    del live[value]  # what went is not gone through again
                k += 1
            outcome(found, faults, partial(_folded, live, fold, detail, key))
    return pa.array(found, slot.aggregate.type.arrow), messages_of(faults)


def outcome(found: list[Any], faults: list[str | None], made: Callable[[], Any]) -> None:
    """Puts what is made into `found`, and why it cannot be into `faults`."""
    try:
        found.append(made())
        faults.append(None)
    except RowError as error:
        found.append(None)
        faults.append(str(error))


def messages_of(faults: list[str | None]) -> pa.Array | None:
    """The messages as a column; None for none."""
    return pa.array(faults, MESSAGE) if any(f is not None for f in faults) else None


def _numbered(values: pa.Array) -> pa.Array:
    """Times as the numbers that they are held as: Python has no infinite ones, and none after the year 9999."""
    if not pa.types.is_temporal(values.type):
        return values
    return values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())


def folds() -> frozenset[str]:
    """The names of what is folded."""
    return frozenset(_FOLDS)


def fold_of(name: str) -> Fold:
    """What makes an aggregate's value of its values in order, and of what else it needs. Raises KeyError."""
    return _FOLDS[name]


def _folded(live: Counter[Any], fold: Fold, detail: Mapping[str, Any], key: Callable[[Any], Any]) -> Any:
    """What the fold makes of the live values, in their order; None for no value."""
    if fold is _mode:
        return _most(live, detail, key)
    once = bool(detail.get("distinct"))
    rows = [v for v in sorted((v for v, n in live.items() if n > 0), key=key) for _ in range(1 if once else live[v])]
    if once:
        rows = [v for i, v in enumerate(rows) if not i or key(v)[0] != key(rows[i - 1])[0]]
    return fold(rows, detail) if rows else None


@lru_cache
def _order_key(kind: Kind) -> Callable[[Any], Any]:
    """What values sort by: their order, then their image."""
    if kind is Kind.NUMERIC:
        return lambda v: (fallback.order(str(v)), str(v))
    if kind in _FLOATS:
        return lambda v: ((math.isnan(v), 0.0 if math.isnan(v) else v), math.copysign(1, v))
    if kind is Kind.BPCHAR:
        return lambda v: (v.rstrip(" "), v)
    return lambda v: (v, 0)


def behind_key(value: str) -> tuple[str, str]:
    """The key and the text of a value that is packed behind its key."""
    key, _, image = value.rpartition("\0")
    return key, image


def _bits(operation: Callable[[int, int], int]) -> Fold:
    """Of integers, or of bit strings of one width."""

    def fold(values: list[Any], detail: Mapping[str, Any]) -> int | str:
        width = detail.get("width")
        found: int = reduce(operation, values if width is None else (int(v, 2) for v in values))
        return found if width is None else f"{found:0{width}b}"

    return fold


def _spread(values: list[Any], detail: Mapping[str, Any]) -> float | str | None:
    """Variance or standard deviation, of a sample or of all there is."""
    sample, root = detail["sample"], detail["root"]
    if not isinstance(values[0], float):
        images = [str(v) if isinstance(v, str | int) else format(v, "f") for v in values]
        total = reduce(decimal_math.add, images)
        squares = reduce(decimal_math.add, (decimal_math.multiply(v, v) for v in images))
        return decimal_math.spread(len(values), total, squares, sample=sample, root=root)
    count = len(values)
    if sample and count < 2:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    try:
        mean = math.fsum(values) / count
        found = math.fsum((v - mean) ** 2 for v in values) / (count - sample)
    except OverflowError:
        raise RowError(FLOAT_RANGE) from None
    return math.sqrt(found) if root else found


def _joined(values: list[Any], detail: Mapping[str, Any]) -> str | None:
    """string_agg: texts, or packed rows of a text and what it is ordered by."""
    separator = str(detail["separator"] or "")
    if detail.get("orders") is None:
        return separator.join(values)
    rows = _rows(values, detail)
    if detail["width"] > 1:
        # Each text comes behind the separator of its own row.
        return "".join((row[1] or "") * (i > 0) + row[0] for i, row in enumerate(rows))
    return separator.join(row[0] for row in rows) if rows else None


def _rows(values: list[Any], detail: Mapping[str, Any]) -> list[list[Any]]:
    """Packed rows in their order, of equal ones the first alone where they are to be distinct."""
    rows = _ordered([json.loads(v) for v in values], detail["orders"], detail["width"])
    if not detail["distinct"]:
        return rows
    keys = [
        [_comparable(kind, v) for (kind, *_), v in zip(detail["orders"], r[detail["width"] :], strict=True)]
        for r in rows
    ]
    return [r for i, r in enumerate(rows) if not i or keys[i] != keys[i - 1]]


def _array(values: list[Any], detail: Mapping[str, Any]) -> str:
    return array_text.spell([row[0] for row in _rows(values, detail)])


def _array_of_arrays(values: list[Any], detail: Mapping[str, Any]) -> str:
    """Arrays of one shape, one behind the other in a dimension before theirs."""
    images = [row[0] for row in _rows(values, detail)]
    shapes = [array_text.read(image) for image in images]
    shape = shapes[0][0]
    if any(other != shape for other, _ in shapes):
        raise RowError("cannot accumulate arrays of different dimensionality")
    if len(shape) >= MOST_DIMENSIONS:
        raise RowError(f"number of array dimensions ({len(shape) + 1}) exceeds the maximum allowed ({MOST_DIMENSIONS})")
    lower = array_text.lows(images[0], len(shape))
    found = [element for _, some in shapes for element in some]
    return array_text.shaped(found, (len(images), *shape), (1, *lower))


def _json_list(*, binary: bool) -> Fold:
    """Of what is `broken` each begins a line, but for one that is missing."""

    def fold(values: list[Any], detail: Mapping[str, Any]) -> str:
        rows = [row[0] for row in _rows(values, detail) if row[0] is not None]
        text = f"[{', '.join(rows)}]"
        if detail["broken"]:
            text = "[" + "".join(rows[:1] + [f", {row}" if row == "null" else f", \n {row}" for row in rows[1:]]) + "]"
        return json_text.canonical(text) if binary else text

    return fold


def _json_object(*, binary: bool) -> Fold:
    """A row whose value is None is left out, though its key counts where keys must be unique."""

    def fold(values: list[Any], detail: Mapping[str, Any]) -> str:
        rows = _rows(values, detail)
        if detail.get("unique"):
            _check_unique([row[0] for row in rows], binary=binary)
        # A strict jsonb leaves out null too, though it is no missing value.
        absent = (None, "null") if binary and detail.get("strict") else (None,)
        kept = (f"{row[0]} : {row[1]}" for row in rows if (row[1] and row[1].strip()) not in absent)
        text = "{ " + ", ".join(kept) + " }"
        return json_text.canonical(text) if binary else text

    return fold


def _check_unique(keys: Sequence[str], *, binary: bool) -> None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise RowError(f"duplicate JSON object key value{'' if binary else f': {key}'}")
        seen.add(key)


def _ordered(rows: list[list[Any]], orders: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Packed rows by what stands behind their first `width` values: (kind, descending, NULLs first) of each."""

    def compare(one: list[Any], two: list[Any]) -> int:
        for place, (kind, descending, nulls_first) in enumerate(orders, width):
            a, b = one[place], two[place]
            if a == b:
                continue
            if a is None or b is None:
                return -1 if (a is None) == nulls_first else 1
            left, right = _comparable(kind, a), _comparable(kind, b)
            if left != right:
                return -1 if (left < right) != descending else 1
        return 0

    return sorted(rows, key=cmp_to_key(compare))


_NUMBERED = ("smallint", "integer", "bigint", *PACKED_AS_NUMBERS)


def _comparable(kind: str, image: Any) -> Any:
    """What a packed value sorts by."""
    if image is None:
        return None
    if kind in _NUMBERED:
        return int(image)
    if kind in ("real", "double precision"):
        return (image == "NaN", 0.0 if image == "NaN" else float(image))
    if kind == "character":
        return image.rstrip(" ")
    return fallback.order(image) if kind == "numeric" else image


def _intervals(values: list[Any], detail: Mapping[str, Any]) -> str:
    """sum or avg of intervals that stand behind their keys."""
    read = [interval_input.read(behind_key(v)[1]) for v in values]
    endless = {v for v in read if not interval_text.is_finite(v)}
    if len(endless) > 1:
        raise RowError(interval_text.OUT_OF_RANGE)
    total = endless.pop() if endless else interval_text.checked(*(sum(parts) for parts in zip(*read, strict=True)))
    return interval_text.image(interval_text.scaled(total, len(read), divide=True) if detail["mean"] else total)


def _ranges(combine: Callable[[list[Interval], list[Interval]], list[Interval]]) -> Fold:
    """range_agg and range_intersect_agg, of ranges or multiranges."""

    def fold(values: list[Any], detail: Mapping[str, Any]) -> str:
        made, several = Ranges(element_of(detail["type"])), detail["type"].endswith("multirange")
        found = (made.several(v) if several else [i for i in (made.read(v),) if i is not None] for v in values)
        intervals = reduce(combine, found)
        if detail["into"].endswith("multirange"):
            return made.all_spelled(united(intervals))
        return made.spelled(intervals[0] if intervals else None)

    return fold


def _continuous(values: list[Any], detail: Mapping[str, Any]) -> float:
    place = detail["fraction"] * (len(values) - 1)
    low, high = math.floor(place), math.ceil(place)
    one, two = (values[-1 - k] if detail["descending"] else values[k] for k in (low, high))
    return float(one if low == high else one + (place - low) * (two - one))


def _neighbour(values: list[Any], detail: Mapping[str, Any]) -> Any:
    """The value beside a place between two: after it, or before it."""
    place = detail["fraction"] * (len(values) - 1)
    k = math.ceil(place) if detail["up"] else math.floor(place)
    return values[-1 - k] if detail["descending"] else values[k]


def _discrete(values: list[Any], detail: Mapping[str, Any]) -> Any:
    place = max(math.ceil(Decimal(repr(detail["fraction"])) * len(values)) - 1, 0)
    return values[-1 - place] if detail["descending"] else values[place]


def _mode(values: list[Any], detail: Mapping[str, Any]) -> Any:
    """As `_most`, of values of which equal ones look alike."""
    return _most(Counter(values), detail, lambda v: (v, 0))


def _most(live: Counter[Any], detail: Mapping[str, Any], key: Callable[[Any], Any]) -> Any:
    """The first of those values of which there are most, equal ones counted together."""
    counts: Counter[Any] = Counter()
    least: dict[Any, Any] = {}
    for value in sorted((v for v, n in live.items() if n > 0), key=key):
        counts[key(value)[0]] += live[value]
        least.setdefault(key(value)[0], value)
    classes = list(counts)[:: -1 if detail["descending"] else 1]
    return least[max(classes, key=lambda c: counts[c])] if classes else None


_FOLDS: dict[str, Fold] = {
    "bit_and": _bits(lambda a, b: a & b),
    "bit_or": _bits(lambda a, b: a | b),
    "bit_xor": _bits(lambda a, b: a ^ b),
    "spread": _spread,
    "string_agg": _joined,
    "array_agg": _array,
    "array_agg_of_arrays": _array_of_arrays,
    "json_agg": _json_list(binary=False),
    "jsonb_agg": _json_list(binary=True),
    "json_object_agg": _json_object(binary=False),
    "jsonb_object_agg": _json_object(binary=True),
    **{name: regression(name) for name in REGRESSIONS if name != "regr_count"},
    "range_agg": _ranges(list.__add__),
    "range_intersect_agg": _ranges(common),
    "percentile_cont": _continuous,
    "percentile_disc": _discrete,
    "percentile_place": _neighbour,
    "mode": _mode,
    "sum_of_intervals": _intervals,
}
