"""An Iceberg table's snapshots: each is the version of ours that its sequence number says.

Always: what a snapshot changed is told by the files, and their deletes, in which it differs from the one before it; no others
are read. Rows before and after have the columns of the later one. Read by `pyiceberg`, without a JVM. Followed by `follow`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.iceberg_history import (
    IcebergHistory,
    Snapshot,
    unreadable,
    without_numbers,
    without_snapshots,
)
from headrace.connectors.spark.lake_feed import CHANGE_TYPE, At, checked

_METADATA = re.compile(r"^v?(\d+).*\.metadata\.json$")


def open_table(name: str, properties: Mapping[str, str]) -> Any:
    """A table: CATALOG.NAMESPACE.TABLE of a catalog that pyiceberg's own configuration has, or the path of a table or of its
    metadata. Raises PublishError."""
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.table import StaticTable
    except ImportError as error:
        raise PublishError(f"pyiceberg is not installed: {error}", hint="pip install 'headrace[iceberg]'") from error
    try:
        if "/" in name:
            return StaticTable.from_metadata(_newest_metadata(name), dict(properties))
        catalog, _, rest = name.partition(".")
        return load_catalog(catalog, **properties).load_table(rest)
    except Exception as error:  # pyiceberg and its stores raise classes of their own
        raise PublishError(f"the Iceberg table cannot be read: {first_line(error)}", name=name,
                           hint="CATALOG.NAMESPACE.TABLE, or the path of the table or of a metadata.json") from error  # fmt: skip


def _newest_metadata(name: str) -> str:
    """The metadata file of a table's folder, where no hint tells it; else the name as it is."""
    folder = Path(name.removeprefix("file://")) / "metadata"
    if name.endswith(".metadata.json") or not folder.is_dir() or (folder / "version-hint.text").exists():
        return name
    found = {int(m[1]): p for p in folder.iterdir() if (m := _METADATA.match(p.name))}
    return str(found[max(found)]) if found else name


def first_line(error: BaseException) -> str:
    """What an error says first."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def sequence_of(snapshot: Any, table: str) -> int:
    """The number of a snapshot among those of its table. Raises PublishError for a table that counts none."""
    if not snapshot.sequence_number:
        raise without_numbers(table, snapshot.snapshot_id)
    return int(snapshot.sequence_number)


class IcebergFeed(IcebergHistory):
    """An Iceberg table: its name or place, our name of it, its key, and properties of catalog and store. See `Feed`."""

    def __init__(self, name: str, table: str, key: Sequence[str], properties: Mapping[str, str]) -> None:
        self.name, self.table, self.key, self._properties = name, table, tuple(key), dict(properties)
        self._now: Any = None

    @property
    def schema(self) -> pa.Schema:
        """See `Feed.schema`."""
        return open_table(self.name, self._properties).schema().as_arrow()

    def newest(self) -> At:
        """See `Feed.newest`."""
        self._now = open_table(self.name, self._properties)
        snapshot = self._now.current_snapshot()
        if snapshot is None:
            raise without_snapshots(self.table, self.name)
        return self._of(snapshot).at

    def _of(self, snapshot: Any) -> Snapshot:
        return Snapshot(sequence_of(snapshot, self.table), snapshot.snapshot_id, snapshot.parent_snapshot_id,
                        snapshot.timestamp_ms, snapshot.schema_id)  # fmt: skip

    def lineage(self) -> Sequence[Snapshot]:
        """See `IcebergHistory.lineage`."""
        from pyiceberg.table.snapshots import ancestors_of

        return [self._of(s) for s in ancestors_of(self._now.current_snapshot(), self._now.metadata)]

    def named(self, own: int) -> At:
        """See `Feed.named`."""
        found = open_table(self.name, self._properties).snapshot_by_id(own)
        if found is None:
            raise PublishError("the table has no such snapshot", table=self.table, snapshot=own)
        return self._of(found).at

    def snapshot(self, at: At) -> pa.Table:
        """See `Feed.snapshot`."""
        scan = self._now.scan(snapshot_id=int(at.name))
        return checked(self.table, self.key, self._rows(scan.projection(), self._tasks(int(at.name)).values(), at))

    def changes(self, at: At) -> pa.Table:
        """See `Feed.changes`."""
        snapshot = self._now.snapshot_by_id(int(at.name))
        schema = self._now.scan(snapshot_id=snapshot.snapshot_id).projection()
        after = self._tasks(snapshot.snapshot_id)
        before = {} if snapshot.parent_snapshot_id is None else self._tasks(snapshot.parent_snapshot_id)
        sides = (("delete", before, after), ("insert", after, before))
        parts = []
        for kind, mine, other in sides:
            rows = self._rows(schema, [task for name, task in mine.items() if name not in other], at)
            parts.append(rows.append_column(CHANGE_TYPE, pa.array([kind] * len(rows), pa.string())))
        return checked(self.table, self.key, pa.concat_tables(parts, promote_options="permissive"))

    def _tasks(self, snapshot: int) -> dict[Any, Any]:
        """What a snapshot is read from: each data file with the deletes that count in it."""
        try:
            tasks = self._now.scan(snapshot_id=snapshot).plan_files()
            return {(t.file.file_path, frozenset(map(_place, t.delete_files))): t for t in tasks}
        except Exception as error:  # a manifest that is gone, or deletes that pyiceberg does not read
            raise unreadable(first_line(error), self.table, snapshot) from error

    def _rows(self, schema: Any, tasks: Iterable[Any], at: At) -> pa.Table:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        try:
            return ArrowScan(self._now.metadata, self._now.io, schema, AlwaysTrue()).to_table(list(tasks))
        except Exception as error:  # a file that is gone, whichever class says so
            raise unreadable(first_line(error), self.table, at.name) from error


def _place(deletes: Any) -> tuple[object, ...]:
    """Which deletes a file holds; deletion vectors share one."""
    return deletes.file_path, getattr(deletes, "content_offset", None)
