"""Reads the sink's history while it is written: `python -m tests.bench.history PAUSE_MS`, until SIGTERM.
The sink's URL comes by the environment (`shop.URL`).

Always: each state is read in one REPEATABLE READ transaction, as a careful reader would; what holds at every commit of the
shop must hold in it, so that a state that is no prefix of the commits shows. Its last line is JSON: states read, distinct
ones, and the violations. Called by bench_freshness; `broken` by its test.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import psycopg

from examples.demo.shop import URL

QUERY = """
select (select epoch from headrace.frontier where sink = 'warehouse') as epoch,
       (select ((sources -> 'shop' ->> 'lsn')::pg_lsn - '0/0')::bigint from headrace.frontier where sink = 'warehouse') as lsn,
       o.orders, o.off_balance, o.balance, o.lines, o.total, r.city_lines, r.city_revenue, s.shares, k.payments, k.paid
from (select count(*) as orders, count(*) filter (where balance <> 0) as off_balance, coalesce(sum(balance), 0) as balance,
             coalesce(sum(lines), 0) as lines, coalesce(sum(total), 0) as total from headrace.order_totals) o,
     (select coalesce(sum(lines), 0) as city_lines, coalesce(sum(revenue), 0) as city_revenue from headrace.revenue_by_city) r,
     (select coalesce(sum(revenue), 0) as shares from headrace.city_revenue_share) s,
     (select coalesce(sum(payments), 0) as payments, coalesce(sum(paid), 0) as paid from headrace.books) k
"""

VIEW = """
version: 1
views:
  - name: books
    description: Payments by their last digit, whose totals the other views must agree with at every commit
    sinks: [warehouse]
    sql: select order_id % 10 as digit, count(*) as payments, sum(amount) as paid from payments group by order_id % 10
"""
"""Totals of one table, which reach the sink by a way of their own."""


def broken(state: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> list[str]:
    """What does not hold in a visible state (columns of QUERY), or between it and the state read before."""
    wrong = []

    def same(what: str, one: str, other: str) -> None:
        if Decimal(state[one]) != Decimal(state[other]):
            wrong.append(f"epoch {state['epoch']}: {what}: {one}={state[one]} {other}={state[other]}")

    if state["off_balance"] or state["balance"]:
        wrong.append(f"epoch {state['epoch']}: {state['off_balance']} orders off balance, sum {state['balance']}")
    same("lines by order and by city", "lines", "city_lines")
    same("revenue by order and by city", "total", "city_revenue")
    same("a view over a view", "city_revenue", "shares")
    same("payments and what was ordered", "paid", "total")
    same("orders, each with one payment", "orders", "payments")
    if before is not None and (state["epoch"], state["lsn"]) < (before["epoch"], before["lsn"]):
        wrong.append(f"epoch {state['epoch']}, LSN {state['lsn']} after epoch {before['epoch']}, LSN {before['lsn']}")
    if before is not None and state["epoch"] == before["epoch"] and dict(state) != dict(before):
        wrong.append(f"two states of epoch {state['epoch']}")
    return wrong


def main(url: str, pause: float) -> None:
    """Read until SIGTERM, then print what was found."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
    states = distinct = 0
    wrong: list[str] = []
    before: Mapping[str, Any] | None = None
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as db:
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        db.read_only = True
        while not stopping:
            with db.transaction():
                state = db.execute(QUERY).fetchone()
            if state is None:
                wrong.append("the row of `books` is missing")
            else:
                wrong += broken(state, before)
                states += 1
                distinct += before is None or state["epoch"] != before["epoch"]
                before = state
            if pause:
                time.sleep(pause)
    sys.stdout.write(
        json.dumps({"states": states, "distinct": distinct, "count": len(wrong), "violations": wrong[:20]}) + "\n"
    )


if __name__ == "__main__":
    main(os.environ[URL], float(sys.argv[1]) / 1000)
