"""Small recordings made by hand: a shop of two tables, as Debezium's JSON converter writes it, with and without schemas."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PREFIX = "shop"
Fields = Sequence[tuple[str, str]]
CUSTOMERS: Fields = (("id", "int64"), ("city", "string"))
ORDERS: Fields = (("id", "int64"), ("customer_id", "int64"), ("amount", "string"))
TYPES = {"int64": "bigint", "string": "text"}

CONFIG: dict[str, Any] = {
    "version": 1, "name": "tested", "kafka": {"bootstrap.servers": "127.0.0.1:1"}, "http": "127.0.0.1:1",
    "sources": [
        {"name": "shop", "type": "debezium", "topic_prefix": PREFIX, "tables": [
            {"name": "public.customers", "key": ["id"], "columns": [
                {"name": "id", "data_type": "bigint"}, {"name": "city", "data_type": "text"}]},
            {"name": "public.orders", "key": ["id"], "columns": [
                {"name": "id", "data_type": "bigint"}, {"name": "customer_id", "data_type": "bigint"},
                {"name": "amount", "data_type": "numeric(10,2)"}]},
        ]},
    ],
}  # fmt: skip

VIEW = """\
version: 1
views:
  - name: by_city
    sql: |
      select c.city, count(*) as orders, sum(o.amount::numeric(10,2)) as amount
      from orders o
      join customers c on c.id = o.customer_id
      group by c.city
"""


def shop(folder: Path, *, views: str = VIEW, schemas: bool = False, **changes: Any) -> Path:
    """A configuration and its views in `folder`; with `schemas` the tables' columns are left to the messages."""
    config = json.loads(json.dumps(CONFIG)) | changes
    if schemas:
        for table in config["sources"][0]["tables"]:
            del table["columns"]
    (folder / "views").mkdir()
    (folder / "views" / "shop.yaml").write_text(views)
    path = folder / "headrace.yaml"
    path.write_text(json.dumps(config))
    return path


class Recording:
    """Lines of a recording, in the order of emission. `schemas`: each message carries its Connect schema."""

    def __init__(self, *, schemas: bool = False) -> None:
        self.lines: list[str] = []
        self._schemas = schemas
        self._lsn = 1000

    def snapshot(self, table: str, *rows: dict[str, Any]) -> None:
        """Rows of a table's snapshot."""
        for row in rows:
            self._event(table, "r", None, row, txid=500, total=None, snapshot="true")

    def transaction(self, txid: int, *events: tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]) -> None:
        """A whole transaction: (table, op, before, after) each; BEGIN and END on the transaction topic."""
        self._mark({"status": "BEGIN", "id": f"{txid}:{self._lsn}", "event_count": None, "data_collections": None})
        counts: dict[str, int] = {}
        for number, (table, op, before, after) in enumerate(events, 1):
            counts[table] = counts.get(table, 0) + 1
            self._event(table, op, before, after, txid=txid, total=number, snapshot="false", of_table=counts[table])
        told = [{"data_collection": f"public.{t}", "event_count": n} for t, n in counts.items()]
        self._lsn += 10
        self._mark({"status": "END", "id": f"{txid}:{self._lsn}", "event_count": len(events), "data_collections": told})

    def raw(self, table: str, value: str | None, key: str | None = '{"id": 1}') -> None:
        """A record as it is."""
        self._line(f"{PREFIX}.public.{table}", key, value)

    def write(self, path: Path) -> Path:
        """The recording as a file, gzipped if its name says so."""
        body = "".join(line + "\n" for line in self.lines).encode()
        path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else body)
        return path

    def _event(
        self, table: str, op: str, before: Any, after: Any, *, txid: int, total: int | None, snapshot: str, of_table: int = 1
    ) -> None:  # fmt: skip
        self._lsn += 10
        source = {
            "version": "3.6.3.Final", "connector": "postgresql", "name": PREFIX, "ts_ms": 1_700_000_000_000,
            "snapshot": snapshot, "db": "d", "sequence": f'["{self._lsn}","{self._lsn}"]', "ts_us": 1_700_000_000_000_000,
            "ts_ns": 1_700_000_000_000_000_000, "schema": "public", "table": table, "txId": txid, "lsn": self._lsn,
            "xmin": None, "origin": None, "origin_lsn": None,
        }  # fmt: skip
        block = None if total is None else {
            "id": f"{txid}:{self._lsn}", "total_order": total, "data_collection_order": of_table}  # fmt: skip
        value = {
            "before": before, "after": after, "source": source, "transaction": block, "op": op,
            "ts_ms": 1_700_000_000_001, "ts_us": 1_700_000_000_001_000, "ts_ns": 1_700_000_000_001_000_000,
        }  # fmt: skip
        row = after if after is not None else before
        self._line(f"{PREFIX}.public.{table}", self._key(row["id"]), self._value(table, value))
        if op == "d":
            self._line(f"{PREFIX}.public.{table}", self._key(row["id"]), None)

    def _mark(self, value: dict[str, Any]) -> None:
        self._line(f"{PREFIX}.transaction", None, json.dumps({**value, "ts_ms": 1_700_000_000_002}))

    def _line(self, topic: str, key: str | None, value: str | None) -> None:
        self.lines.append(json.dumps({"topic": topic, "key": key, "value": value}))

    def _key(self, number: int) -> str:
        fields = [{"type": "int64", "optional": False, "field": "id"}]
        schema = {"type": "struct", "fields": fields, "optional": False, "name": "Key"}
        return json.dumps({"schema": schema, "payload": {"id": number}} if self._schemas else {"id": number})

    def _value(self, table: str, payload: dict[str, Any]) -> str:
        if not self._schemas:
            return json.dumps(payload)
        columns = CUSTOMERS if table == "customers" else ORDERS
        fields = [{"type": kind, "optional": name != "id", "field": name} for name, kind in columns]
        row = {"type": "struct", "fields": fields, "optional": True, "name": f"{PREFIX}.public.{table}.Value"}
        schema = {
            "type": "struct", "optional": False, "name": f"{PREFIX}.public.{table}.Envelope",
            "fields": [{**row, "field": "before"}, {**row, "field": "after"},
                       {"type": "struct", "fields": [], "optional": False, "field": "source"},
                       {"type": "string", "optional": False, "field": "op"}],
        }  # fmt: skip
        return json.dumps({"schema": schema, "payload": payload})


def small(*, schemas: bool = False) -> Recording:
    """Two customers and two orders; then an order, a move of a customer to another city with an order gone."""
    made = Recording(schemas=schemas)
    made.snapshot("customers", {"id": 1, "city": "Bern"}, {"id": 2, "city": None})
    made.snapshot(
        "orders", {"id": 1, "customer_id": 1, "amount": "10.50"}, {"id": 2, "customer_id": 2, "amount": "1.00"}
    )
    made.transaction(600, ("orders", "c", None, {"id": 3, "customer_id": 1, "amount": "0.25"}))
    made.transaction(
        601,
        ("customers", "u", {"id": 2, "city": None}, {"id": 2, "city": "Basel"}),
        ("orders", "d", {"id": 1, "customer_id": None, "amount": None}, None),
    )
    return made
