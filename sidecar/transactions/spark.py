"""The assembler of Spark publishers: puts whole versions together, in any interleaving.

Invariant: a version is given once, whole, in ascending order, and after every version that its END names as completed before
it. Repeated tasks and failed attempts change nothing. Only reclock calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.connectors.changes import Decoded, TableChanges, Undecodable, VersionEnd
from headrace.connectors.commit_place import Version
from headrace.engine.schema import Schema
from headrace.sidecar.transactions.model import Incomplete, ReplayOrder, SparkVersion, Transaction
from headrace.sidecar.transactions.partial import RowRange, runs
from headrace.sidecar.transactions.references import key_identities
from headrace.sidecar.transactions.suspended_tables import SuspendedTable


class VersionAssembler:
    """Spark: a version is complete when one attempt's END of every partition of every table is there with all its keys.

    `keys`: table → positions of its primary key, of the tables that are read. Versions are given in ascending order; rows of
    other attempts, and repetitions of a task (the same key again), change nothing.
    """

    def __init__(self, keys: Mapping[str, tuple[int, ...]]) -> None:
        self._keys = dict(keys)
        self._filled: dict[str, int] = {}
        self._others: dict[str, int] = {}
        self._rows: dict[tuple[int, int], list[RowRange]] = {}
        self._marks: dict[tuple[int, int], dict[tuple[str, int], VersionEnd]] = {}
        self._given = -1

    def accept(self, decoded: Decoded) -> None:
        """Take in what a format decoded."""
        for changes in decoded.changes:
            if not len(changes):
                continue
            order = np.stack([changes.transactions, changes.attempts])
            step = (order[:, 1:] != order[:, :-1]).any(axis=0)
            for start, stop in runs(np.concatenate([[0], np.cumsum(step)])):
                at = (int(changes.transactions[start]), int(changes.attempts[start]))
                if at[0] > max(self._given, self._filled.get(changes.table, -1)):
                    self._rows.setdefault(at, []).append(RowRange(changes, start, stop))
        for mark in decoded.marks:
            if isinstance(mark, VersionEnd) and mark.version > max(self._given, self._filled.get(mark.table, -1)):
                self._marks.setdefault((mark.version, mark.attempt), {})[(mark.table, mark.partition)] = mark

    def complete(self) -> list[Transaction]:
        """Complete versions, ascending; a lower version that never completes is passed by a higher that did. One without any
        table that is read is passed too, so that a table which is read later changes nothing of what was bound."""
        out: list[Transaction] = []
        for version, attempt in sorted(self._marks):
            if version > self._given and not self._missing(version, attempt):
                slices = tuple(s for s in self._rows.get((version, attempt), ()) if s.changes.table in self._keys)
                marks = self._marks[version, attempt].values()
                at = max(m.timestamp_us for m in marks)
                for told in ({**m.after, **dict.fromkeys(m.tables, version)} for m in marks):
                    self._others |= {t: max(v, self._others.get(t, -1)) for t, v in told.items()}
                if any(self._wants(table, version) for m in marks for table in m.tables):
                    out.append(SparkVersion(Version(version), at, slices))
                self._forget(version)
        return out

    def _wants(self, table: str, version: int) -> bool:
        """Whether a version counts for a table."""
        return table in self._keys and version > self._filled.get(table, -1)

    def _missing(self, version: int, attempt: int) -> dict[str, int]:
        marks = self._marks[version, attempt]
        first = next(iter(marks.values()))
        missing: dict[str, int] = {}
        for table, version_before in first.after.items():
            if table in self._keys and version_before > max(self._given, self._filled.get(table, -1)):
                missing[table] = 1  # its topic is read later than those of this version
        for table in first.tables:
            if version <= self._filled.get(table, -1):
                continue
            partitions = [m for (t, _), m in marks.items() if t == table]
            if not partitions or len(partitions) < partitions[0].partitions:
                missing[table] = missing.get(table, 0) + 1
                continue
            for mark in partitions:
                lack = mark.count - self._distinct(table, mark)
                if lack > 0:
                    missing[table] = missing.get(table, 0) + lack
        return missing

    def _distinct(self, table: str, mark: VersionEnd) -> int:
        if table not in self._keys:
            return mark.count  # nobody reads it, and its ENDs are here
        hashes = []
        for s in self._rows.get((mark.version, mark.attempt), ()):
            if s.changes.table == table and s.changes.partition == mark.partition:
                rows = s.changes.rows.slice(s.start, s.stop - s.start)
                hashes.append(np.stack(key_identities(rows, self._keys[table])))
        return len(np.unique(np.concatenate(hashes, axis=1), axis=1).T) if hashes else 0

    def _forget(self, version: int) -> None:
        self._given = version
        self._rows = {k: v for k, v in self._rows.items() if k[0] > version}
        self._marks = {k: v for k, v in self._marks.items() if k[0] > version}

    def pending_positions(self) -> dict[tuple[str, int], int]:
        """(topic, partition) → the oldest offset of what is not given yet."""
        out: dict[tuple[str, int], int] = {}
        for slices in self._rows.values():
            for s in slices:
                key = (s.changes.topic, s.changes.partition)
                offset = int(s.changes.offsets[s.start])
                out[key] = min(out.get(key, offset), offset)
        for marks in self._marks.values():
            for mark in marks.values():
                key = (mark.topic, mark.partition)
                out[key] = min(out.get(key, mark.offset), mark.offset)
        return out

    def waiting(self) -> Incomplete | None:
        """What the oldest version with an END waits for, or None."""
        for version, attempt in sorted(self._marks):
            missing = self._missing(version, attempt)
            if missing:
                at = max(m.timestamp_us for m in self._marks[version, attempt].values())
                return Incomplete("version", version, missing, at)
        return None

    @property
    def stops(self) -> Sequence[SuspendedTable]:
        """None: a version is of all its tables or of none."""
        return ()

    def stop(self, table: str, record: Undecodable, text: str) -> bool:  # noqa: ARG002
        """A table of a publisher does not stop without the others."""
        return False

    def begin_late(self, tables: Iterable[str]) -> None:
        """All tables of a publisher begin with its first version."""

    def add_table(self, table: str, partitions: Sequence[str], schema: Schema) -> None:  # noqa: ARG002
        """From now on a table is read; `filled` says which of its versions it has by then."""
        self._keys[table] = schema.key or ()

    def filled(self, table: str, version: int) -> None:
        """A table is filled from files that hold its versions up to this one: of its topic only later ones count."""
        self._filled[table] = version

    def published(self, table: str) -> int:
        """The last version up to where versions were given that has a table, as far as their ENDs told; -1 for none."""
        return self._others.get(table, -1)

    def add_partition(self, partition: str, table: str) -> None:
        """A publisher's table has no partitions of other names."""

    def skip(self, record: Undecodable, *, known: bool = False) -> None:
        """Nothing is passed over: a version without a row would not be that version."""

    @property
    def overdue(self) -> int:
        """There are no snapshots."""
        return -1

    def follow(self, log: ReplayOrder) -> None:
        """Versions come in one order only."""

    def remembered(self) -> Mapping[str, Any]:
        """The last version that was given, or loaded: of the latter the log tells nothing."""
        ahead = {table: version for table, version in self._filled.items() if version > self._given}
        return {**({"version": self._given} if self._given >= 0 else {}), **({"filled": ahead} if ahead else {})}

    def outlived(self, row: TableChanges) -> bool | None:  # noqa: ARG002
        """Every row that goes is told."""
        return False

    def standing(self, rows: RowRange, lsn: int) -> Sequence[RowRange]:  # noqa: ARG002
        """There are no such rows."""
        return (rows,)

    def resume(
        self,
        bound: Iterable[tuple[int, int]],
        stops: Iterable[SuspendedTable] = (),  # noqa: ARG002
        remembered: Mapping[str, Any] | None = None,
    ) -> None:
        """Continue after these versions."""
        known = (remembered or {}).get("version", self._given)
        self._filled |= (remembered or {}).get("filled", {})
        self._given = max((v for v, _ in bound), default=known)

    def finish(self) -> None:
        """Nothing more comes; incomplete versions stay out."""
