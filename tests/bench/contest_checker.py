"""Reads the views of a system while they change, and counts the states that no commit ever left.

Always: a state is one REPEATABLE READ transaction. Run beside each system of the freshness contest as
`python -m tests.bench.contest_checker SCHEMA PAUSE_MS`; it prints its counts as JSON once it gets SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import sql

from examples.demo import shop

STATE = """
select (select count(*) from {s}.order_totals where balance <> 0) as off_balance,
       (select coalesce(sum(lines), 0) from {s}.order_totals) as order_lines,
       (select coalesce(sum(lines), 0) from {s}.revenue_by_city) as city_lines,
       (select coalesce(sum(lines), 0) from {s}.sold_by_product) as product_lines,
       (select coalesce(sum(total), 0) from {s}.order_totals) as totals,
       (select coalesce(sum(revenue), 0) from {s}.revenue_by_city) as revenue,
       (select coalesce(sum(paid), 0) from {s}.books) as paid
"""


def check(url: str, tables: str, pause: float) -> None:
    """Read states until SIGTERM, then print how many, and how many of them never were."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
    told = {"states": 0, "off_balance": 0, "torn": 0}
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as db:
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        db.read_only = True
        query = sql.SQL(STATE).format(s=sql.Identifier(tables))
        while not stopping:
            with db.transaction():
                state = db.execute(query).fetchone()
            assert state is not None, "an aggregate gives one row"
            off, torn = wrong(state)
            told = {"states": told["states"] + 1, "off_balance": told["off_balance"] + off, "torn": told["torn"] + torn}
            time.sleep(pause)
    sys.stdout.write(json.dumps(told) + "\n")


def wrong(state: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether no commit left a state: a view by itself, and the views side by side.

    >>> wrong({"off_balance": 0, "order_lines": 3, "city_lines": 3, "product_lines": 2, "totals": 5, "revenue": 5, "paid": 5})
    (False, True)
    """
    lines = {int(state[n]) for n in ("order_lines", "city_lines", "product_lines")}
    sums = {state[n] for n in ("totals", "revenue", "paid")}
    return bool(state["off_balance"]), len(lines) > 1 or len(sums) > 1


if __name__ == "__main__":
    check(os.environ[shop.URL], sys.argv[1], float(sys.argv[2]) / 1000)
