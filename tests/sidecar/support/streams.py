"""Small streams for tests of the sidecar: table changes and marks without bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.connectors.changes import Decoded, SnapshotNotification, TableChanges, TransactionMark, VersionEnd, lanes
from headrace.engine.batch.updates import UPSERT
from headrace.engine.schema import BIGINT, Column, Schema

SCHEMA = Schema.of([Column("id", BIGINT, False), Column("v", BIGINT)], ["id"])


def changes(
    table: str,
    rows: Sequence[tuple[int, int | None]],
    *,
    txid: int = -1,
    orders: Sequence[int] | None = None,
    offset: int = 0,
    lsn: int = 0,
    snapshot: bool = False,
    incremental: bool = False,
    attempt: int = 0,
    partition: int = 0,
    kinds: Sequence[int] | None = None,
    at: int = 1_000_000,
    read: int = -1,
    sent: int | None = None,
) -> TableChanges:
    n = len(rows)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([r[0] for r in rows], pa.int64()), pa.array([r[1] for r in rows], pa.int64())], schema=SCHEMA.arrow
    )
    return TableChanges(
        table, f"p.{table}", partition, batch,
        np.array(kinds if kinds is not None else [UPSERT] * n, np.uint8),
        np.arange(offset, offset + n, dtype=np.int64), lanes(n, txid),
        np.array(orders if orders is not None else lanes(n, -1), np.int64), lanes(n, lsn), lanes(n, at),
        np.full(n, 2 if incremental else int(snapshot), np.uint8),
        np.full(n, orders is not None and not snapshot), lanes(n, attempt),
        read_ms=lanes(n, read) if snapshot else None,
        sent_ms=None if sent is None else lanes(n, sent),
    )  # fmt: skip


def end(txid: int, lsn: int, counts: dict[str, int], offset: int = 0, sent: int = -1) -> TransactionMark:
    return TransactionMark("END", txid, lsn, counts, 2_000_000, "p.transaction", 0, offset, sent)


def notified(
    status: str, table: str | None = None, rows: int | None = None, offset: int = 0, at: int = 0, scanned: str = ""
) -> SnapshotNotification:
    return SnapshotNotification(status, table, rows, at * 1000, "p.notifications", 0, offset, at, scanned)


def version_end(
    table: str, version: int, count: int, *, attempt: int = 1, partition: int = 0, partitions: int = 1,
    tables: tuple[str, ...] | None = None, offset: int = 0, after: Mapping[str, int] | None = None,
) -> VersionEnd:  # fmt: skip
    return VersionEnd(
        table, version, attempt, count, partitions, tables or (table,), 5, f"p.{table}", partition, offset, after or {}
    )


def decoded(*parts: object) -> Decoded:
    return Decoded(
        [p for p in parts if isinstance(p, TableChanges)],
        [p for p in parts if not isinstance(p, TableChanges)],  # type: ignore[misc]
    )
