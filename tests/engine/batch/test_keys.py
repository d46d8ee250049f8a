"""Identities against Python's own idea of equality, for every type, alone and composed."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.batch import Keys, fingerprint, key_lanes
from headrace.engine.batch.keys import order_lane
from headrace.engine.errors import TypeNotSupported
from headrace.engine.schema import DataType, Kind
from tests.engine.strategies import TYPES, VALUES, row_values, rows_of, some_types
from tests.reference.values import key_value, row_image


def _pairs(keys: Keys) -> list[tuple[int, int]]:
    return list(zip(keys.hash.tolist(), keys.check.tolist(), strict=True))


def _same_partition(left: list[object], right: list[object]) -> None:
    """Two labellings part the rows alike."""
    assert len(set(zip(left, right, strict=True))) == len(set(left)) == len(set(right))


@pytest.mark.parametrize("name", TYPES)
@given(st.data())
@settings(max_examples=25)
def test_keys_meet_exactly_when_values_are_equal(name: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(row_values([name]), max_size=20))
    declared = DataType.parse(name)
    rows = rows_of([name], values)
    read = rows.column(0).to_pylist()
    keys = key_lanes(rows, [0], [declared])
    _same_partition(_pairs(keys), [key_value(v, declared) for v in read])
    weak = key_lanes(rows, [0], [declared], mask=1)
    assert set(weak.hash.tolist()) <= {0, 1}
    _same_partition(_pairs(weak), [key_value(v, declared) for v in read])


@given(st.data(), some_types())
@settings(max_examples=50)
def test_composite_keys_and_row_images(data: st.DataObject, types: list[str]) -> None:
    values = data.draw(st.lists(row_values(types), max_size=15))
    rows = rows_of(types, values)
    declared = [DataType.parse(t) for t in types]
    read = [tuple(r.values()) for r in rows.to_pylist()]
    keys = key_lanes(rows, range(len(types)), declared)
    _same_partition(_pairs(keys), [tuple(key_value(v, t) for v, t in zip(r, declared, strict=True)) for r in read])
    high, low = fingerprint(rows)
    images = [row_image(r) for r in rows.to_pylist()]
    _same_partition(list(zip(high.tolist(), low.tolist(), strict=True)), images)


@given(st.data(), some_types())
@settings(max_examples=30)
def test_slices_and_neighbours_change_nothing(data: st.DataObject, types: list[str]) -> None:
    values = data.draw(st.lists(row_values(types), min_size=3, max_size=20))
    rows = rows_of(types, values)
    columns = range(len(types))
    whole, part = key_lanes(rows, columns), key_lanes(rows.slice(2), columns)
    assert _pairs(whole)[2:] == _pairs(part)
    assert [h.tolist()[2:] for h in fingerprint(rows)] == [h.tolist() for h in fingerprint(rows.slice(2))]


def test_integers_of_all_widths_meet() -> None:
    values = [-5, 0, 7]
    lanes = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
    found = {tuple(_pairs(key_lanes(pa.record_batch({"k": pa.array(values, t)}), [0]))) for t in lanes}
    assert len(found) == 1


@given(st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=50))
def test_one_narrow_column_is_a_bijection(values: list[int]) -> None:
    keys = key_lanes(pa.record_batch({"k": pa.array(values, pa.uint64())}), [0])
    assert len(set(keys.hash.tolist())) == len(values)
    assert not keys.check.any()


def test_offsets_of_both_widths_and_null_columns() -> None:
    text = ["", "a", None, "a longer text of more than sixteen bytes", "a longer text of more than sixteen byteS"]
    small = key_lanes(pa.record_batch({"k": pa.array(text, pa.string())}), [0])
    large = key_lanes(pa.record_batch({"k": pa.array(text, pa.large_string())}), [0])
    assert _pairs(small) == _pairs(large)
    assert len(set(_pairs(small))) == 5
    ambiguous = pa.record_batch({"a": pa.array(["ab", "a"]), "b": pa.array(["c", "bc"])})
    assert len(set(_pairs(key_lanes(ambiguous, [0, 1])))) == 2


def test_no_columns_are_one_key() -> None:
    rows = pa.record_batch({"k": pa.array([1, 2, 3])})
    assert len(set(_pairs(key_lanes(rows, [])))) == 1


def test_a_lane_without_a_meaning_is_refused() -> None:
    with pytest.raises(TypeNotSupported):
        key_lanes(pa.record_batch({"k": pa.array([[1]])}), [0])


_ORDERED = [t for t in TYPES if t != "jsonb"]


@pytest.mark.parametrize("name", _ORDERED)
@given(st.data())
@settings(max_examples=25)
def test_order_lane_never_contradicts_the_order(name: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[name], max_size=15))
    check_order_lane(name, values)


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False) | st.decimals(-2, 2, places=3), max_size=12))
@settings(max_examples=60)
def test_order_lane_of_numerals(values: list[Decimal]) -> None:
    names = ["NaN", "Infinity", "-Infinity", "0", "0.00", "-1", "-0.5", "9", "10", "0.05", "9999999999999.5"]
    near = ["1234567890123.4", "1234567890123.5", "0.00001234567890123", "1" + "0" * 131071, "0." + "0" * 16382 + "1"]
    check_order_lane("numeric", [*names, *near, *(format(v, "f") for v in values)])


def check_order_lane(name: str, values: list[Any]) -> None:
    kind = DataType.parse(name)
    rows = rows_of([name], [(v,) for v in values])
    read = rows.column(0).to_pylist()
    lane = order_lane(rows, [0], [kind])

    def rank(value: Any) -> tuple[int, Any]:
        if value is None:
            return (2, 0)
        if name == "numeric":
            number = Decimal(value)
            return (1, 0) if number.is_nan() else (0, number)
        if isinstance(value, float) and np.isnan(value):
            return (1, 0)
        if kind.kind is Kind.BPCHAR:
            return (0, value.rstrip(" ").encode())
        return (0, value.encode() if isinstance(value, str) else value)

    for i, a in enumerate(read):
        for j, b in enumerate(read):
            if rank(a) < rank(b):
                assert lane[i] <= lane[j], (a, b)
            elif rank(a) == rank(b):
                assert lane[i] == lane[j], (a, b)
    some = sorted({rank(v) for v in read if v is not None})
    if name in ("bigint", "date", "double precision", "numeric(12,2)"):
        assert len(set(lane.tolist()) - {2**64 - 1}) >= len(some) - 1
