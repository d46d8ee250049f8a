"""Pathway's side of the freshness contest: a program of its own, run by the interpreter that has Pathway.

Always: it reads Debezium's topics and keeps the contest's views in Postgres, as `freshness_contest` defines them. It loses
rows that hold a null, so that its topics have the words which the views put in their place. Run as
`python -m tests.bench.peers.pathway_views BOOTSTRAP PREFIX SCHEMA`; where the sink is comes by the environment, as libpq names
it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pathway as pw  # type: ignore[import-not-found]

AUTOCOMMIT_MS = 100
"""The least with which it keeps up with 200 transactions a second; 20 ms and it falls behind."""


class Customer(pw.Schema):  # type: ignore[misc]
    """customers"""

    id: int = pw.column_definition(primary_key=True)
    city: str


class Order(pw.Schema):  # type: ignore[misc]
    """orders"""

    id: int = pw.column_definition(primary_key=True)
    customer_id: int
    status: str


class Line(pw.Schema):  # type: ignore[misc]
    """order_lines; prices are texts"""

    order_id: int = pw.column_definition(primary_key=True)
    line: int = pw.column_definition(primary_key=True)
    product_id: int
    quantity: int
    price: str


class Payment(pw.Schema):  # type: ignore[misc]
    """payments; amounts are texts"""

    id: int = pw.column_definition(primary_key=True)
    order_id: int
    amount: str
    method: str


@pw.udf(deterministic=True)  # type: ignore[misc]
def cents(text: str) -> int:
    """An amount of two digits, in hundredths."""
    return round(float(text) * 100)


def views(customers: Any, orders: Any, lines: Any, payments: Any) -> dict[str, tuple[Any, list[str]]]:
    """The views, amounts in hundredths, and each one's key."""
    lines = lines.with_columns(cost=lines.quantity * cents(lines.price))
    paid = payments.with_columns(cents=cents(payments.amount))
    placed = lines.join(orders, lines.order_id == orders.number).select(lines.cost, orders.customer_id)
    where = placed.join(customers, placed.customer_id == customers.number).select(placed.cost, city=customers.city)
    by_city = where.groupby(where.city).reduce(
        where.city, lines=pw.reducers.count(), revenue=pw.reducers.sum(where.cost)
    )
    of_order = lines.groupby(lines.order_id).reduce(
        lines.order_id, lines=pw.reducers.count(), total=pw.reducers.sum(lines.cost)
    )
    whole = of_order.join(orders, of_order.order_id == orders.number).select(*of_order, orders.status)
    totals = whole.join(paid, whole.order_id == paid.order_id).select(*whole, balance=whole.total - paid.cents)
    sold = lines.groupby(lines.product_id).reduce(
        lines.product_id, sold=pw.reducers.sum(lines.quantity), lines=pw.reducers.count()
    )
    buyers = paid.join(orders, paid.order_id == orders.number).select(paid.method, orders.customer_id)
    methods = buyers.join(customers, buyers.customer_id == customers.number).select(
        city=customers.city, method=buyers.method
    )
    ways = methods.groupby(methods.city, methods.method).reduce(methods.city, methods.method)
    digits = paid.with_columns(digit=paid.order_id % 10)
    books = digits.groupby(digits.digit).reduce(
        digits.digit, payments=pw.reducers.count(), paid=pw.reducers.sum(digits.cents)
    )
    newest = orders.reduce(one=1, highest=pw.reducers.max(orders.number))
    return {
        "revenue_by_city": (by_city, ["city"]), "order_totals": (totals, ["order_id"]),
        "sold_by_product": (sold, ["product_id"]), "payment_methods": (ways, ["city", "method"]),
        "books": (books, ["digit"]), "newest": (newest, ["one"]),
    }  # fmt: skip


def main(bootstrap: str, prefix: str, schema_name: str) -> None:
    """Read and keep until the process ends."""
    kafka = {
        "bootstrap.servers": bootstrap, "group.id": f"pathway-{prefix}", "auto.offset.reset": "earliest",
        "session.timeout.ms": "6000",
    }  # fmt: skip
    sink = {
        "host": os.environ["PGHOST"], "port": os.environ["PGPORT"], "dbname": os.environ["PGDATABASE"],
        "user": os.environ["PGUSER"], "password": os.environ.get("PGPASSWORD", ""),
    }  # fmt: skip
    schemas = {"customers": Customer, "orders": Order, "order_lines": Line, "payments": Payment}
    tables = {
        table: pw.io.debezium.read(
            kafka, topic_name=f"{prefix}.public.{table}", schema=schema, autocommit_duration_ms=AUTOCOMMIT_MS
        )
        for table, schema in schemas.items()
    }
    # a column called id is taken for the row's own
    named = {n: t.rename({"id": "number"}) if "id" in schemas[n].column_names() else t for n, t in tables.items()}
    for name, (table, key) in views(*named.values()).items():
        by = [table[column] for column in key]
        pw.io.postgres.write(table, sink, name, schema_name=schema_name, output_table_type="snapshot", primary_key=by)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


if __name__ == "__main__":
    main(*sys.argv[1:])
