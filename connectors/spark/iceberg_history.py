"""An Iceberg table's snapshots in their order, whichever library reads them: the part of a feed that is about numbers.

Always: a snapshot is the version of ours that its sequence number says, and only those from which the current one descends are
there. The feeds of `pyiceberg` and of Spark are made of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.lake_feed import At


@dataclass(frozen=True)
class Snapshot:
    """What a table's metadata tells of a snapshot. `instant`: when it was committed, ms since 1970; `schema`: the number of its
    columns' schema, where its metadata has one."""

    sequence: int
    id: int
    parent: int | None
    instant: int
    schema: int | None

    @property
    def at(self) -> At:
        """Its number among ours, and its own."""
        return At(self.sequence, str(self.id))


class IcebergHistory(ABC):
    """The versions of an Iceberg table, for a feed that tells its `lineage`: the current snapshot and those before it, newest
    first."""

    table: str

    @abstractmethod
    def lineage(self) -> Sequence[Snapshot]:
        """The snapshots that are there, from the current one back, as of the last look at the table."""

    def at(self, version: int) -> At:
        """See `Feed.at`."""
        found = next((s for s in self.lineage() if s.sequence == version), None)
        if found is None:
            raise self._gone(version)
        return found.at

    def after(self, version: int) -> Sequence[At]:
        """See `Feed.after`."""
        lineage = self.lineage()
        found = [s for s in lineage if s.sequence > version]
        before = lineage[len(found)] if len(found) < len(lineage) else None
        if version and (before is None or before.sequence != version):
            raise self._gone(version)
        return [s.at for s in reversed(found)]

    def instant(self, at: At) -> int:
        """See `Feed.instant`."""
        return next(s.instant for s in self.lineage() if s.at == at)

    def _gone(self, version: int) -> PublishError:
        there = sorted(s.sequence for s in self.lineage())
        return PublishError(
            "the snapshot that was published last is not in the table's history", table=self.table, version=version,
            oldest=there[0], newest=there[-1], hint="was it expired, or the table rolled back? Give the rows that it had by "
            "--previous FILE.parquet, or load the table anew under another prefix",
        )  # fmt: skip


def without_numbers(table: str, snapshot: object) -> PublishError:
    """The error of a table whose snapshots are not numbered."""
    return PublishError("the table's snapshots have no sequence numbers", table=table, snapshot=snapshot,
                        hint="upgrade it to Iceberg's format version 2")  # fmt: skip


def without_snapshots(table: str, name: str) -> PublishError:
    """The error of a table into which nothing was written yet."""
    return PublishError("the table has no snapshot yet", table=table, name=name)


def unreadable(said: str, table: str, snapshot: object) -> PublishError:
    """The error of a snapshot whose files are gone, or are of a kind that the reader does not know."""
    return PublishError(
        f"a snapshot of the table cannot be read: {said}", table=table, snapshot=snapshot,
        hint="were its files removed? Give the rows that were published last by --previous FILE.parquet",
    )  # fmt: skip
