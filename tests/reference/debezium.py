"""The naive twin of the envelope decoder: plain json and dictionaries, one message and one value at a time.

It knows the declared, schemaless encodings (decimal strings, adaptive times) and says for each message what it asks
for, or that it is bad. Values are plain: dates and times as integers of the lane, everything else as Python has it.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from headrace.connectors.changes import MessageBatch, TableChanges
from headrace.connectors.formats.table_specs import TableSpec
from headrace.engine.batch.updates import DELETE, INSERT, RETRACT, TRUNCATE, UPSERT
from headrace.engine.schema import DataType, Kind

PLACEHOLDER = "__debezium_unavailable_value"
UNSENT = "<unsent>"
Event = tuple[int, int, dict[str, Any]]
"""(offset, kind, row)."""


class Bad(Exception):
    """The message cannot become a change."""


def decode(spec: TableSpec, messages: MessageBatch) -> tuple[list[Event], list[int]]:
    """(events in offset order, offsets of the messages that are bad)."""
    events: list[Event] = []
    bad: list[int] = []
    for offset, key, value in zip(messages.offsets.tolist(), messages.keys, messages.values, strict=True):
        if value is None:
            continue
        try:
            events.extend((offset, kind, row) for kind, row in _one(spec, key, value))
        except Bad:
            bad.append(offset)
    return events, bad


def _one(spec: TableSpec, key: bytes | None, value: bytes) -> list[tuple[int, dict[str, Any]]]:
    try:
        doc = json.loads(value.decode())
    except ValueError:
        raise Bad from None
    if doc is None:
        return []
    if not isinstance(doc, dict) or not {"op", "source"} <= set(doc):
        raise Bad
    before: Any
    after: Any
    op, before, after = doc["op"], doc.get("before"), doc.get("after")
    if op == "m" or f"{doc['source']['schema']}.{doc['source']['table']}" not in (spec.name, *spec.partitions):
        return []
    names = [c.name for c in spec.schema.columns]
    blank = dict.fromkeys(names)
    if op == "t":
        return [(TRUNCATE, blank)]
    if op not in ("c", "r", "u", "d") or (op != "d" and after is None):
        raise Bad
    if spec.schema.key is not None:
        if op != "d":
            return [(UPSERT, _row(spec, after))]
        keys = [names[i] for i in spec.schema.key]
        image = before or {}
        if any(image.get(k) is None for k in keys):
            image = json.loads(key) if key else {}
        if any(image.get(k) is None for k in keys):
            raise Bad
        return [(DELETE, _row(spec, {**blank, **{k: image[k] for k in keys}}))]
    if op in ("u", "d") and before is None:
        raise Bad
    made = [(RETRACT, _row(spec, before))] if op in ("u", "d") else []
    if op != "d":
        kept = {n: before.get(n) if op == "u" and after.get(n) == PLACEHOLDER else after[n] for n in after}
        made.append((INSERT, _row(spec, kept)))
    if any(UNSENT in row.values() for _, row in made):
        raise Bad
    return made


def _row(spec: TableSpec, image: dict[str, Any]) -> dict[str, Any]:
    row = {}
    for column in spec.schema.columns:
        if column.name not in image:
            raise Bad
        try:
            row[column.name] = _value(column.type, image[column.name])
        except (TypeError, ValueError, KeyError, InvalidOperation, OverflowError):
            raise Bad from None
    return row


_RANGES = {Kind.SMALLINT: 15, Kind.INTEGER: 31, Kind.BIGINT: 63}


def _value(kind: DataType, value: Any) -> Any:
    if value is None:
        return None
    if kind.kind in (Kind.TEXT, Kind.JSONB, Kind.NUMERIC) and value == PLACEHOLDER:
        return UNSENT
    if kind.kind is Kind.BYTEA and value in (PLACEHOLDER, base64.b64encode(PLACEHOLDER.encode()).decode()):
        return UNSENT
    if kind.kind in _RANGES:
        _want(type(value) is int and -(2 ** _RANGES[kind.kind]) <= value < 2 ** _RANGES[kind.kind])
        return value
    if kind.kind is Kind.BOOLEAN:
        _want(type(value) is bool)
        return value
    if kind.kind is Kind.DOUBLE:
        _want(type(value) in (int, float) or value in ("NaN", "Infinity", "-Infinity"))
        return repr(float(value))
    if kind.kind in (Kind.DATE, Kind.TIMESTAMP):
        low, high = (-2440588, 2145031948) if kind.kind is Kind.DATE else (-(2**63), 2**63 - 1)
        _want(type(value) is int and low <= value <= high)
        return value
    if kind.kind is Kind.TIMESTAMPTZ:
        moment = datetime.fromisoformat(value) - datetime(1970, 1, 1, tzinfo=UTC)
        return (moment.days * 86400 + moment.seconds) * 10**6 + moment.microseconds
    if kind.kind is Kind.OTHER:
        _want(isinstance(value, list))
        return "{" + ",".join("NULL" if v is None else str(v) for v in value) + "}"
    _want(isinstance(value, str))
    if kind.kind is Kind.BYTEA:
        return base64.b64decode(value, validate=True)
    if kind.kind is Kind.NUMERIC:
        number = Decimal(value)
        if kind.scale is None:
            return value
        _want(number.is_finite() and number == round(number, kind.scale))
        return round(number, kind.scale)
    return value


def _want(held: bool) -> None:
    if not held:
        raise ValueError


def plain(changes: list[TableChanges]) -> list[Event]:
    """What the real decoder gave, as the twin says it, in offset order."""
    events: list[Event] = []
    for piece in changes:
        columns = [_plain_column(c) for c in piece.rows.columns]
        for i, offset in enumerate(piece.offsets.tolist()):
            row = {n: columns[at][i] for at, n in enumerate(piece.rows.schema.names)}
            for at, mask in piece.unchanged.items():
                if mask[i]:
                    assert row[piece.rows.schema.names[at]] is None
                    row[piece.rows.schema.names[at]] = UNSENT
            events.append((offset, int(piece.kinds[i]), row))
    return sorted(events, key=lambda event: event[0])


def _plain_column(column: Any) -> list[Any]:
    values: list[Any] = []
    for scalar in column:
        if not scalar.is_valid:
            values.append(None)
        elif hasattr(scalar, "value"):
            values.append(scalar.value)
        else:
            value = scalar.as_py()
            values.append(repr(value) if isinstance(value, float) else value)
    return values


def days(text: str) -> int:
    """Days from 1970 of an ISO date, by the standard library."""
    return (date.fromisoformat(text) - date(1970, 1, 1)).days
