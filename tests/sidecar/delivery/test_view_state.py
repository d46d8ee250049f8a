"""What a view gives its sinks of a step in which it was in error for some epochs alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.connectors.sink import SinkView
from headrace.engine.batch.updates import Updates
from headrace.engine.operators.delta import errors_at
from headrace.engine.schema import BIGINT, Column, Schema
from headrace.sidecar.delivery.view_state import ViewState

SCHEMA = Schema((Column("n", BIGINT),))


class Output:
    """Gives what a test puts in."""

    def __init__(self, rows: list[tuple[int, int, int]], errors: list[tuple[str, int, int]]) -> None:
        self.rows, self.errors = rows, errors

    def take(self) -> tuple[Updates, Updates]:
        values, times, diffs = ([r[k] for r in self.rows] for k in range(3))
        batch = pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], schema=SCHEMA.arrow)
        texts, at, signs = ([e[k] for e in self.errors] for k in range(3))
        failed = errors_at(pa.array(texts, pa.large_string()), np.array(at, np.int64), np.array(signs, np.int64))
        return Updates(batch, np.array(times, np.int64), np.array(diffs, np.int64)), failed


def taken(
    rows: list[tuple[int, int, int]], errors: list[tuple[str, int, int]], ends: range | list[int] = range(1, 11)
) -> list[tuple[int, int, int]] | None:
    output: Any = Output(rows, errors)
    changes = ViewState(SinkView("v", SCHEMA, None, "f"), output, ()).take(np.array(ends, np.int64))
    if changes is None:
        return None
    values = changes.rows.column(0).to_pylist()
    return sorted(zip(values, changes.epochs.tolist(), changes.diffs.tolist(), strict=True))


def test_epochs_in_error_tell_nothing_and_the_next_whole_one_tells_all() -> None:
    rows = [(1, 3, 1), (2, 4, 1), (2, 5, -1), (3, 5, 1), (4, 7, 1), (5, 8, 1), (6, 9, 1)]
    errors = [("a", 4, 1), ("b", 5, 1), ("a", 6, -1), ("b", 7, -1), ("a", 9, 1), ("a", 10, -1)]
    assert taken(rows, errors) == [(1, 3, 1), (3, 7, 1), (4, 7, 1), (5, 8, 1), (6, 10, 1)]


def test_without_errors_each_epoch_tells_its_own() -> None:
    assert taken([(1, 3, 1), (1, 4, -1)], []) == [(1, 3, 1), (1, 4, -1)]


def test_a_view_that_is_in_error_at_the_end_tells_nothing() -> None:
    assert taken([(1, 3, 1)], [("a", 4, 1)]) is None


def test_portions_of_a_transaction_are_told_at_its_end_and_added_up() -> None:
    rows = [(1, 3, 1), (2, 4, 1), (2, 5, -1), (3, 6, 1), (4, 7, 1)]
    assert taken(rows, [], [3, 6, 7]) == [(1, 3, 1), (3, 6, 1), (4, 7, 1)]


def test_a_transaction_that_ends_in_error_tells_nothing_of_its_earlier_portions() -> None:
    rows = [(1, 3, 1), (2, 4, 1), (3, 8, 1)]
    assert taken(rows, [("a", 5, 1), ("a", 8, -1)], [5, 8]) == [(1, 8, 1), (2, 8, 1), (3, 8, 1)]


def test_an_error_between_the_portions_of_a_transaction_was_never_there() -> None:
    rows = [(1, 3, 1), (2, 5, 1)]
    assert taken(rows, [("a", 3, 1), ("a", 5, -1)], [5, 6]) == [(1, 5, 1), (2, 5, 1)]
