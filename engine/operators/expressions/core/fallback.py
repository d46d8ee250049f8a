"""The one place where Python runs per value: functions that no kernel computes, once per distinct value.

Always: a function given to `map_values` is pure, takes the arguments' Python values (never NULL) and returns a Python
value of the result's lane, or raises `RowError` with Postgres's message. `fallback_users` lists who comes here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core.function_catalog import Outcome, Values


class RowError(Exception):
    """A row fails; the argument is Postgres's message."""


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}

_SPECIAL = {"NaN": (2, Decimal(0)), "Infinity": (1, Decimal(0)), "-Infinity": (-1, Decimal(0))}


def order(image: str) -> tuple[int, Decimal]:
    """What a numeric's text image sorts by: NaN above Infinity above every number."""
    return _SPECIAL.get(image) or (0, Decimal(image))


def map_values(
    function: Callable[..., Any], lane: pa.DataType, arguments: Sequence[Values], *, strict: bool = True
) -> Outcome:
    """`function` over the distinct combinations of `arguments`; a constant of constants. `strict`: NULL where any is
    NULL; else the function is given None.
    """
    rows = col.length(*arguments)
    constants = [a.as_py() if isinstance(a, pa.Scalar) else None for a in arguments]
    varying = [i for i, a in enumerate(arguments) if not isinstance(a, pa.Scalar)]
    if not varying:
        out, errors = map_values(function, lane, [pa.repeat(a, 1) for a in arguments], strict=strict)
        return out[0], None if errors is None else errors[0]
    if strict and any(isinstance(a, pa.Scalar) and not a.is_valid for a in arguments):
        return pa.nulls(rows, lane), None
    columns = [arguments[i] for i in varying]
    if rows <= _FEW:
        return _answers(function, lane, constants, varying, [c.to_pylist() for c in columns], strict)
    codes, tables = _combinations(columns, rows)
    values, errors = _answers(function, lane, constants, varying, tables, strict)
    taken = pa.array(codes)
    return pc.take(values, taken), None if errors is None else pc.take(errors, taken)


_FEW = 48
"""Rows up to which finding the distinct ones costs more than asking for each."""


def _answers(
    function: Callable[..., Any],
    lane: pa.DataType,
    arguments: list[Any],
    varying: list[int],
    tables: list[list[Any]],
    strict: bool,
) -> Outcome:
    results: list[Any] = []
    faults: list[str | None] = []
    failed = False
    for combination in zip(*tables, strict=True):
        for i, value in zip(varying, combination, strict=True):
            arguments[i] = value
        try:
            results.append(None if strict and None in combination else function(*arguments))
            faults.append(None)
        except RowError as error:
            results.append(None)
            faults.append(str(error))
            failed = True
    return pa.array(results, lane), pa.array(faults, col.MESSAGE) if failed else None


def _combinations(arguments: Sequence[pa.Array], rows: int) -> tuple[Any, list[list[Any]]]:
    """(code of each row, per argument its value for each code)."""
    codes: Any = np.zeros(rows, np.int64)
    tables: list[list[Any]] = []
    for argument in arguments:
        encoded = pc.dictionary_encode(argument, null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        distinct = encoded.dictionary.to_pylist()
        if not tables:
            codes, tables = own, [distinct]
            continue
        pairs, codes = np.unique(codes * len(distinct) + own, return_inverse=True)
        before = pairs // max(len(distinct), 1)
        tables = [[t[i] for i in before] for t in tables] + [[distinct[i] for i in pairs % max(len(distinct), 1)]]
    return codes, tables
