"""A table's rows under columns that are declared otherwise: added, dropped, renamed, or of a wider type.

Always: a column is found by its name, else by the name that it had before; one that is not there is NULL, and values change
their type only by an exact cast. Pure; the sidecar calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from headrace.engine.batch.updates import Bools, Updates, Upserts
from headrace.engine.schema import Column, Schema


def redeclared(rows: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """`rows` in the lanes of `schema`."""
    if rows.schema.equals(schema.arrow):
        return rows
    lanes = []
    for column in schema.columns:
        at, kind = place_of(column, rows.schema), column.type.arrow
        lanes.append(pa.nulls(rows.num_rows, kind) if at < 0 else rows.column(at).cast(kind))
    return pa.RecordBatch.from_arrays(lanes, schema=schema.arrow)


def place_of(column: Column, rows: pa.Schema) -> int:
    """Where rows have a column, -1 for nowhere."""
    at: int = rows.get_field_index(column.name)
    return at if at >= 0 or column.renamed_from is None else int(rows.get_field_index(column.renamed_from))


def redeclared_updates(updates: Updates, schema: Schema) -> Updates:
    """`updates` of a table, under `schema`."""
    return Updates(redeclared(updates.rows, schema), updates.times, updates.diffs)


def redeclared_upserts(upserts: Upserts, schema: Schema) -> Upserts:
    """`upserts` of a table, under `schema`."""
    unchanged = redeclared_masks(upserts.unchanged, upserts.rows.schema, schema)
    return replace(upserts, rows=redeclared(upserts.rows, schema), unchanged=unchanged)


def redeclared_masks(masks: Mapping[int, Bools], before: pa.Schema, schema: Schema) -> dict[int, Bools]:
    """Masks of rows by column position, which were of columns as `before` has them."""
    places = {place_of(column, before): at for at, column in enumerate(schema.columns)}
    return {places[at]: mask for at, mask in masks.items() if at in places}
