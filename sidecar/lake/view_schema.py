"""The columns and rows of a view or a table in Spark's types.

Always: what Spark has no type for that holds every value (a numeric without digits, uuid, json, time, types known by their
text) is a string of Postgres's text; nothing is rounded. Called by the readers of format("headrace").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.connectors.spark.errors import PublishError
from headrace.engine.operators.expressions.core.text_io import from_text
from headrace.engine.operators.expressions.core.text_output import to_text
from headrace.engine.schema import Column, DataType, Kind, Schema
from headrace.sidecar.config.config import Settings, load
from headrace.sidecar.state.checkpoint import Manifest
from headrace.sidecar.wiring.project import Project, read_project
from headrace.sidecar.wiring.run_states import newest_manifest
from headrace.views.compile import CompiledView

_SPARK: Mapping[Kind, T.DataType] = {
    Kind.BOOLEAN: T.BooleanType(),
    Kind.SMALLINT: T.ShortType(),
    Kind.INTEGER: T.IntegerType(),
    Kind.BIGINT: T.LongType(),
    Kind.REAL: T.FloatType(),
    Kind.DOUBLE: T.DoubleType(),
    Kind.BYTEA: T.BinaryType(),
    Kind.DATE: T.DateType(),
    Kind.TIMESTAMP: T.TimestampNTZType(),
    Kind.TIMESTAMPTZ: T.TimestampType(),
}
_CALENDAR = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ)
_FIRST, _LAST = "0001-01-01", "9999-12-31T23:59:59.999999"


class ReadError(PublishError):
    """A view that Spark cannot be given as it was asked for."""

    code = "read"


_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
"""Instants in UTC: pyspark 4.1 has them so by default, and does not know the argument."""


def spark_type(kind: DataType) -> T.DataType:
    """The Spark type that holds every value of a Postgres type."""
    if kind.kind is Kind.NUMERIC and kind.fixed_scale:
        scale = max(kind.scale or 0, 0)
        return T.DecimalType(max(kind.precision or 38, scale) if (kind.scale or 0) >= 0 else 38, scale)
    return _SPARK.get(kind.kind, T.StringType())


def spark_schema(columns: Sequence[Column]) -> T.StructType:
    """The columns of a view."""
    return T.StructType([T.StructField(c.name, spark_type(c.type)) for c in columns])


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """As Spark wants them from a Python worker."""
    return to_arrow_schema(spark_schema(columns), **_UTC)


def as_spark(columns: Sequence[Column], rows: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """The engine's rows for Spark. Raises ReadError for a date that Spark's calendar does not have."""
    wanted = arrow_schema(columns)
    made = [_lane(c, rows.column(k), wanted.field(k).type, name) for k, c in enumerate(columns)]
    return pa.RecordBatch.from_arrays(made, schema=wanted)


def _lane(column: Column, values: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if column.type.kind in _CALENDAR:
        bounds = [pa.scalar(t).cast(pa.timestamp("us")) for t in (_FIRST, _LAST)]
        plain = (
            values.cast(pa.int64()) if column.type.kind is not Kind.DATE else values.cast(pa.int32()).cast(pa.int64())
        )
        unit = 86_400_000_000 if column.type.kind is Kind.DATE else 1
        low, high = (b.cast(pa.int64()).as_py() // unit for b in bounds)
        outside = pc.or_(pc.less(plain, low), pc.greater(plain, high))
        if pc.any(outside).as_py():
            raise ReadError(
                "a date lies outside Spark's years 1 to 9999, or is infinite", view=name, column=column.name,
                hint=f"leave the column out by .option('columns', …), or select {column.name}::text",
            )  # fmt: skip
    if pa.types.is_string(wanted) and not pa.types.is_large_string(values.type):
        values = to_text(values, column.type)
    return values.cast(wanted)


def from_texts(columns: Sequence[Column], texts: Sequence[Sequence[str | None]]) -> pa.RecordBatch:
    """Rows of Postgres's texts, as lists, in the engine's lanes."""
    schema = Schema(tuple(columns))
    lists = list(zip(*texts, strict=True)) or [()] * len(columns)
    made = [_read(list(values), column) for values, column in zip(lists, columns, strict=True)]
    return pa.RecordBatch.from_arrays(made, schema=schema.arrow)


def from_json(columns: Sequence[Column], values: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Rows as a Kafka sink writes them, in the engine's lanes; a column that is not there is NULL."""
    texts = [[_text(value.get(c.name)) for c in columns] for value in values]
    return from_texts(columns, texts)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return orjson.dumps(value).decode()
    return repr(value) if isinstance(value, float) else str(value)


def _read(values: list[str | None], column: Column) -> pa.Array:
    read = from_text(pa.array(values, pa.large_string()), column.type)
    lane = read.values
    return lane.combine_chunks() if isinstance(lane, pa.ChunkedArray) else lane


class Asked:
    """What is asked for: a view or a table of one configuration; `columns`: those that are wanted, in their order."""

    def __init__(self, options: Mapping[str, str]) -> None:
        if "config" not in options:
            raise ReadError("an option is missing", option="config", hint=".option('config', 'headrace.yaml')")
        given = [n for n in ("view", "table") if options.get(n)]
        if len(given) != 1:
            raise ReadError("a view or a table is read", given=", ".join(given) or "neither",
                            hint=".option('view', …) or .option('table', …)")  # fmt: skip
        self.config = Path(options["config"])
        self.is_table = given[0] == "table"
        self.name = options[given[0]]
        self.settings: Settings = load(self.config)
        self.project: Project = read_project(self.settings)
        self.tables = self._tables()
        self.schema = self._schema()
        self.positions = self._positions(options.get("columns"))
        self.columns = tuple(self.schema.columns[k] for k in self.positions)

    @property
    def manifest(self) -> Manifest | None:
        """The last checkpoint."""
        return newest_manifest(self.settings)

    @property
    def views(self) -> tuple[CompiledView, ...]:
        """The views of the configuration, compiled."""
        return self.project.compile(self.tables)

    @property
    def view(self) -> CompiledView:
        """The view that is asked for."""
        found = next((v for v in self.views if v.name == self.name), None)
        if found is None:
            raise ReadError("there is no such view", view=self.name, config=self.config,
                            views=", ".join(v.name for v in self.views))  # fmt: skip
        return found

    def _tables(self) -> dict[str, Schema]:
        if not self.project.unknown:
            return dict(self.project.tables)
        manifest = self.manifest
        if manifest is None:
            raise ReadError(
                "the tables' columns are told by messages, and no checkpoint has them yet",
                tables=", ".join(self.project.unknown), hint="declare the columns, or wait for the first checkpoint",
            )  # fmt: skip
        kept = {
            name: Schema.of([Column(n, DataType.parse(t)) for n, t in fact["columns"]], fact["key"] or None)
            for name, fact in manifest.tables.items()
        }
        return {**kept, **self.project.tables}

    def _schema(self) -> Schema:
        if not self.is_table:
            return self.view.schema
        if self.name not in self.tables:
            raise ReadError("there is no such table", table=self.name, tables=", ".join(sorted(self.tables)))
        return self.tables[self.name]

    def _positions(self, wanted: str | None) -> tuple[int, ...]:
        names = [c.name for c in self.schema.columns]
        chosen = names if wanted is None else [n.strip() for n in wanted.split(",")]
        for name in chosen:
            if name not in names:
                raise ReadError("there is no such column", column=name, of=self.name, columns=", ".join(names))
        return tuple(names.index(n) for n in chosen)
