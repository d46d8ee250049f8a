"""Functions that the binder puts into plans and no SQL can name: a scalar subquery's one value, variance from its sums.

Always: more than one row of a scalar subquery is an error, as in Postgres. Registered in the catalogue at import.
"""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Maker, Outcome, Values, entry
from headrace.engine.operators.expressions.core.record_order import fields_of
from headrace.engine.operators.expressions.core.text_output import to_text
from headrace.engine.operators.expressions.numeric import decimal_math
from headrace.engine.schema import NUMERIC, DataType, Kind

SEVERAL = "more than one row returned by a subquery used as an expression"


def _one_value(_params: tuple[DataType, ...], result: DataType) -> Kernel:
    nothing = pa.scalar(None, result.arrow)

    def kernel(rows: Values, value: Values) -> Outcome:
        several = pc.fill_null(pc.greater(rows, 1), False)
        if not pc.any(pa.array([several.as_py()]) if isinstance(several, pa.Scalar) else several).as_py():
            return value, None
        messages = pc.if_else(several, pa.scalar(SEVERAL, col.MESSAGE), pa.scalar(None, col.MESSAGE))
        return pc.if_else(several, nothing, value), messages

    return kernel


entry("$one value", (Kind.BIGINT, None), lambda params: params[1], _one_value, strict=False)


def _spread(*, sample: bool, root: bool) -> Maker:
    def found(count: int, *sums: str | Decimal) -> str | None:
        total, squares = (v if isinstance(v, str) else format(v, "f") for v in sums)
        return decimal_math.spread(count, total, squares, sample=sample, root=root)

    return lambda _params, result: lambda *values: fallback.map_values(found, result.arrow, values)


PACKED_AS_NUMBERS = tuple(k.value for k in (Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ))
"""Kinds whose values are packed as their lane's numbers, since their text does not sort as they do."""


def _packable(value: Values, kind: DataType, rows: int) -> list[str | None]:
    column = col.as_column(value, rows)
    texts: list[str | None]
    if kind.kind.value in PACKED_AS_NUMBERS:
        width = pa.int32() if kind.kind is Kind.DATE else pa.int64()
        texts = col.retyped(column, width).cast(col.MESSAGE).to_pylist()
        return texts
    texts = to_text(column, kind).to_pylist()
    return texts


def _packing(*, present: bool) -> Maker:
    """The arguments of each row in one text; `present`: a row whose first is NULL is NULL."""

    def make(params: tuple[DataType, ...], _result: DataType) -> Kernel:
        def kernel(*values: Values) -> Outcome:
            rows = col.length(*values)
            columns = [_packable(v, p, rows) for v, p in zip(values, params, strict=True)]
            texts = [
                None if present and row[0] is None else json.dumps(row, ensure_ascii=False)
                for row in zip(*columns, strict=True)
            ]
            return pa.array(texts, col.MESSAGE), None

        return kernel

    return make


def _image(params: tuple[DataType, ...], _result: DataType) -> Kernel:
    return lambda value: (to_text(value, params[0]), None)


def _record_field(_params: tuple[DataType, ...], result: DataType) -> Kernel:
    """A field of a record's image, by its place from 0."""
    return lambda *values: fallback.map_values(lambda image, at: fields_of(image)[at], result.arrow, values)


def _pair(_params: tuple[DataType, ...], result: DataType) -> Kernel:
    return lambda *values: fallback.map_values(lambda y, x: json.dumps([y, x]), result.arrow, values)


for _name, _sample, _root in (
    ("var_samp", True, False), ("var_pop", False, False), ("stddev_samp", True, True), ("stddev_pop", False, True),
):  # fmt: skip
    entry(
        f"${_name}",
        (Kind.BIGINT, Kind.NUMERIC, Kind.NUMERIC),
        lambda _params: NUMERIC,
        _spread(sample=_sample, root=_root),
        fallback=True,
    )
entry(
    "$square",
    (Kind.NUMERIC,),
    lambda _params: NUMERIC,
    lambda _params, result: lambda value: fallback.map_values(decimal_math.square, result.arrow, (value,)),
    fallback=True,
)
entry("$packed", (Kind.TEXT, None), Kind.TEXT, _packing(present=True), strict=False, variadic=True, fallback=True)
entry("$collected", (None,), Kind.TEXT, _packing(present=False), strict=False, variadic=True, fallback=True)
entry("$image", (None,), Kind.TEXT, _image)
entry("$record field", (None, Kind.INTEGER), Kind.TEXT, _record_field, fallback=True)
entry("$pair", (Kind.DOUBLE, Kind.DOUBLE), Kind.TEXT, _pair, fallback=True)
