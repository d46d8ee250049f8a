"""The small shop that the tests of views read: its tables for Postgres and for the catalogue."""

from __future__ import annotations

from headrace.engine.schema import Column, DataType, Schema
from headrace.views.catalog import Catalog

TABLES: dict[str, tuple[dict[str, str], tuple[str, ...] | None]] = {
    "customers": (
        {"id": "bigint", "name": "text not null", "region": "text", "credit": "numeric(12,2)", "born": "date",
         "vip": "boolean"},
        ("id",),
    ),
    "products": (
        {"id": "integer", "sku": "varchar(20) not null", "name": "text", "price": "numeric(10,2) not null",
         "weight": "double precision"},
        ("id",),
    ),
    "orders": (
        {"id": "bigint", "customer_id": "bigint", "status": "text not null", "placed": "timestamp",
         "total": "numeric(12,2)", "discount": "integer", "parts": "smallint"},
        ("id",),
    ),
    "order_lines": (
        {"order_id": "bigint", "line_no": "integer", "product_id": "integer", "qty": "integer not null",
         "price": "numeric(10,2)"},
        ("order_id", "line_no"),
    ),
    "payments": (
        {"id": "integer", "order_id": "bigint", "amount": "numeric(14,4)", "paid": "timestamptz", "method": "text",
         "details": "json"},
        ("id",),
    ),
    "visits": ({"customer_id": "integer", "page": "text", "at": "timestamp"}, None),
}  # fmt: skip
"""Columns with their SQL types, and the primary key; None: keyless."""


def schema_of(table: str) -> Schema:
    """The table's schema as the catalogue has it."""
    columns, key = TABLES[table]
    found = []
    for name, spelled in columns.items():
        present = spelled.endswith(" not null") or name in (key or ())
        found.append(Column(name, DataType.parse(spelled.removesuffix(" not null")), not present))
    return Schema.of(found, key)


def catalog() -> Catalog:
    """The shop as a catalogue."""
    return Catalog({f"public.{table}": schema_of(table) for table in TABLES})


def ddl(table: str) -> str:
    """CREATE TABLE for a Postgres."""
    columns, key = TABLES[table]
    parts = [f"{name} {spelled}" for name, spelled in columns.items()]
    if key is not None:
        parts.append(f"primary key ({', '.join(key)})")
    return f"create table {table} ({', '.join(parts)})"
