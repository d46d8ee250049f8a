"""Recent changes of keys: finds rows of incremental snapshots that are older than a change of their key in another partition.

Such rows come where partitions are added to a topic between the two. Invariant: it knows every change that a transaction with
an END beyond `since` made outside of a table's first partition, by the key's 128-bit fingerprint; its size is bounded, and
checkpoints keep it. A row from before `since` is an error, as nobody can tell any more. The incremental snapshot owns it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from headrace.connectors.changes import TableChanges
from headrace.engine.batch.keys import UInt64s
from headrace.engine.schema import DataType, Schema
from headrace.sidecar.transactions.model import ContinuityError
from headrace.sidecar.transactions.partial import RowRange, runs
from headrace.sidecar.transactions.references import key_identities

MOST = 10_000
"""How many changes of a table are known at least."""
KEPT = 1000
"""How many of them a checkpoint keeps."""

LSN = 2
"""Beside the two lanes of a key."""

Lanes = tuple[UInt64s, UInt64s]


class RecentKeyChanges:
    """`schemas`: of the tables."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self._keys: dict[str, tuple[tuple[str, ...], tuple[DataType, ...]]] = {}
        for name, schema in schemas.items():
            self.add(name, schema)
        self._changed: dict[str, _Changed] = {}
        self._lanes: dict[tuple[str, int], tuple[ref[TableChanges], Lanes]] = {}

    def add(self, table: str, schema: Schema) -> None:
        """One table more."""
        if schema.key:
            columns = [schema.columns[k] for k in schema.key]
            self._keys[table] = (tuple(c.name for c in columns), tuple(c.type for c in columns))

    def met(self, changes: TableChanges) -> None:
        """Changes of a table: whether it has several partitions."""
        if changes.partition and changes.table in self._keys:
            self._changed.setdefault(changes.table, _Changed())

    def given(self, lsn: int, slices: Iterable[RowRange]) -> None:
        """The events of a transaction, with the LSN of its END."""
        for s in slices if self._changed else ():
            if (changed := self._changed.get(s.changes.table)) is not None:
                ones, twos = self._of(s.changes)
                changed.add(lsn, ones[s.start : s.stop], twos[s.start : s.stop])

    def _of(self, changes: TableChanges) -> Lanes:
        place = changes.topic, changes.partition
        if (found := self._lanes.get(place)) is None or found[0]() is not changes:
            names, types = self._keys[changes.table]
            columns = tuple(map(changes.rows.schema.get_field_index, names))
            found = self._lanes[place] = ref(changes), key_identities(changes.rows, columns, types)
        return found[1]

    def split(self, rows: RowRange, lsn: int) -> tuple[Sequence[RowRange], Sequence[RowRange]]:
        """Of rows sent by an incremental snapshot after one END, those that are as they were when the transaction of the END at
        `lsn` was given, the last before them, and those that were changed since. Raises ContinuityError where nobody can tell."""
        changes, start, stop = rows
        changed, sent = self._changed.get(changes.table), int(changes.transactions[start])
        if changed is None or changed.last <= sent:
            return (rows,), ()
        if sent < changed.since:
            raise ContinuityError(
                "a row of an incremental snapshot comes so late that nobody can tell whether it was changed since",
                table=changes.table, topic=changes.topic, partition=changes.partition, offset=int(changes.offsets[start]),
                sent_after=sent, known_since=changed.since,
                hint="start with an empty state folder",
            )  # fmt: skip
        ones, twos = self._of(changes)
        later = changed.between(sent, lsn)
        over = np.isin(ones[start:stop], later[0])
        if over.any():  # nearly always by the same keys, but that is for the second lane to say
            known = set(zip(*later.tolist(), strict=True))
            here = zip(ones[start:stop].tolist(), twos[start:stop].tolist(), strict=True)
            over = np.fromiter((key in known for key in here), np.bool_, stop - start)
        parts = [(bool(over[a]), RowRange(changes, start + a, start + b)) for a, b in runs(over)]
        return [s for gone, s in parts if not gone], [s for gone, s in parts if gone]

    def json(self) -> Mapping[str, Any]:
        """As a manifest keeps it."""
        return {table: changed.json() for table, changed in self._changed.items()}

    def restore(self, body: Mapping[str, Any]) -> None:
        """Of a manifest. Raises KeyError."""
        self._changed = {table: _Changed.parse(found) for table, found in body.items() if table in self._keys}


class _Changed:
    """Of one table. `keys`: their lanes, and the LSN of the END of the transaction that changed each, as they came, the first
    `count` of these rows; `last`: the END of the last; `since`: all beyond it are known."""

    def __init__(self, last: int = -1, since: int = -1) -> None:
        self.last, self.since, self.count = last, since, 0
        self.keys = np.empty((3, 2 * MOST), np.uint64)

    def add(self, lsn: int, ones: UInt64s, twos: UInt64s) -> None:
        """Keys that a transaction has changed."""
        if len(ones) > MOST:
            self.since, ones, twos = max(self.since, lsn), ones[-MOST:], twos[-MOST:]
        if self.count + len(ones) > self.keys.shape[1]:
            left = self.keys[:, self.count - MOST : self.count].copy()
            self.since = max(self.since, int(self.keys[LSN, : self.count - MOST].max()))
            self.keys[:, :MOST], self.count = left, MOST
        added = self.keys[:, self.count : self.count + len(ones)]
        added[0], added[1], added[LSN] = ones, twos, lsn
        self.last, self.count = max(self.last, lsn), self.count + len(ones)

    def between(self, after: int, upto: int) -> NDArray[np.uint64]:
        """The lanes of keys that were changed after the END at `after`, up to that at `upto`."""
        keys = self.keys[:, : self.count]
        lsns = keys[LSN].view(np.int64)
        return keys[:LSN, (lsns > after) & (lsns <= upto)]

    def json(self) -> Mapping[str, Any]:
        """Of the newest: hash, check and LSN of each."""
        kept = self.keys[:, max(0, self.count - KEPT) : self.count].T.astype("<u8").tobytes()
        forgotten = self.keys[LSN, : max(0, self.count - KEPT)].view(np.int64)
        since = max(self.since, int(forgotten.max(initial=-1)))
        return {"since": since, "last": self.last, "keys": b64encode(kept).decode()}

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> _Changed:
        """Of a manifest. Raises KeyError."""
        keys = np.frombuffer(b64decode(body["keys"]), "<u8").reshape(-1, LSN + 1).T
        found = cls(body["last"], body["since"])
        found.count = keys.shape[1]
        found.keys[:, : found.count] = keys
        return found
