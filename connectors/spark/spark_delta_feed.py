"""A Delta table's change data feed as Spark reads it (`readChangeFeed`): the same versions and rows as `delta_feed` gives.

Always: a version is read with the columns that the table had at it. Where a later version dropped or retyped one of them, Spark
refuses the older feed, and the error names the way out. Followed by `follow`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.connectors.spark.delta_feed import DeltaVersions, feed_unreadable, in_order, instant_of
from headrace.connectors.spark.errors import PublishError, spark_errors
from headrace.connectors.spark.lake_feed import At, checked
from headrace.connectors.spark.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""What a session needs beside Delta's jars."""
JARS = "io.delta:delta-spark_2.13:4.2.0"
_RETYPED = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"


class SparkDeltaFeed(DeltaVersions):
    """A Delta table that a Spark session reads: its place, our name of it, its key. See `Feed`."""

    def __init__(self, session: SparkSession, path: str, table: str, key: Sequence[str]) -> None:
        self.path, self.table, self.key = path, table, tuple(key)
        self._session = session
        self._instants: dict[int, int] = {}

    @property
    def schema(self) -> pa.Schema:
        """See `Feed.schema`."""
        return self._columns(self._version())

    def _columns(self, version: int) -> pa.Schema:
        with self._named("the Delta table cannot be read", version, "is it a Delta table? Of a version that is gone give the "
                         "rows by --previous FILE.parquet"):  # fmt: skip
            return self._as_of(version).limit(0).toArrow().schema

    def _version(self) -> int:
        with self._named("the Delta table cannot be read", None, f"is it a Delta table, and are Delta's jars there (--spark "
                         f"spark.jars.packages={JARS})?"):  # fmt: skip
            history = self._session.sql(f"describe history delta.{quoted(self.path)} limit 1")
            return int(history.collect()[0]["version"])

    def newest(self) -> At:
        """See `Feed.newest`."""
        self._newest = self._version()
        return self._at(self._newest)

    def named(self, own: int) -> At:
        """See `Feed.named`."""
        self._columns(own)
        return self._at(own)

    def instant(self, at: At) -> int:
        """See `Feed.instant`. Spark's own history tells the time of the log's file, which differs."""
        version = int(at.name)
        if version not in self._instants:
            self._instants[version] = self._committed(at)
        return self._instants[version]

    def _committed(self, at: At) -> int:
        file = f"{self.path.rstrip('/')}/_delta_log/{int(at.name):020d}.json"
        try:
            with spark_errors():
                lines = [row[0] for row in self._session.read.text(file).collect()]
        except PublishError:
            lines = []  # the log was cleaned up
        told = [entry["commitInfo"] for entry in map(json.loads, lines) if "commitInfo" in entry]
        return instant_of(told[0] if told else {}, self.table, at)

    def _as_of(self, version: int) -> DataFrame:
        return self._session.read.format("delta").option("versionAsOf", version).load(self.path)

    def snapshot(self, at: At) -> pa.Table:
        """See `Feed.snapshot`."""
        with self._named("a version of the table cannot be read", int(at.name), "was it vacuumed? Give its rows by --previous "
                         "FILE.parquet"):  # fmt: skip
            rows = self._as_of(int(at.name)).toArrow()
        return checked(self.table, self.key, rows)

    def changes(self, at: At) -> pa.Table:
        """See `Feed.changes`."""
        columns = self._columns(int(at.name))
        reader = self._session.read.format("delta").option("readChangeFeed", "true")
        try:
            with spark_errors():
                rows = (
                    reader.option("startingVersion", at.name).option("endingVersion", at.name).load(self.path).toArrow()
                )
        except PublishError as error:
            if _RETYPED in str(error):
                raise self._other_columns(at, columns.names) from error
            raise feed_unreadable(error, self.table, at, self.path) from error
        if any(f.name not in rows.schema.names or rows.schema.field(f.name).type != f.type for f in columns):
            raise self._other_columns(at, columns.names)
        return checked(self.table, self.key, in_order(columns.names, rows))

    def _other_columns(self, at: At, columns: Sequence[str]) -> PublishError:
        return PublishError(
            "a column of this version was dropped or retyped since, and Spark's change feed has the table's columns of now",
            table=self.table, version=at.name, columns=", ".join(columns),
            hint="follow it without --through spark, or publish the table as it is now with --snapshot",
        )  # fmt: skip

    def _named(self, what: str, version: int | None, hint: str) -> AbstractContextManager[None]:
        return spark_errors(what, table=self.table, path=self.path, version=version, hint=hint)
