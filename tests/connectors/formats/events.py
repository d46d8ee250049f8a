"""Small handmade Debezium messages: what the JSON converter writes, with and without schemas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.connectors.changes import Decoded, MessageBatch
from headrace.connectors.formats.debezium import DebeziumFormat
from headrace.connectors.formats.table_specs import Encodings, TableSpec
from headrace.engine.schema import Column, DataType, Schema

PLACEHOLDER = "__debezium_unavailable_value"


def table(name: str, columns: dict[str, str], key: Sequence[str] | None = ("id",), **more: Any) -> TableSpec:
    """A declared table, types as Postgres spells them."""
    return TableSpec(name, Schema.of([Column(n, DataType.parse(t)) for n, t in columns.items()], key), **more)


def source(table_name: str = "public.t", **more: Any) -> dict[str, Any]:
    """A source block; the schema is what stands before the first dot."""
    schema, _, name = table_name.partition(".")
    return {
        "version": "3.6.3.Final", "connector": "postgresql", "name": "p", "ts_ms": 1700000000000, "snapshot": None,
        "db": "d", "sequence": '["1","2"]', "ts_us": 1700000000000123, "ts_ns": 1700000000000123000, "schema": schema,
        "table": name, "txId": 77, "lsn": 5000, "xmin": None, "origin": None, "origin_lsn": None, **more,
    }  # fmt: skip


def envelope(
    op: str, before: Any = None, after: Any = None, of: str = "public.t", transaction: Any = None, **more: Any
) -> dict[str, Any]:
    """One change event's payload."""
    return {
        "before": before, "after": after, "source": source(of, **more), "transaction": transaction, "op": op,
        "ts_ms": 1700000000001, "ts_us": 1700000000001000, "ts_ns": 1700000000001000000,
    }  # fmt: skip


def dumped(value: Any) -> bytes | None:
    """Compact JSON, as the converter writes it; bytes and None as they are."""
    if value is None or isinstance(value, bytes):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def messages(values: Sequence[Any], keys: Sequence[Any] | None = None, topic: str = "p.public.t") -> MessageBatch:
    """Consecutive messages from offset 100 on."""
    n = len(values)
    return MessageBatch(
        topic, 3, np.arange(100, 100 + n, dtype=np.int64),
        [dumped(k) for k in keys] if keys is not None else [None] * n, [dumped(v) for v in values],
        np.zeros(n, np.int64),
    )  # fmt: skip


def carried(fields: Sequence[dict[str, Any]], payload: Any) -> dict[str, Any]:
    """A value with its schema: `fields` are the Connect fields of the row."""
    row = {"type": "struct", "fields": list(fields), "optional": True, "name": "p.public.t.Value"}
    schema = {
        "type": "struct", "optional": False, "name": "p.public.t.Envelope",
        "fields": [
            {**row, "field": "before"}, {**row, "field": "after"},
            {"type": "struct", "fields": [], "optional": False, "field": "source"},
            {"type": "string", "optional": False, "field": "op"},
        ],
    }  # fmt: skip
    return {"schema": schema, "payload": payload}


def carried_key(payload: dict[str, Any]) -> dict[str, Any]:
    """A key with its schema: every field an int32."""
    fields = [{"type": "int32", "optional": False, "field": name} for name in payload]
    return {
        "schema": {"type": "struct", "fields": fields, "optional": False, "name": "p.public.t.Key"},
        "payload": payload,
    }


def field(name: str, kind: str, logical: str | None = None, **parameters: Any) -> dict[str, Any]:
    """One optional Connect field."""
    made: dict[str, Any] = {"type": kind, "optional": True, "field": name}
    if logical:
        made |= {"name": logical, "version": 1}
    if parameters:
        made["parameters"] = {k.replace("_", ".") if k.startswith("connect") else k: v for k, v in parameters.items()}
    return made


def decode(spec: TableSpec, values: list[Any], keys: list[Any] | None = None, **encodings: Any) -> Decoded:
    """What a format of that one table makes of such values."""
    form = DebeziumFormat("s", "p", {spec.name: spec}, Encodings(**encodings))
    return form.decode(messages(values, keys))
