"""An Iceberg table's snapshots as Spark reads them (`create_changelog_view`): the same versions and rows as `iceberg_feed` gives.

Always: what a snapshot changed is read between it and the one before it, with the key as identifier columns. Its rows have the
columns that the table had at it, under the names of then. A snapshot that deletes by files of deletes is refused by name, as
Iceberg's changelog is. Followed by `follow`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.connectors.spark.errors import PublishError, spark_errors
from headrace.connectors.spark.iceberg_history import (
    IcebergHistory,
    Snapshot,
    unreadable,
    without_numbers,
    without_snapshots,
)
from headrace.connectors.spark.lake_feed import CHANGE_TYPE, At, checked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
_VIEW = "headrace_changelog"
_NAME = re.compile(r"^[^./`'\\]+(\.[^./`'\\]+){2,}$")
_KINDS = {
    "INSERT": "insert",
    "DELETE": "delete",
    "UPDATE_BEFORE": "update_preimage",
    "UPDATE_AFTER": "update_postimage",
}
_BY_DELETES = "Delete files are currently not supported"
_TWICE = "multiple rows with the same identifier"


def settings(name: str) -> Mapping[str, str]:
    """What a session needs beside Iceberg's jars and the catalog's own settings to read this table. Raises PublishError for what
    names no table of a catalog."""
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{_catalog(name)}.cache-enabled": "false",
    }


def _catalog(name: str) -> str:
    if not _NAME.match(name):
        raise PublishError("Spark reads an Iceberg table by its catalog", name=name,
                           hint="iceberg:CATALOG.NAMESPACE.TABLE; a path is followed without --through spark")  # fmt: skip
    return name.partition(".")[0]


class SparkIcebergFeed(IcebergHistory):
    """An Iceberg table of a catalog that a Spark session has: its name, our name of it, its key. See `Feed`."""

    def __init__(self, session: SparkSession, name: str, table: str, key: Sequence[str]) -> None:
        self.name, self.table, self.key = name, table, tuple(key)
        self._session, self._catalog = session, _catalog(name)
        self._now: Any = None
        self._lineage: tuple[Snapshot, ...] = ()

    def _load(self) -> Any:
        """The table as Iceberg's own library has it: no SQL tells the numbers of snapshots, and the names that columns had."""
        if self._session.conf.get(f"spark.sql.catalog.{self._catalog}", None) is None:
            raise PublishError(
                "the Spark session has no such catalog", catalog=self._catalog, table=self.table,
                hint=f"--spark spark.sql.catalog.{self._catalog}=org.apache.iceberg.spark.SparkCatalog, and what that needs",
            )  # fmt: skip
        with spark_errors("the Iceberg table cannot be read", table=self.table, name=self.name,
                          hint=f"are Iceberg's jars there (--spark spark.jars.packages={JARS})?"):  # fmt: skip
            jvm = self._session._jvm
            assert jvm is not None, "a classic session, as `spark_feeds` makes it"
            return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self._session._jsparkSession, self.name)

    @property
    def schema(self) -> pa.Schema:
        """See `Feed.schema`."""
        self._load()
        with spark_errors("the Iceberg table cannot be read", table=self.table, name=self.name):
            return self._session.table(self.name).limit(0).toArrow().schema

    def newest(self) -> At:
        """See `Feed.newest`."""
        self._now = self._load()
        current = self._now.currentSnapshot()
        if current is None:
            raise without_snapshots(self.table, self.name)
        found = []
        while current is not None:
            found.append(self._of(current))
            current = None if found[-1].parent is None else self._now.snapshot(found[-1].parent)
        self._lineage = tuple(found)
        return found[0].at

    def _of(self, snapshot: Any) -> Snapshot:
        if not snapshot.sequenceNumber():
            raise without_numbers(self.table, snapshot.snapshotId())
        return Snapshot(snapshot.sequenceNumber(), snapshot.snapshotId(), snapshot.parentId(), snapshot.timestampMillis(),
                        snapshot.schemaId())  # fmt: skip

    def lineage(self) -> Sequence[Snapshot]:
        """See `IcebergHistory.lineage`."""
        return self._lineage

    def named(self, own: int) -> At:
        """See `Feed.named`."""
        found = self._load().snapshot(own)
        if found is None:
            raise PublishError("the table has no such snapshot", table=self.table, snapshot=own)
        return self._of(found).at

    def snapshot(self, at: At) -> pa.Table:
        """See `Feed.snapshot`."""
        try:
            with spark_errors():
                rows = self._session.read.option("versionAsOf", at.name).table(self.name).toArrow()
        except PublishError as error:
            raise unreadable(error.what, self.table, at.name) from error
        return checked(self.table, self.key, rows)

    def changes(self, at: At) -> pa.Table:
        """See `Feed.changes`."""
        snapshot = next(s for s in self._lineage if s.at == at)
        names = self._names(snapshot)
        for column in self.key:
            if column not in names:
                raise PublishError("the key names a column that is not there", table=self.table, column=column,
                                   columns=", ".join(names))  # fmt: skip
        try:
            with spark_errors():
                self._session.sql(self._call(snapshot, [names[k] for k in self.key]))
                rows = self._session.table(_VIEW).toArrow()
        except PublishError as error:
            raise self._refused(error, snapshot) from error
        kinds = pa.array([_KINDS[k] for k in rows.column(CHANGE_TYPE).to_pylist()], pa.string())
        made = rows.select(list(names.values())).rename_columns(list(names))
        return checked(self.table, self.key, made.append_column(CHANGE_TYPE, kinds))

    def _names(self, snapshot: Snapshot) -> dict[str, str]:
        """The columns that the table had at a snapshot: name of then → name of now, by which Spark's changelog has them."""
        now = self._now.schema()
        then = now if snapshot.schema is None else self._now.schemas().get(snapshot.schema)
        found = {}
        for column in then.columns():
            name = now.findColumnName(column.fieldId())
            if name is None:
                raise self._other_columns(snapshot, column.name())
            found[column.name()] = name
        return found

    def _call(self, snapshot: Snapshot, key: Sequence[str]) -> str:
        ids = {"end-snapshot-id": snapshot.id}
        if snapshot.parent is not None:
            ids["start-snapshot-id"] = snapshot.parent
        options = ", ".join(f"'{name}', '{value}'" for name, value in ids.items())
        columns = ", ".join(map(_literal, key))
        return (
            f"call {self._catalog}.system.create_changelog_view(table => '{self.name}', options => map({options}), "
            f"changelog_view => '{_VIEW}', identifier_columns => array({columns}), compute_updates => true)"
        )

    def _refused(self, error: PublishError, snapshot: Snapshot) -> PublishError:
        """What Spark says of a changelog, as the errors that following has."""
        if _BY_DELETES in str(error):
            return PublishError(
                "the snapshot deletes rows by files of deletes (merge-on-read), which Iceberg's changelog does not read",
                table=self.table, snapshot=snapshot.id,
                hint="follow it without --through spark, or write the table by copy-on-write",
            )  # fmt: skip
        if _TWICE in str(error):
            return PublishError("a primary key stands in several rows of one version", table=self.table, snapshot=snapshot.id,
                                hint="name columns under the key that identify a row")  # fmt: skip
        return unreadable(error.what, self.table, snapshot.id)

    def _other_columns(self, snapshot: Snapshot, column: str) -> PublishError:
        return PublishError(
            "a column of this snapshot was dropped since, and Spark's changelog has the table's columns of now",
            table=self.table, snapshot=snapshot.id, column=column,
            hint="follow it without --through spark, or publish the table as it is now with --snapshot",
        )  # fmt: skip


def _literal(text: str) -> str:
    """A text as Spark's SQL has it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
