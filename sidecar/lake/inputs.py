"""Where a load's rows come from, a share a task: row groups of Parquet files, data files of a lake table, or ranges of a Postgres
table's pages.

Always: every row of the input is of exactly one share; shares of one Postgres are read in one snapshot of it. `load` makes
them, and Spark's tasks read them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg
import pyarrow as pa
import pyarrow.dataset as ds
from psycopg import sql

from headrace.connectors.spark.iceberg_feed import IcebergFeed, first_line, open_table
from headrace.engine.schema import Schema
from headrace.sidecar.lake.runs import LoadError, conformed
from headrace.sidecar.operations import postgres_at_lsn
from headrace.sidecar.operations.resync import _SESSION, parse_bytes
from headrace.sidecar.transactions.pg_snapshot import PgSnapshot

_BATCH = 200_000
_BLOCK_BYTES = 8 << 20
"""Of lines of a COPY that are parsed at once."""


class Share(Protocol):
    """A task's part of a table; it can be pickled."""

    def batches(self, table: str, schema: Schema) -> Iterator[pa.RecordBatch]:
        """Its rows, in the engine's lanes. Raises LoadError."""


@dataclass(frozen=True)
class RowGroups:
    """Parts of Parquet files; `seen`: the data set's own columns, which a file may lack."""

    fragments: tuple[Any, ...]
    seen: pa.Schema

    def batches(self, table: str, schema: Schema) -> Iterator[pa.RecordBatch]:
        """See Share."""
        names = [n for n in schema.names if n in self.seen.names]
        for fragment in self.fragments:
            found = fragment.to_batches(schema=self.seen, columns=names, batch_size=_BATCH, use_threads=False)
            yield from conformed(table, schema, found)


def parquet_shares(path: str, table: str, tasks: int) -> list[Share]:
    """A Parquet file, or a folder of them (hive-style partitions are columns). Raises LoadError."""
    try:
        found = ds.dataset(path, format="parquet", partitioning="hive")
        groups = [g for f in found.get_fragments() for g in f.split_by_row_group()]
    except (OSError, pa.ArrowInvalid) as error:
        raise LoadError(f"the data cannot be read: {str(error).splitlines()[0]}", table=table, path=path,
                        hint="is it Parquet, and readable from here?") from error  # fmt: skip
    return [RowGroups(tuple(groups[k::tasks]), found.schema) for k in range(tasks) if groups[k::tasks]]


def delta_version(path: str, version: int | None) -> int:
    """The version of a Delta table to read: the one that is asked for, else its newest. Raises LoadError."""
    return int(_delta(path, version).version())


def delta_shares(path: str, version: int, table: str, tasks: int) -> list[Share]:
    """A Delta table at a version, as its Parquet files. Raises LoadError."""
    try:
        found = _delta(path, version).to_pyarrow_dataset()
        groups = [g for f in found.get_fragments() for g in f.split_by_row_group()]
    except Exception as error:  # deltalake has a class for some of them
        if isinstance(error, LoadError):
            raise
        raise LoadError(f"the Delta table cannot be read: {str(error).splitlines()[0]}", table=table, path=path,
                        version=version) from error  # fmt: skip
    return [RowGroups(tuple(groups[k::tasks]), found.schema) for k in range(tasks) if groups[k::tasks]]


def _delta(path: str, version: int | None) -> Any:
    try:
        from deltalake import DeltaTable
    except ImportError as error:
        raise LoadError(f"deltalake is not installed: {error}", hint="pip install 'headrace[delta]'") from error
    try:
        return DeltaTable(path, version=version)
    except Exception as error:
        raise LoadError(f"the Delta table cannot be read: {str(error).splitlines()[0]}", path=path,
                        version=version) from error  # fmt: skip


@dataclass(frozen=True)
class IcebergFiles:
    """Every `tasks`-th data file of a snapshot, from the `first` on: each task plans the snapshot by its metadata."""

    metadata: str
    properties: Mapping[str, str]
    snapshot: int
    first: int
    tasks: int

    def batches(self, table: str, schema: Schema) -> Iterator[pa.RecordBatch]:
        """See Share."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.table import StaticTable

        try:
            held = StaticTable.from_metadata(self.metadata, dict(self.properties))
            scan = held.scan(snapshot_id=self.snapshot)
            files = sorted(scan.plan_files(), key=lambda t: str(t.file.file_path))[self.first :: self.tasks]
            for file in files:
                found = ArrowScan(held.metadata, held.io, scan.projection(), AlwaysTrue()).to_table([file])
                yield from conformed(table, schema, found.to_batches(max_chunksize=_BATCH))
        except LoadError:
            raise
        except Exception as error:  # pyiceberg and its stores raise classes of their own
            raise LoadError(f"the Iceberg table cannot be read: {first_line(error)}", table=table,
                            snapshot=self.snapshot) from error  # fmt: skip


def iceberg_snapshot(name: str, snapshot: int | None) -> tuple[int, int]:
    """The snapshot that is meant, and its number among those of the table. Raises PublishError."""
    feed = IcebergFeed(name, name, (), {})
    at = feed.newest() if snapshot is None else feed.named(snapshot)
    return int(at.name), at.version


def iceberg_shares(name: str, snapshot: int, tasks: int) -> list[Share]:
    """An Iceberg table's snapshot: its data files, a share a task. Raises PublishError."""
    held = open_table(name, {})
    files = sum(1 for _ in held.scan(snapshot_id=snapshot).plan_files())
    count = min(tasks, files)
    return [IcebergFiles(held.metadata_location, dict(held.io.properties), snapshot, k, count) for k in range(count)]


@dataclass(frozen=True)
class Pages:
    """Pages `start` to `stop` of a Postgres table, as `snapshot` shows them; `stop` None: to its end."""

    url: str
    snapshot: str
    start: int
    stop: int | None

    def batches(self, table: str, schema: Schema) -> Iterator[pa.RecordBatch]:
        """See Share."""
        columns = sql.SQL(", ").join(map(sql.Identifier, schema.names))
        within = sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({self.start},0)"))
        if self.stop is not None:
            within += sql.SQL(" and ctid < {}::tid").format(sql.Literal(f"({self.stop},0)"))
        of = sql.Identifier(*table.split(".", 1))
        query = sql.SQL("copy (select {} from {} where {}) to stdout").format(columns, of, within)
        try:
            with psycopg.connect(self.url) as db:
                db.execute("set transaction isolation level repeatable read, read only")
                db.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(self.snapshot)))
                for name, value in _SESSION.items():
                    db.execute("select set_config(%s, %s, true)", (name, value))
                with db.cursor() as cursor, cursor.copy(query) as copy:
                    yield from _parsed(schema, copy)
        except psycopg.Error as error:
            raise _refused(table, error) from error


def _parsed(schema: Schema, copy: Any) -> Iterator[pa.RecordBatch]:
    held: list[bytes] = []
    size = 0
    for block in copy:  # one row each, as Postgres sends them
        held.append(bytes(block))
        size += len(held[-1])
        if size >= _BLOCK_BYTES:
            data = b"".join(held)
            end = data.rfind(b"\n") + 1
            held, size = [data[end:]], len(data) - end
            if end:
                yield parse_bytes(schema, data[:end])
    if size:
        yield parse_bytes(schema, b"".join(held))


class PostgresSnapshot:
    """One moment of a Postgres, which `db` holds open while tasks read it. `seen`: which transactions it shows; `lsn`: none of
    these is beyond it."""

    def __init__(self, url: str, db: psycopg.Connection, lsn: int | None = None) -> None:
        self._url, self._db = url, db
        try:
            row = db.execute("select pg_export_snapshot(), pg_current_snapshot()::text").fetchone()
            at = db.execute("select (pg_current_wal_insert_lsn() - '0/0')::bigint").fetchone()
        except psycopg.Error as error:
            raise _refused("", error) from error
        assert row is not None
        assert at is not None
        self._name = str(row[0])
        self.seen, self.lsn = PgSnapshot.parse(str(row[1])), int(at[0]) if lsn is None else lsn

    @classmethod
    @contextmanager
    def of_now(cls, url: str) -> Iterator[PostgresSnapshot]:
        """The moment of the call. Raises LoadError."""
        try:
            db = psycopg.connect(url)
            db.execute("set transaction isolation level repeatable read, read only")
        except psycopg.Error as error:
            raise _refused("", error) from error
        with closing(db):
            yield cls(url, db)

    @classmethod
    @contextmanager
    def at_lsn(cls, url: str) -> Iterator[PostgresSnapshot]:
        """As `of_now`, and it shows exactly the transactions up to its LSN."""
        name = f"headrace_load_{random.randrange(10**9)}"  # noqa: S311
        try:
            with postgres_at_lsn.snapshot(url, name) as (lsn, db):
                yield cls(url, db, lsn)
        except psycopg.Error as error:
            raise _refused("", error) from error

    def shares(self, table: str, tasks: int) -> Sequence[Share]:
        """A table's pages, as equal parts. Raises LoadError."""
        try:
            row = self._db.execute(
                "select pg_relation_size(to_regclass(%s)) / current_setting('block_size')::bigint",
                (".".join(_quoted(p) for p in table.split(".", 1)),),
            ).fetchone()
        except psycopg.Error as error:
            raise _refused(table, error) from error
        if row is None or row[0] is None:
            raise LoadError("there is no such table in the source", table=table)
        step = max(1, -(-int(row[0]) // tasks))
        starts = list(range(0, max(1, int(row[0])), step))
        return [Pages(self._url, self._name, at, None if at == starts[-1] else at + step) for at in starts]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _refused(table: str, error: psycopg.Error) -> LoadError:
    return LoadError(
        f"the source cannot be read: {error.diag.message_primary or str(error).splitlines()[0]}", table=table or None,
        hint="its role needs SELECT, and the table must have the columns that are declared",
    )  # fmt: skip
