"""Changes: what a format makes of messages, as columns of table changes and transaction markers.

A format is a pure function from `MessageBatch` (bytes of one topic partition) to `Decoded`; the sidecar's assembler makes
transactions of these. Invariant: every lane of `TableChanges` has one entry for each row, in offset order of one partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import Bools, Int64s, UInt8s
from headrace.engine.schema import Schema

LATER = 1 << 62
"""After any time, in ms."""


@dataclass(frozen=True)
class MessageBatch:
    """Consecutive messages of one topic partition, oldest first. `keys`, `values`: None is Kafka's null.

    `timestamps`: ms since 1970 UTC. Headers are not read from Kafka: nothing here depends on them.
    """

    topic: str
    partition: int
    offsets: Int64s
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Int64s

    def __len__(self) -> int:
        return len(self.offsets)

    def at(self, positions: Sequence[int]) -> MessageBatch:
        """The messages at `positions`, in that order."""
        lane = np.array(positions, np.int64)
        return MessageBatch(
            self.topic, self.partition, self.offsets[lane],
            [self.keys[i] for i in positions], [self.values[i] for i in positions], self.timestamps[lane],
        )  # fmt: skip

    def before(self, offset: int) -> MessageBatch:
        """The messages before an offset."""
        return self.at(range(int(np.searchsorted(self.offsets, offset))))


@dataclass(frozen=True)
class TableChanges:
    """Decoded changes of one table, of one partition, in offset order.

    rows: after images in the table's lanes (deletes: key columns filled, the rest null; truncates: all null).
    kinds: headrace.engine.batch.updates.UPSERT … RETRACT; an update of a keyless table is a RETRACT (before) and an INSERT.
    unchanged: column position → rows whose TOASTed value was not sent.
    transactions: Debezium's txId (Spark: the version), -1 where there is none; orders: total_order in it (Spark: -1).
    attempts: Spark's attempt, else 0. snapshot: row belongs to the initial (or incremental: 2) snapshot.
    lsns: source.lsn, -1 where unknown. timestamps: commit time at the source, µs since 1970 UTC.
    A row of an incremental snapshot has none of these of its own: transactions is the LSN of the last commit before it was
    sent (-1 where there is none), lsns that of the change at which it was.
    metadata: whether each event carried a `transaction` block.
    moved: rows that are the create half of a primary-key change (a create that carries TOAST placeholders, or the
    header __debezium.oldkey): their unchanged columns come from the row that the delete just before them removed.
    read_ms: when the connector read each row of the initial snapshot, by its own clock, ms since 1970 UTC, -1 where it
    does not say; of other rows it says nothing. None where there is no such row.
    sent_ms: each record's own time in Kafka, as a mark's; None where nobody asked for it (`Decoded.timed`).
    kept: where a worker keeps the rows, what has it keep them: `rows` then refer to them. None where they are here.
    """

    table: str
    topic: str
    partition: int
    rows: pa.RecordBatch
    kinds: UInt8s
    offsets: Int64s
    transactions: Int64s
    orders: Int64s
    lsns: Int64s
    timestamps: Int64s
    snapshot: UInt8s
    metadata: Bools
    attempts: Int64s
    unchanged: Mapping[int, Bools] = field(default_factory=dict)
    moved: Bools | None = None
    read_ms: Int64s | None = None
    sent_ms: Int64s | None = None
    kept: object | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def take(self, positions: Int64s) -> TableChanges:
        """The rows at `positions`, in that order."""
        return TableChanges(
            self.table, self.topic, self.partition,
            self.rows.take(pa.array(positions)),
            self.kinds[positions], self.offsets[positions], self.transactions[positions], self.orders[positions],
            self.lsns[positions], self.timestamps[positions], self.snapshot[positions], self.metadata[positions],
            self.attempts[positions], {c: m[positions] for c, m in self.unchanged.items()},
            None if self.moved is None else self.moved[positions],
            None if self.read_ms is None else self.read_ms[positions],
            None if self.sent_ms is None else self.sent_ms[positions],
            self.kept,
        )  # fmt: skip


class TransactionMark(NamedTuple):
    """BEGIN or END of a source transaction (Debezium's transaction topic). `lsn`: of the id's part after the colon.

    `counts`: of END, events by table ("schema.table"); logical messages and unsubscribed tables are still in it.
    `sent_ms`: the record's own time in Kafka, ms since 1970 UTC, -1 where unknown: one clock for all that a source sends.
    """

    status: str
    transaction: int
    lsn: int
    counts: Mapping[str, int]
    timestamp_us: int
    topic: str
    partition: int
    offset: int
    sent_ms: int = -1


@dataclass(frozen=True)
class SnapshotNotification:
    """Progress of a snapshot, from Debezium's notifications. status: started, table, completed, aborted, skipped.

    `table` and `rows`: of status "table", the table whose scan is complete and how many rows it had; `scanned`: the same table
    as the source names it, which is a leaf where `table` is partitioned. `sent_ms`: as of a TransactionMark.
    """

    status: str
    table: str | None
    rows: int | None
    timestamp_us: int
    topic: str
    partition: int
    offset: int
    sent_ms: int = -1
    scanned: str = ""


@dataclass(frozen=True)
class VersionEnd:
    """Spark's END(version, attempt, count) of one table's partition; `partitions`: how many the topic has.

    `tables`: every table of the version, so that a version over several tables is one epoch. `after`: the last version of each
    table that the publisher has completed before, {} where it does not say.
    """

    table: str
    version: int
    attempt: int
    count: int
    partitions: int
    tables: tuple[str, ...]
    timestamp_us: int
    topic: str
    partition: int
    offset: int
    after: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Heartbeat:
    """The source is alive and has nothing older than `lsn` to say (-1 where the message has none)."""

    lsn: int
    timestamp_us: int
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class HeartbeatRow:
    """A row of the heartbeat table, as one commit of the source left it: each is told from the one before it.

    `kind`: as of changes: r, c, u, d, t. `row`: its key, "" for a TRUNCATE. `now`: (number, moment), None where it is gone;
    `before`: what stood there before, None where the record does not say. `lsn`: of the record.
    """

    kind: str
    row: str
    now: tuple[int, str] | None
    before: tuple[int, str] | None
    lsn: int
    topic: str
    partition: int
    offset: int


Mark = TransactionMark | SnapshotNotification | VersionEnd | Heartbeat | HeartbeatRow


class Event(NamedTuple):
    """Whose change a record is: its transaction and order in it (-1 without metadata), or a row of the snapshot."""

    transaction: int
    order: int
    lsn: int
    snapshot: bool


@dataclass(frozen=True)
class Undecodable:
    """A record that could not become a change, with the reason; its table stops there (guarantee P5). `value` is never shown.

    `event`: what could be read of its envelope, or None where that is not readable either. `sent_ms`: as of a mark, but LATER
    where unknown.
    """

    table: str | None
    topic: str
    partition: int
    offset: int
    reason: str
    hint: str = ""
    event: Event | None = None
    sent_ms: int = LATER


@dataclass(frozen=True)
class MissingColumn:
    """A column of a declared table whose values a record, the first of several, no longer has as declared.

    Its values are NULL from there on, and the other columns' are right. `gone`: the record has no such column; else it
    has it, in another type. `lsn`: of the last record known without it.
    """

    table: str
    column: str
    topic: str
    partition: int
    offset: int
    reason: str
    hint: str
    gone: bool
    lsn: int = -1


@dataclass(frozen=True)
class Decoded:
    """Everything that one run of messages held, each list in offset order. Tombstones and BEGINs may leave nothing.

    `schemas`: tables whose schema was learnt from, or changed by, these messages (schema-carrying messages only).
    `lost`: columns that were not decoded, by a format that may go on without them.
    """

    changes: list[TableChanges] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    undecodable: list[Undecodable] = field(default_factory=list)
    schemas: dict[str, Schema] = field(default_factory=dict)
    lost: list[MissingColumn] = field(default_factory=list)

    def timed(self, messages: MessageBatch) -> Decoded:
        """The same, each record with its own time in Kafka; `messages`: what this was decoded from."""

        def sent(offsets: Int64s) -> Int64s:
            return messages.timestamps[np.searchsorted(messages.offsets, offsets)]

        changes = [replace(c, sent_ms=sent(c.offsets)) for c in self.changes]
        bad = [replace(b, sent_ms=int(sent(np.array(b.offset)))) for b in self.undecodable]
        return replace(self, changes=changes, undecodable=bad)


class Format(Protocol):
    """From bytes to changes, purely: the same messages give the same changes, in whatever runs they come."""

    def topics(self) -> Sequence[str] | None:
        """Exact names of the topics this format needs, or None where they must be discovered by `wants`."""

    def wants(self, topic: str) -> bool:
        """Whether a topic belongs to this source."""

    @property
    def left_out(self) -> Mapping[str, Mapping[str, str]]:
        """table → column → why a learnt table does not have it."""

    def decode(self, messages: MessageBatch) -> Decoded:
        """The changes and marks in `messages`. Never raises for data: what cannot be decoded is in `undecodable`."""

    def add_table(self, name: str, schema: Schema, partitions: Sequence[str], precisions: Mapping[str, int]) -> None:
        """From now on the records of one table more are decoded."""

    def add_partition(self, partition: str, table: str) -> None:
        """From now on the records of `partition` are those of a declared table."""


def lanes(n: int, value: int = 0) -> Int64s:
    """A constant int64 lane."""
    return np.full(n, value, np.int64)
