"""Values as int64 ranks: equal ranks for equal values, greater for greater, as Postgres orders the type (collation C).

Always: ranks compare within one call only. With `images`, values that Postgres calls equal but that look different
(1.0 and 1.00, 0.0 and -0.0, trailing blanks) get different ranks, the least image first. Called by reduces.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.batch.updates import Int64s
from headrace.engine.operators.fixed_width import decimal_words, float_bits, int_values
from headrace.engine.schema import DataType, Kind

_INTS = {
    Kind.BOOLEAN, Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ,
}  # fmt: skip
_NAN = np.int64(0x7FF8000000000000)
_MAGNITUDE = np.int64(0x7FFFFFFFFFFFFFFF)
_INFINITY = np.int64(0x7FF0000000000000)
_INT64_MAX = np.int64(0x7FFFFFFFFFFFFFFF)


def has_images(kind: DataType) -> bool:
    """True if equal values of the type may look different."""
    if kind.kind is Kind.NUMERIC:
        return not kind.fixed_scale
    return kind.kind in (Kind.REAL, Kind.DOUBLE, Kind.BPCHAR)


def ranks_of(column: pa.Array, kind: DataType, *, images: bool) -> Int64s:
    """The rank of each value; nulls get any rank."""
    if kind.kind in _INTS:
        return int_values(column)
    if kind.kind in (Kind.REAL, Kind.DOUBLE):
        return _float_ranks(column, images=images)
    if kind.kind is Kind.NUMERIC and kind.fixed_scale:
        low, high = decimal_words(column)
        return np.ascontiguousarray(low) if bool(np.all(high == low >> 63)) else _dense(column)
    if kind.kind is Kind.NUMERIC:
        return _numeric_text_ranks(column, images=images)
    if kind.kind is Kind.BPCHAR:
        trimmed = _dense(pc.utf8_rtrim(column, characters=" "))
        return _pairs(trimmed, _dense(column)) if images else trimmed
    return _dense(column)


def row_ranks(columns: Sequence[pa.Array], kinds: Sequence[DataType]) -> Int64s:
    """One rank a row from the images of several columns, the first counting most; null is the greatest."""
    total = np.zeros(len(columns[0]), np.int64)
    for column, kind in zip(columns, kinds, strict=True):
        ranks = _compact(ranks_of(column, kind, images=True))
        if column.null_count:
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            ranks = np.where(valid, ranks, len(ranks))
        total = _compact(_pairs(total, ranks))
    return total


def _float_ranks(column: pa.Array, *, images: bool) -> Int64s:
    bits = float_bits(column)
    if not images:
        bits = np.where(bits == ~_MAGNITUDE, 0, bits)
    ranks = np.where(bits < 0, bits ^ _MAGNITUDE, bits)
    return np.where((bits & _MAGNITUDE) > _INFINITY, _INT64_MAX, ranks)


def _dense(column: pa.Array) -> Int64s:
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="dense")
    found: Int64s = ranks.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _compact(ranks: Int64s) -> Int64s:
    found: Int64s = np.unique(ranks, return_inverse=True)[1].astype(np.int64)
    return found


def _pairs(major: Int64s, minor: Int64s) -> Int64s:
    return major * (int(minor.max(initial=0)) + 1) + minor


def _numeric_text_ranks(column: pa.Array, *, images: bool) -> Int64s:
    """The named fallback: one comparison key for each distinct text."""
    coded = column.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    if not texts:
        return np.zeros(len(column), np.int64)
    numbers = [_comparable(t) for t in texts]
    by_value = sorted(range(len(texts)), key=lambda i: (numbers[i], texts[i]))
    ranks = np.zeros(len(texts), np.int64)
    rank = 0
    for k, i in enumerate(by_value):
        if k and (images or numbers[i] != numbers[by_value[k - 1]]):
            rank += 1
        ranks[i] = rank
    found: Int64s = ranks[coded.indices.fill_null(0).to_numpy(zero_copy_only=False)]
    return found


def _comparable(text: str) -> tuple[int, Decimal]:
    number = Decimal(text)
    return (1, Decimal(0)) if number.is_nan() else (0, number)
