"""Aggregates over frames that slide: the least and greatest values, and what is folded value by value.

Always: each frame's answer is that of a fresh computation over its rows; sums of floats are exact and rounded once, those of
numerics exact.
Called by `window_values`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import Bools, Int64s
from headrace.engine.operators.aggregates import FLOAT_RANGE
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.numeric import decimal_math
from headrace.engine.operators.python_aggregates import fold_of, folds, messages_of, outcome
from headrace.engine.operators.ranks import ranks_of
from headrace.engine.operators.window_frames import Run
from headrace.engine.schema import NUMERIC, DataType, Kind

_ONE = 1 << 1074
"""Every finite float is a whole number of these parts of one."""


def least_of(column: pa.Array, kind: DataType, runs: Sequence[Run], *, greatest: bool) -> tuple[Int64s, Bools]:
    """(the place of each frame's least or greatest value, whether it has any)."""
    ranks = np.unique(ranks_of(column, kind, images=True), return_inverse=True)[1].astype(np.int64)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    worst = len(ranks) + 1
    none = worst * (worst + 1)
    # The rank, and the place that has it, in one number: the first place of equal ones stands for them.
    lane = np.where(valid, -ranks if greatest else ranks, worst) * (worst + 1) + np.arange(len(ranks))
    tables = [lane]
    best = np.full(len(lane), none)
    for start, end in runs:
        width = end - start
        level = np.zeros(len(lane), np.int64)
        some = width > 0
        level[some] = np.floor(np.log2(width[some])).astype(np.int64)
        while len(tables) <= int(level.max(initial=0)):
            half = 1 << (len(tables) - 1)
            last = tables[-1]
            tables.append(np.minimum(last, np.append(last[half:], np.full(min(half, len(last)), none))))
        for k in np.unique(level[some]).tolist():
            chosen = np.flatnonzero(some & (level == k))
            found = np.minimum(tables[k][start[chosen]], tables[k][end[chosen] - (1 << k)])
            best[chosen] = np.minimum(best[chosen], found)
    known = best < none
    return np.where(known, best % (worst + 1), 0), known


def float_sums(
    column: pa.Array, runs: Sequence[Run], *, mean: bool, kind: DataType
) -> tuple[pa.Array, pa.Array | None]:
    """Sums or averages of floats, and the messages of those that overflow."""
    values = column.to_pylist()
    parts, special, count = [0], [(0, 0, 0, 0)], [0]
    for value in values:
        nan, high, low, sign = special[-1]
        exact = 0
        if value is not None:
            nan, high, low = nan + math.isnan(value), high + (value == math.inf), low + (value == -math.inf)
            sign += not (value == 0 and math.copysign(1, value) < 0)
            if math.isfinite(value):
                numerator, denominator = float(value).as_integer_ratio()
                exact = numerator * (_ONE // denominator)
        parts.append(parts[-1] + exact)
        special.append((nan, high, low, sign))
        count.append(count[-1] + (value is not None))
    out: list[float | None] = []
    faults: list[str | None] = []
    for spans in _spans(runs, len(values)):
        found = sum(count[b] - count[a] for a, b in spans)
        nan, high, low, sign = (sum(special[b][i] - special[a][i] for a, b in spans) for i in range(4))
        fault = None
        total: float | None
        if not found:
            total = None
        elif nan or (high and low):
            total = math.nan
        elif high or low:
            total = math.inf if high else -math.inf
        elif not sign:
            total = -0.0
        else:
            total, fault = _rounded(sum(parts[b] - parts[a] for a, b in spans), kind)
        if mean and total is not None:
            total = total / found
        out.append(total)
        faults.append(fault)
    lane = pa.float64() if mean else kind.arrow
    errors = pa.array(faults, pa.large_string()) if any(f is not None for f in faults) else None
    return pa.array(out, pa.float64()).cast(lane, safe=False), errors


def numeric_sums(column: pa.Array, runs: Sequence[Run], *, mean: bool) -> tuple[pa.Array, pa.Array | None]:
    """Sums or averages of numerics of any scale, with the scale of those that are in the frame, and messages as above."""
    values = column.to_pylist()
    read = [None if v is None or v in decimal_math.SPECIAL else decimal_math.split(v) for v in values]
    most = max((scale for _, scale in filter(None, read)), default=0)
    totals = [0, *accumulate(0 if n is None else n[0] * 10 ** (most - n[1]) for n in read)]
    # What a value is: none, a number of some scale, or one of those that are no number.
    marks = [v if n is None else n[1] for v, n in zip(values, read, strict=True)]
    lanes = {mark: [0, *accumulate(m == mark for m in marks)] for mark in set(marks) - {None}}
    out: list[str | None] = []
    faults: list[str | None] = []
    for spans in _spans(runs, len(values)):
        there = {mark: sum(lane[b] - lane[a] for a, b in spans) for mark, lane in lanes.items()}
        there = {mark: count for mark, count in there.items() if count}
        odd = sorted(str(mark) for mark in there if isinstance(mark, str))
        found = fault = None
        try:
            if odd:
                found = odd[0] if len(odd) == 1 else decimal_math.NAN
            elif there:
                scale = max(int(mark) for mark in there)
                found = decimal_math.image(
                    (sum(totals[b] - totals[a] for a, b in spans) // 10 ** (most - scale), scale)
                )
            if mean and found is not None:
                found = decimal_math.divide(found, str(sum(there.values())))
        except RowError as error:
            found, fault = None, str(error)
        out.append(found)
        faults.append(fault)
    errors = pa.array(faults, pa.large_string()) if any(f is not None for f in faults) else None
    return pa.array(out, NUMERIC.arrow), errors


def _rounded(parts: int, kind: DataType) -> tuple[float | None, str | None]:
    try:
        total = float(Fraction(parts, _ONE))
    except OverflowError:
        return None, FLOAT_RANGE
    if kind.kind is Kind.REAL and abs(total) >= 3.4028235677973366e38:
        return None, FLOAT_RANGE
    return total, None


def _spans(runs: Sequence[Run], size: int) -> list[list[tuple[int, int]]]:
    lists = [(start.tolist(), end.tolist()) for start, end in runs]
    return [[(a[i], b[i]) for a, b in lists if b[i] > a[i]] for i in range(size)]


def folded(function: str, column: pa.Array, runs: Sequence[Run], result: DataType) -> tuple[pa.Array, pa.Array | None]:
    """What is folded in Python, over the values of each frame in their order, and the messages of what fails."""
    name, _, options = function.partition(" ")
    fold, detail = fold_of(name), json.loads(options or "{}")
    values = column.to_pylist()
    known: dict[tuple[tuple[int, int], ...], tuple[Any, str | None]] = {}
    out, faults = list[Any](), list[str | None]()
    for spans in _spans(runs, len(values)):
        key = tuple(spans)
        if key not in known:
            some = [v for a, b in spans for v in values[a:b] if v is not None]
            outcome(out, faults, partial(fold, some, detail) if some else _nothing)
            known[key] = out[-1], faults[-1]
            continue
        out.append(known[key][0])
        faults.append(known[key][1])
    return pa.array(out, result.arrow), messages_of(faults)


def _nothing() -> None:
    """What is folded of no values."""


def is_folded(function: str, arg: DataType | None) -> bool:
    """Whether an aggregate is one of those that `folded` computes."""
    return arg is not None and function.partition(" ")[0] in folds()
