"""Tables to which rows are only added: a version is the rows whose `since` column is beyond all that were published.

Always: the mark, the greatest value that was published, stands in the state folder's manifest in the place of a snapshot, and
moves with the version that holds it. A row that comes later with no greater value is never seen. Called by `publish_version`.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.publisher_state import Manifest, State
from headrace.connectors.spark.types import quoted

_SINCE = "@since:"
_ORDERED = (
    T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DecimalType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip


def check_since(rows: DataFrame, table: str, since: str) -> None:
    """Raise PublishError unless the column is there, and of a type that grows."""
    if since not in rows.columns:
        raise PublishError("`since` names a column that is not there", table=table, column=since,
                           columns=", ".join(rows.columns))  # fmt: skip
    kind = rows.schema[since].dataType
    if not isinstance(kind, _ORDERED):
        raise PublishError("`since` needs a number, a date or a timestamp", table=table, column=since,
                           found=kind.simpleString())  # fmt: skip


def rows_since(rows: DataFrame, table: str, since: str, state: State, manifest: Manifest) -> tuple[DataFrame, str]:
    """The rows beyond the mark, frozen, and the new mark as the manifest keeps it, without version and attempt."""
    value = _marked(rows, table, since, state, manifest)
    column = _ordered(rows, since)
    later = rows if value is None else rows.where(column.isNull() | (column > F.lit(value).cast(_kind(rows, since))))
    frozen = later.localCheckpoint(eager=True)
    greatest, null = frozen.agg(F.max(column).cast("string"), F.max(column.isNull())).collect()[0]
    if null:
        raise PublishError("the column of `since` is NULL", table=table, column=since, hint="leave such rows out")
    kept = greatest if greatest is not None else value
    return frozen, f"{_SINCE}{quote(since, safe='')}:{quote(kept or '', safe='')}"


def _marked(rows: DataFrame, table: str, since: str, state: State, manifest: Manifest) -> str | None:
    """The greatest value that was published, None where nothing was. Raises PublishError where nobody knows."""
    name = manifest.snapshots.get(table)
    if name is None:
        return None
    if name.startswith(_SINCE):
        column, value = name.rsplit("-", 2)[0].removeprefix(_SINCE).split(":")
        if unquote(column) != since:
            raise PublishError("the table was published since another column", table=table, column=unquote(column),
                               given=since)  # fmt: skip
        return unquote(value) or None
    if table in manifest.changed:
        raise PublishError("the last version was published as changes: which rows it had is not known", table=table,
                           hint="go on with `publish_changes`")  # fmt: skip
    before = rows.sparkSession.read.parquet(state.path(name).as_uri())
    check_since(before, table, since)
    value = before.agg(F.max(_ordered(before, since)).cast("string")).collect()[0][0]
    return None if value is None else str(value)


def _kind(rows: DataFrame, since: str) -> T.DataType:
    kind = rows.schema[since].dataType
    return T.LongType() if isinstance(kind, T.TimestampType) else kind


def _ordered(rows: DataFrame, since: str) -> Column:
    """The column; of a timestamp its microseconds, as its text is of the session's time zone."""
    column = F.col(quoted(since))
    return F.unix_micros(column) if isinstance(rows.schema[since].dataType, T.TimestampType) else column
