"""A table's rows under columns that are declared otherwise: by their names of now and of before, exactly cast."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch.redeclared_rows import redeclared, redeclared_updates, redeclared_upserts
from headrace.engine.batch.updates import UPSERT, Updates, Upserts
from headrace.engine.schema import Column, DataType, Schema


def schema(*columns: tuple[str, str] | tuple[str, str, str]) -> Schema:
    """Columns as (name, type) or (name, type, older name); the first is the key."""
    made = [Column(c[0], DataType.parse(c[1]), renamed_from=c[2] if len(c) > 2 else None) for c in columns]
    return Schema.of(made, [columns[0][0]])


OLD = schema(("id", "int"), ("v", "int"), ("t", "varchar(5)"), ("gone", "text"))
NEW = schema(("t", "text"), ("id", "int"), ("w", "numeric(12,2)", "v"), ("late", "date"))
ROWS = pa.RecordBatch.from_pylist(
    [{"id": 1, "v": 5, "t": "a", "gone": "x"}, {"id": 2, "v": None, "t": None, "gone": "y"}], schema=OLD.arrow
)
WANTED = [{"t": "a", "id": 1, "w": Decimal("5.00"), "late": None}, {"t": None, "id": 2, "w": None, "late": None}]


def test_columns_are_found_by_their_names_of_now_and_of_before() -> None:
    found = redeclared(ROWS, NEW)
    assert found.schema.equals(NEW.arrow)
    assert found.to_pylist() == WANTED
    assert redeclared(found, NEW) is found
    times = np.array([3, 4])
    updates = redeclared_updates(Updates(ROWS, times, np.array([1, -1])), NEW)
    assert (updates.rows.to_pylist(), updates.times.tolist(), updates.diffs.tolist()) == (WANTED, [3, 4], [1, -1])


def test_what_was_not_sent_is_so_under_the_name_of_now() -> None:
    mask, gone = np.array([True, False]), np.array([False, True])
    given = Upserts(ROWS, np.array([3, 4]), np.full(2, UPSERT, np.uint8), {1: mask, 3: gone})
    found = redeclared_upserts(given, NEW)
    assert found.rows.to_pylist() == WANTED
    assert {at: m.tolist() for at, m in found.unchanged.items()} == {2: [True, False]}


def test_a_cast_that_is_not_exact_is_an_error() -> None:
    with pytest.raises(pa.ArrowInvalid):
        redeclared(pa.RecordBatch.from_pydict({"id": [1 << 40]}), schema(("id", "int")))
