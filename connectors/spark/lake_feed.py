"""A lake table that tells its changes: the port that follows it, and which of its columns can be carried exactly.

Always: the number that a version of the table has among ours is told by the table alone. Delta and Iceberg have two
implementations each, one without a JVM and one through Spark, which give the same rows. Used by `follow` and `common_clock`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.spark.errors import PublishError

CHANGE_TYPE = "_change_type"
BESIDE = (CHANGE_TYPE, "_commit_version", "_commit_timestamp")
"""Columns that a feed may give beside the table's."""
_POSTGRES: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean", pa.int8(): "smallint", pa.int16(): "smallint", pa.int32(): "integer", pa.int64(): "bigint",
    pa.float32(): "real", pa.float64(): "double precision", pa.string(): "text", pa.large_string(): "text",
    pa.string_view(): "text", pa.binary(): "bytea", pa.large_binary(): "bytea", pa.binary_view(): "bytea",
    pa.date32(): "date",
}  # fmt: skip


@dataclass(frozen=True)
class At:
    """A version of a lake table: its number among ours, and how the lake calls it."""

    version: int
    name: str


class Feed(Protocol):
    """A lake table that tells what each of its versions changed. Raises PublishError."""

    @property
    def table(self) -> str:
        """Our name of it, "schema.table"."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns now."""

    def newest(self) -> At:
        """Its version now; what is asked afterwards is asked of the table as it is then."""

    def after(self, version: int) -> Sequence[At]:
        """Its versions after this one of ours, up to the newest, oldest first."""

    def at(self, version: int) -> At:
        """The version that has this number among ours."""

    def named(self, own: int) -> At:
        """The version that the lake calls so."""

    def instant(self, at: At) -> int:
        """When a version was committed, in ms since 1970, as its writer's clock said. It never changes."""

    def snapshot(self, at: At) -> pa.Table:
        """All rows of a version."""

    def changes(self, at: At) -> pa.Table:
        """What a version changed: rows, with a column `_change_type` beside: insert, update_preimage, update_postimage or
        delete."""


def postgres_type(kind: pa.DataType) -> str | None:
    """The Postgres type that holds every value; None: there is none.

    >>> postgres_type(pa.decimal128(10, 2)), postgres_type(pa.timestamp("us", "UTC")), postgres_type(pa.list_(pa.int8()))
    ('numeric(10,2)', 'timestamp with time zone', None)
    """
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp without time zone" if kind.tz is None else "timestamp with time zone"
    return _POSTGRES.get(kind)


def describe(feed: Feed) -> dict[str, object]:
    """The `tables:` entry of headrace.yaml. Raises PublishError."""
    schema = feed.schema
    check_schema(feed.table, feed.key, schema)
    columns = [
        {"name": f.name, "data_type": postgres_type(f.type), **({"nullable": False} if f.name in feed.key else {})}
        for f in schema
    ]
    return {"name": feed.table, "key": list(feed.key), "columns": columns}


def checked(table: str, key: Sequence[str], rows: pa.Table) -> pa.Table:
    """`rows` of types that JSON is made of. Raises PublishError for what cannot be carried exactly."""
    check_schema(table, key, pa.schema([f for f in rows.schema if f.name not in BESIDE]))
    views = {f.name: pa.large_string() for f in rows.schema if f.type == pa.string_view()}
    views |= {f.name: pa.large_binary() for f in rows.schema if f.type == pa.binary_view()}
    for name, kind in views.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, pc.cast(rows.column(at), kind))
    return rows


def check_schema(table: str, key: Sequence[str], schema: pa.Schema) -> None:
    """Raise PublishError for a key that is none, or a column that has no type of Postgres."""
    for name in key:
        if name not in schema.names:
            raise PublishError("the key names a column that is not there", table=table, column=name,
                               columns=", ".join(schema.names))  # fmt: skip
        if pa.types.is_floating(schema.field(name).type):
            raise PublishError("a floating-point column cannot be part of a key", table=table, column=name)
    for field in schema:
        if postgres_type(field.type) is None:
            raise PublishError(f"a column of type {field.type} cannot be carried exactly", table=table,
                               column=field.name, hint="keep it as text in the table")  # fmt: skip
