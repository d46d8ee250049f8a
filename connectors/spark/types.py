"""Spark's types as Postgres's, and a row as the JSON that carries it exactly, made by Spark itself.

Always: two rows have the same JSON exactly when they have the same image (NULL, scale, minus zero and NaN included),
so that snapshots are compared by it. What could not arrive exactly is refused by name. Called by `snapshot_diff` and
`publish`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.connectors.spark.errors import PublishError

_POSTGRES: dict[type[T.DataType], str] = {
    T.BooleanType: "boolean",
    T.ByteType: "smallint",
    T.ShortType: "smallint",
    T.IntegerType: "integer",
    T.LongType: "bigint",
    T.FloatType: "real",
    T.DoubleType: "double precision",
    T.StringType: "text",
    T.BinaryType: "bytea",
    T.DateType: "date",
    T.TimestampType: "timestamp with time zone",
    T.TimestampNTZType: "timestamp without time zone",
}
_HINTS = {
    "array": "publish it as text: to_json(column)",
    "map": "publish it as text: to_json(column)",
    "struct": "publish it as text: to_json(column)",
    "variant": "publish it as text: to_json(column)",
    "void": "give it a type: cast(column as …)",
}


def postgres_type(kind: T.DataType) -> str | None:
    """The Postgres type that holds every value of a Spark type, as format_type() spells it; None: there is none."""
    if isinstance(kind, T.DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    if isinstance(kind, T.VarcharType):
        return f"character varying({kind.length})"
    if isinstance(kind, T.CharType):
        return f"character({kind.length})"
    return _POSTGRES.get(type(kind))


def describe(schema: T.StructType, table: str, key: Sequence[str]) -> dict[str, object]:
    """The `tables:` entry of headrace.yaml for a dataset. Raises PublishError for a type that cannot be carried."""
    check_columns(schema, table, key)
    columns: list[dict[str, object]] = []
    for field in schema.fields:
        column: dict[str, object] = {"name": field.name, "data_type": postgres_type(field.dataType)}
        if field.name in key:
            column["nullable"] = False
        columns.append(column)
    return {"name": table, "key": list(key), "columns": columns}


def check_columns(schema: T.StructType, table: str, key: Sequence[str]) -> None:
    """Raise PublishError unless every column can be carried and the key is made of columns that can identify a row."""
    seen: set[str] = set()
    for field in schema.fields:
        if field.name.lower() in {s.lower() for s in seen}:  # Spark's own names do not mind their case
            raise PublishError("two columns have one name", table=table, column=field.name, hint="rename one of them")
        seen.add(field.name)
        if postgres_type(field.dataType) is None:
            kind = field.dataType.typeName()
            raise PublishError(
                f"a column of type {field.dataType.simpleString()} cannot be carried exactly", table=table,
                column=field.name, hint=_HINTS.get(kind, "cast it to text, a number or a timestamp"),
            )  # fmt: skip
    if not key or len(set(key)) != len(key):
        raise PublishError(
            "a key needs columns, each once", table=table, key=",".join(key), hint="name the primary key"
        )
    for name in key:
        if name not in seen:
            raise PublishError(
                "the key names a column that is not there", table=table, column=name, columns=", ".join(sorted(seen))
            )
        if isinstance(schema[name].dataType, T.FloatType | T.DoubleType):
            raise PublishError(
                "a floating-point column cannot be part of a key", table=table, column=name, hint="cast it to decimal"
            )


def encoded(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """`rows` as two JSON texts: `key` (the key columns) and `after` (all columns, NULLs written out)."""
    kinds = {f.name: f.dataType for f in rows.schema.fields}
    with exact_casts(rows.sparkSession):
        return rows.select(
            image({n: kinds[n] for n in key}).alias("key"),
            image(kinds).alias("after"),
        )


def quoted(name: str) -> str:
    """A column's name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def image(kinds: Mapping[str, T.DataType], within: str = "") -> Column:
    """These columns as one JSON text; `within`: the struct that holds them, quoted, with its dot. Use it in `exact_casts`."""
    columns = [_exact(name, kind, within + quoted(name)) for name, kind in kinds.items()]
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})


def _exact(name: str, kind: T.DataType, quoted: str) -> Column:
    """One column in the spelling that the decoder reads: the session's time zone plays no part."""
    if isinstance(kind, T.DecimalType):
        made = F.col(quoted).cast("string")
    elif isinstance(kind, T.DateType):
        made = F.unix_date(F.col(quoted))
    elif isinstance(kind, T.TimestampNTZType):
        # The difference of two zoneless timestamps is exact; its microseconds are the value that Debezium sends.
        since = f"cast({quoted} - timestamp_ntz'1970-01-01 00:00:00' as interval second)"
        made = F.expr(f"cast(cast({since} as decimal(20, 6)) * 1000000 as bigint)")
    elif isinstance(kind, T.TimestampType):
        at = f"timestamp_ntz'1970-01-01 00:00:00' + interval '0.000001' second * unix_micros({quoted})"
        made = F.concat(F.translate(F.expr(f"cast({at} as string)"), " ", "T"), F.lit("Z"))
    else:
        made = F.col(quoted)
    return made.alias(name)


@contextmanager
def exact_casts(spark: SparkSession) -> Iterator[None]:
    """Inside it Spark's ANSI mode is on: casts print decimals plainly (not 1E-7) and fail instead of giving NULL."""
    name = "spark.sql.ansi.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, "true")
    try:
        yield
    finally:
        spark.conf.set(name, before or "true")
