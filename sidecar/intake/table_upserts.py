"""Table upserts: lays bound transactions out by table and epoch, as the engine takes them.

Invariant: a table's rows are in order of epoch, then of their transaction; a truncate keeps its place. Nothing here looks at
rows one by one. The runtime calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.connectors.changes import TableChanges
from headrace.engine.batch.gather_rows import take_rows
from headrace.engine.batch.redeclared_rows import place_of, redeclared
from headrace.engine.batch.updates import DELETE, Int64s, Upserts
from headrace.engine.dataflow.input_buffer import Intake
from headrace.engine.schema import Schema
from headrace.sidecar.transactions.model import Transaction
from headrace.sidecar.transactions.partial import RowRange
from headrace.sidecar.transactions.references import REFERENCES
from headrace.sidecar.transactions.splitting import in_steps

NO_LIMIT = 1 << 62
"""More rows, and a later epoch, than there are."""
TableErrors = Mapping[int, Mapping[str, Mapping[str, int]]]
"""Epoch → table → message → change of multiplicity."""


def upserts(bound: Iterable[tuple[int, Transaction]], schemas: Mapping[str, Schema]) -> dict[str, Upserts]:
    """The upserts of each table in `schemas` that the bound (epoch, transaction) pairs change; where workers keep the rows of a
    table, they refer to them."""
    by_table: dict[str, list[tuple[int, RowRange]]] = {}
    for epoch, transaction in bound:
        for s in transaction.slices:
            table = s.changes.table
            parts = by_table.get(table)
            if parts is None:
                by_table[table] = [(epoch, s)]
            else:
                parts.append((epoch, s))
    return {
        t: _table_upserts(p, REFERENCES if _are_kept(p) else schemas[t]) for t, p in by_table.items() if t in schemas
    }


def _are_kept(parts: Sequence[tuple[int, RowRange]]) -> bool:
    return any(s.changes.kept is not None for _, s in parts)


class Keeper(Protocol):
    """Whose workers may keep rows: a `Flow`."""

    def rows_of(self, table: str, upserts: Upserts) -> Upserts:
        """The same changes with their rows in this process."""


def rows_here(
    flow: Keeper, bound: Sequence[tuple[int, Transaction]], table: str, schema: Schema
) -> Upserts | None:  # fmt: skip
    """The upserts of one table, as `upserts` lays them out, with their rows in this process, wherever they were decoded; None for
    none."""
    parts = Intake(table)
    for some in in_steps(bound, NO_LIMIT):
        if (found := upserts(some, {table: schema}).get(table)) is not None:
            parts.push(flow.rows_of(table, found), 0)
    return parts.take(NO_LIMIT)


class Feedable(Protocol):
    """What takes changes in: a `Flow`, or a dataflow that follows it."""

    def push(self, table: str, upserts: Upserts) -> None:
        """Changes of a table, of epochs that are not complete, in their order."""

    def push_errors(self, table: str, errors: Mapping[str, int], epoch: int) -> None:
        """Changes of a table's own errors at `epoch`: message → change of multiplicity."""


def push(flow: Feedable, changes: Mapping[str, Upserts], errors: TableErrors) -> None:
    """Give a dataflow what its next step takes in."""
    for table, rows in changes.items():
        flow.push(table, rows)
    for epoch, tables in errors.items():
        for table, told in tables.items():
            flow.push_errors(table, told, epoch)


def _table_upserts(parts: Sequence[tuple[int, RowRange]], schema: Schema) -> Upserts:
    """The slices of one table in the order of its transactions: those of one run are in order already, those of several are
    sorted.
    """
    run, low, _ = parts[0][1]
    high, lane = low, []
    for epoch, (changes, start, stop) in parts:
        if changes is not run or start != high:
            return _sorted_upserts(parts, schema)
        lane += [epoch] * (stop - start)
        high = stop
    epochs = np.array(lane, np.int64)
    orders = run.orders[low:high]
    if not ((orders[1:] >= orders[:-1]) | (epochs[1:] != epochs[:-1])).all():
        return _sorted_upserts(parts, schema)
    rows, kinds = redeclared(run.rows, schema), run.kinds[low:high]
    if high - low < len(run):
        # a small part of a large run is copied, and the run let go of
        most = 2 * (high - low) >= len(run)
        rows = rows.slice(low, high - low) if most else take_rows(rows, np.arange(low, high))
    unchanged = _unchanged([run], schema)
    moved = None if run.moved is None else _fill_from(kinds, epochs, run.moved[low:high])
    return Upserts(rows, epochs, kinds, {c: m[low:high] for c, m in unchanged.items()}, moved)


def _sorted_upserts(parts: Sequence[tuple[int, RowRange]], schema: Schema) -> Upserts:
    chunks: dict[int, tuple[TableChanges, int]] = {}
    base = 0
    for _, s in parts:
        if id(s.changes) not in chunks:
            chunks[id(s.changes)] = (s.changes, base)
            base += len(s.changes)
    lengths = np.fromiter((s.stop - s.start for _, s in parts), np.int64, len(parts))
    starts = np.fromiter((chunks[id(s.changes)][1] + s.start for _, s in parts), np.int64, len(parts))
    epochs = np.repeat(np.fromiter((e for e, _ in parts), np.int64, len(parts)), lengths)
    positions = np.arange(len(epochs)) + np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    changes = [c for c, _ in chunks.values()]
    orders = _lane(changes, "orders")[positions]
    sort = np.lexsort((orders, epochs))
    positions, epochs, orders = positions[sort], epochs[sort], orders[sort]
    rows = _rows(changes, schema)
    if len(positions) != rows.num_rows or not (positions[1:] == positions[:-1] + 1).all():
        rows = take_rows(rows, positions)
    kinds = _lane(changes, "kinds")[positions]
    unchanged = {c: m[positions] for c, m in _unchanged(changes, schema).items()}
    if all(c.moved is None for c in changes):
        return Upserts(rows, epochs, kinds, unchanged)
    moved = np.concatenate([c.moved if c.moved is not None else np.zeros(len(c), np.bool_) for c in changes])[positions]
    return Upserts(rows, epochs, kinds, unchanged, _fill_from(kinds, epochs, moved))


def _fill_from(kinds: np.ndarray, epochs: Int64s, moved: np.ndarray) -> Int64s | None:
    """For each moved row, the delete just before it in its epoch; None where no row moved."""
    if not moved.any():
        return None
    deletes = np.where(kinds == DELETE, np.arange(len(kinds)), -1)
    last = np.maximum.accumulate(deletes)
    same = (last >= 0) & (epochs[np.maximum(last, 0)] == epochs)
    return np.where(moved & same, last, -1).astype(np.int64)


def _lane(changes: Sequence[TableChanges], name: str) -> np.ndarray:
    return np.concatenate([getattr(c, name) for c in changes]) if len(changes) > 1 else getattr(changes[0], name)


def _rows(changes: Sequence[TableChanges], schema: Schema) -> pa.RecordBatch:
    """The rows of all runs in the table's lanes."""
    batches = [redeclared(c.rows, schema) for c in changes]
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _unchanged(changes: Sequence[TableChanges], schema: Schema) -> dict[int, np.ndarray]:
    """Masks by column position of the table's schema, one entry a row of all runs."""
    if not any(c.unchanged for c in changes):
        return {}
    out = {}
    for position, column in enumerate(schema.columns):
        places = [place_of(column, c.rows.schema) for c in changes]
        if any(at in c.unchanged for c, at in zip(changes, places, strict=True)):
            nowhere = (np.zeros(len(c), np.bool_) for c in changes)
            found = zip(changes, places, nowhere, strict=True)
            out[position] = np.concatenate([c.unchanged.get(at, none) for c, at, none in found])
    return out
