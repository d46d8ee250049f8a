"""The rows of TPC-H's tables at any scale, as the package tpchgen-cli makes them, in our lanes.

Always: the same scale gives the same rows; they are made once and kept in the cache as files that are mapped, so that a table
takes no memory of its own. Called by `history` and the benchmark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.engine.operators.expressions.core.text_io import from_text
from headrace.engine.schema import Column, Kind, Schema
from headrace.sidecar.devstack.cache import cache_folder
from tests.oracle.test_tpch import schema_of
from tests.views.tpch import TABLES

Tables = dict[str, pa.RecordBatch]


def tables(scale: float) -> Tables:
    """All tables at `scale`; 1 has six million lines."""
    folder = cache_folder() / "tpch-lanes" / f"{scale:g}"
    if not folder.is_dir():
        _make(folder, scale)
    return {table: _mapped(folder / f"{table}.arrow") for table in TABLES}


def _mapped(file: Path) -> pa.RecordBatch:
    with pa.memory_map(str(file)) as source, pa.ipc.open_file(source) as reader:
        return reader.get_batch(0)


def _make(folder: Path, scale: float) -> None:
    """Complete or absent: another process may make the same at the same time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    program = Path(sys.executable).with_name("tpchgen-cli")
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        subprocess.run(
            [program, "parquet", "-s", f"{scale:g}", "-o", f"{made}/rows"], check=True, stdout=subprocess.DEVNULL
        )
        os.mkdir(f"{made}/lanes")
        for table in TABLES:
            rows = _in_lanes(pq.read_table(f"{made}/rows/{table}.parquet"), schema_of(table))
            with pa.ipc.new_file(f"{made}/lanes/{table}.arrow", rows.schema) as writer:
                writer.write_batch(rows)
        if not folder.is_dir():
            shutil.move(f"{made}/lanes", folder)


def _in_lanes(made: pa.Table, schema: Schema) -> pa.RecordBatch:
    columns = [_in_lane(made.column(c.name).combine_chunks(), c) for c in schema.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def _in_lane(made: pa.Array, column: Column) -> pa.Array:
    if column.type.kind is Kind.BPCHAR:  # blanks are part of it
        return from_text(made.cast(pa.large_string()), column.type).values
    return made.cast(column.type.arrow)
