"""Control events: transaction boundaries, snapshot notifications and heartbeats, out of parsed payloads.

Each function takes one payload and its place, and raises what indexing malformed data raises. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from headrace.connectors.changes import Heartbeat, HeartbeatRow, Mark, SnapshotNotification, TransactionMark
from headrace.connectors.formats.table_specs import CannotDecode


class MessagePlace(NamedTuple):
    """Where a message stood, and when it was sent, as Kafka has it (ms since 1970 UTC, -1 where unknown)."""

    topic: str
    partition: int
    offset: int
    sent_ms: int


def _micros(payload: Mapping[str, Any], ms: str = "ts_ms") -> int:
    if payload.get("ts_us") is not None:
        return int(payload["ts_us"])
    return int(payload.get(ms) or 0) * 1000


def transaction_mark(
    payload: Mapping[str, Any], place: MessagePlace, table_of: Callable[[str], str]
) -> TransactionMark:
    """A BEGIN or END. `table_of` folds leaf tables into theirs; counts of tables that fold into one add up."""
    status = payload["status"]
    if status not in ("BEGIN", "END"):
        raise CannotDecode("a transaction record that is neither BEGIN nor END")
    transaction, _, lsn = str(payload["id"]).partition(":")
    counts: dict[str, int] = {}
    for collection in payload.get("data_collections") or ():
        table = table_of(collection["data_collection"])
        counts[table] = counts.get(table, 0) + int(collection["event_count"])
    return TransactionMark(status, int(transaction), int(lsn) if lsn else -1, counts, _micros(payload), *place)


_STATUSES: Final = {"STARTED": "started", "COMPLETED": "completed", "ABORTED": "aborted", "SKIPPED": "skipped"}
_WITHOUT_FAULT: Final = ("SUCCEEDED", "EMPTY", "", None)


def snapshot_mark(payload: Mapping[str, Any], place: MessagePlace, table_of: Callable[[str], str]) -> Mark | None:
    """Progress of the initial snapshot; None for notifications that say nothing about whole tables."""
    if payload.get("aggregate_type") != "Initial Snapshot":
        return None
    kind = payload["type"]
    stamp = _micros(payload, "timestamp")
    if kind in _STATUSES:
        return SnapshotNotification(_STATUSES[kind], None, None, stamp, *place)
    if kind != "TABLE_SCAN_COMPLETED":
        return None
    data = payload.get("additional_data") or {}
    scanned = str(data["scanned_collection"])
    status = "table" if data.get("status") in _WITHOUT_FAULT else "aborted"
    rows = data.get("total_rows_scanned")
    if rows is None and data.get("status") == "EMPTY":
        rows = 0
    return SnapshotNotification(
        status, table_of(scanned), None if rows is None else int(rows), stamp, *place, scanned=scanned
    )


def heartbeat(payload: Mapping[str, Any], place: MessagePlace) -> Heartbeat:
    """A sign of life; Debezium's carries no position."""
    return Heartbeat(-1, _micros(payload), place.topic, place.partition, place.offset)


def beat(payload: Mapping[str, Any], place: MessagePlace) -> HeartbeatRow | None:
    """A change of the heartbeat table; None for a row of another shape, which is not ours."""
    kind, row = payload["op"], payload.get("after") or payload.get("before") or {}
    if kind not in "rcudt" or (kind != "t" and "source" not in row):
        return None
    lsn = int(payload["source"]["lsn"])
    now, before = (_stood(payload.get(image)) for image in ("after", "before"))
    return HeartbeatRow(kind, str(row.get("source", "")), now, before, lsn, place.topic, place.partition, place.offset)


def _stood(image: Mapping[str, Any] | None) -> tuple[int, str] | None:
    return None if not image or image.get("beat") is None else (int(image["beat"]), str(image.get("at")))
