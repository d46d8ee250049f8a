"""The data source `headrace` of a Spark session: views are read and streamed, tables are published.

Always: nothing is opened before Spark asks for it; what an option says wrong is named with it. Spark plans each batch in a
new process, so what reads is not loaded where something is written. Registered by `headrace.spark.register`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from headrace.connectors.spark.errors import PublishError

if TYPE_CHECKING:
    from headrace.connectors.spark.writers import BatchWriter, StreamWriter
    from headrace.sidecar.lake.view_read import ViewReader
    from headrace.sidecar.lake.view_stream import ViewStream


class HeadraceSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """What stands in format(…)."""
        return "headrace"

    def schema(self) -> StructType:
        """See DataSource. A stream has two columns more: see `headrace.sidecar.lake.view_stream`."""
        from headrace.sidecar.lake.view_schema import Asked, spark_schema
        from headrace.sidecar.lake.view_stream import stream_schema

        asked = Asked(self.options)
        return stream_schema(asked) if self.options.get("changes") == "true" else spark_schema(asked.columns)

    def reader(self, schema: StructType) -> ViewReader:  # noqa: ARG002
        """See DataSource."""
        from headrace.sidecar.lake.view_read import ViewReader

        return ViewReader(self.options)

    def streamReader(self, schema: StructType) -> ViewStream:
        """See DataSource."""
        if self.options.get("changes") != "true" or len(schema) == 0:
            raise PublishError("a view is streamed as its changes", hint=".option('changes', 'true')")
        from headrace.sidecar.lake.view_stream import ViewStream

        return ViewStream(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """See DataSource."""
        if overwrite:
            raise PublishError("a whole table is not written this way",
                               hint="publish_version compares it with the last version; .mode('append') adds rows")  # fmt: skip
        from headrace.connectors.spark.writers import BatchWriter, Options

        return BatchWriter(Options.of(self.options, "upsert"), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """See DataSource."""
        if overwrite:
            raise PublishError("a stream is written in outputMode 'append' or 'update'", hint=".outputMode('append')")
        from headrace.connectors.spark.writers import Options, StreamWriter

        return StreamWriter(Options.of(self.options, "append"), schema)


def register(spark: SparkSession) -> None:
    """Let a session read and write format("headrace"). Its Python workers need `headrace`, as its driver does.

    The definitions of a declarative pipeline may not set what a read with conditions on keys needs: its specification does.
    """
    try:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")  # else a source that takes filters is refused
    except PySparkException as refused:
        if not str(refused.getCondition()).startswith("SESSION_MUTATION_IN_DECLARATIVE_PIPELINE"):
            raise
    spark.dataSource.register(HeadraceSource)
