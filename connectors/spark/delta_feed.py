"""A Delta table's change data feed: its version n is our version n + 1.

Always: read by `deltalake`, without a JVM. Followed by `follow`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace.connectors.spark.errors import PublishError, cause
from headrace.connectors.spark.lake_feed import CHANGE_TYPE, At, checked


class DeltaVersions:
    """The versions of a Delta table, whichever library reads them: each is one of ours. `_newest`: as of the last look at it."""

    _newest = -1

    @staticmethod
    def _at(version: int) -> At:
        return At(version + 1, str(version))

    def at(self, version: int) -> At:
        """See `Feed.at`."""
        return self._at(version - 1)

    def after(self, version: int) -> Sequence[At]:
        """See `Feed.after`."""
        return [self._at(v) for v in range(version, self._newest + 1)]


class DeltaFeed(DeltaVersions):
    """A Delta table: its place, our name of it, its key, and deltalake's options of the store. See `Feed`."""

    def __init__(self, path: str, table: str, key: Sequence[str], storage: Mapping[str, str]) -> None:
        self.path, self.table, self.key = path, table, tuple(key)
        self._storage = dict(storage) or None
        self._now: Any = None
        self._commits: dict[int, dict[str, Any]] = {}

    @property
    def schema(self) -> pa.Schema:
        """See `Feed.schema`."""
        return pa.schema(self._open().schema().to_arrow())

    def _open(self, version: int | None = None) -> Any:
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import DeltaError
        except ImportError as error:
            raise PublishError(f"deltalake is not installed: {error}", hint="pip install 'headrace[delta]'") from error
        try:
            return DeltaTable(self.path, version=version, storage_options=self._storage)
        except (DeltaError, OSError) as error:
            hint = "" if version is None else "give the rows of that version by --previous FILE.parquet"
            raise PublishError(f"the Delta table cannot be read: {str(error).splitlines()[0]}", table=self.table,
                               path=self.path, version=version, hint=hint) from error  # fmt: skip

    def newest(self) -> At:
        """See `Feed.newest`."""
        self._now = self._open()
        self._newest = int(self._now.version())
        return self._at(self._newest)

    def named(self, own: int) -> At:
        """See `Feed.named`."""
        return self._at(int(self._open(own).version()))

    def instant(self, at: At) -> int:
        """See `Feed.instant`."""
        version = int(at.name)
        if version not in self._commits:
            told = self._now.history(self._newest - version + 1)
            self._commits |= {int(commit["version"]): commit for commit in told}
        return instant_of(self._commits.get(version, {}), self.table, at)

    def snapshot(self, at: At) -> pa.Table:
        """See `Feed.snapshot`."""
        found = self._open(at.version - 1)
        try:
            return self._rows(found, found.to_pyarrow_table())
        except PublishError:
            raise
        except Exception as error:  # of a file that is gone, whichever class says so
            raise PublishError(
                f"a version of the table cannot be read: {str(error).splitlines()[0]}", table=self.table, version=at.name,
                path=self.path, hint="was it vacuumed? Give its rows by --previous FILE.parquet",
            ) from error  # fmt: skip

    def changes(self, at: At) -> pa.Table:
        """See `Feed.changes`. The table is opened as of the version: a column that was dropped since is in its rows."""
        version = at.version - 1
        try:
            found = self._open(version)
            rows = pa.table(found.load_cdf(starting_version=version, ending_version=version))
        except Exception as error:  # deltalake has no class of its own for each
            raise feed_unreadable(error, self.table, at, self.path) from error
        return self._rows(found, rows)

    def _rows(self, opened: Any, rows: pa.Table) -> pa.Table:
        return checked(self.table, self.key, in_order(pa.schema(opened.schema().to_arrow()).names, rows))


def instant_of(commit: Mapping[str, Any], table: str, at: At) -> int:
    """When a commit was made, as its own record of it tells: files that are copied have other times. Raises PublishError."""
    found = commit.get("inCommitTimestamp", commit.get("timestamp"))
    if found is None:
        raise PublishError(
            "the table's log does not tell when a version was committed", table=table, version=at.name,
            hint="was the log cleaned up, or does its writer record no time? Publish the tables as they are now with --snapshot",
        )  # fmt: skip
    return int(found)


def in_order(columns: Sequence[str], rows: pa.Table) -> pa.Table:
    """The columns as the table's schema has them, with the kind of change, where it is there: a reader may put those of a
    partition last."""
    return rows.select([*columns, *(n for n in rows.schema.names if n == CHANGE_TYPE)])


def feed_unreadable(error: Exception, table: str, at: At, path: str) -> PublishError:
    """The error of a change feed that is not there, with the ways out."""
    return PublishError(
        f"the change feed of a version cannot be read: {cause(str(error))}", table=table, version=at.name, path=path,
        hint="was it vacuumed, or the feed not enabled (delta.enableChangeDataFeed)? Publish the table as it is now with "
        "--snapshot",
    )  # fmt: skip
