"""Pathway's side of the six TPC-H queries: a program of its own, run by the interpreter that has Pathway.

Always: it reads the columns that the Rust peer reads, each table as one stream whose rows come at the instants of their
transactions, and computes the plans of the other sides, join for join; order and limit are left to the reader, as there.
Run as `python -m tests.bench.peers.pathway_session FOLDER QUERY SIZE`, SIZE rows a transaction; prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pathway as pw  # type: ignore[import-not-found]

Table = Any


def revenue(lines: Table) -> Any:
    """The discounted price, in hundredths of cents."""
    return lines.extendedprice * (100 - lines.discount)


def q1(lineitem: Table) -> Table:
    """Sums of the lines shipped up to a day, by flag and status."""
    kept = lineitem.filter(lineitem.shipdate <= 19980902)
    priced = kept.with_columns(revenue=revenue(kept), charge=revenue(kept) * (100 + kept.tax))
    names = ("quantity", "extendedprice", "revenue", "charge", "discount")
    sums = {name: pw.reducers.sum(priced[name]) for name in names}
    groups = priced.groupby(priced.returnflag, priced.linestatus)
    return groups.reduce(priced.returnflag, priced.linestatus, **sums, number=pw.reducers.count())


def q3(customer: Table, orders: Table, lineitem: Table) -> Table:
    """Revenue of the orders of a market segment that were placed before a day and shipped after it."""
    segment = customer.filter(customer.mktsegment == "BUILDING")
    early = orders.filter(orders.orderdate < 19950315)
    late = lineitem.filter(lineitem.shipdate > 19950315)
    late = late.select(late.orderkey, revenue=revenue(late))
    wanted = early.join(segment, early.custkey == segment.custkey).select(
        early.orderkey, early.orderdate, early.shippriority
    )
    found = wanted.join(late, wanted.orderkey == late.orderkey).select(*wanted, late.revenue)
    groups = found.groupby(found.orderkey, found.orderdate, found.shippriority)
    return groups.reduce(found.orderkey, found.orderdate, found.shippriority, revenue=pw.reducers.sum(found.revenue))


def q5(nation: Table, region: Table, customer: Table, orders: Table, lineitem: Table, supplier: Table) -> Table:
    """Revenue of a year's orders within the nations of a region, by nation."""
    asia = region.filter(region.name == "ASIA")
    nations = nation.join(asia, nation.regionkey == asia.regionkey).select(nation.nationkey, nation.name)
    suppliers = supplier.join(nations, supplier.nationkey == nations.nationkey).select(supplier.suppkey, *nations)
    year = orders.filter((orders.orderdate >= 19940101) & (orders.orderdate < 19950101))
    placed = year.join(customer, year.custkey == customer.custkey).select(year.orderkey, customer.nationkey)
    sold = lineitem.select(lineitem.orderkey, lineitem.suppkey, revenue=revenue(lineitem))
    home = sold.join(placed, sold.orderkey == placed.orderkey).select(sold.suppkey, sold.revenue, placed.nationkey)
    both = (home.suppkey == suppliers.suppkey, home.nationkey == suppliers.nationkey)
    found = home.join(suppliers, *both).select(suppliers.name, home.revenue)
    return found.groupby(found.name).reduce(found.name, revenue=pw.reducers.sum(found.revenue))


def q6(lineitem: Table) -> Table:
    """Revenue of a year's small lines with a middling discount, as one group."""
    days = (lineitem.shipdate >= 19940101) & (lineitem.shipdate < 19950101)
    kept = lineitem.filter(days & (lineitem.discount >= 5) & (lineitem.discount <= 7) & (lineitem.quantity < 24))
    return kept.reduce(one=0, saved=pw.reducers.sum(kept.extendedprice * kept.discount))


def q9(nation: Table, part: Table, supplier: Table, lineitem: Table, partsupp: Table, orders: Table) -> Table:
    """Profit on the parts of a colour, by nation and year."""
    green = part.filter(part.name.str.find("green") >= 0)
    sold = lineitem.select(
        lineitem.orderkey, lineitem.partkey, lineitem.suppkey, lineitem.quantity, revenue=revenue(lineitem)
    )
    kept = sold.join(green, sold.partkey == green.partkey).select(*sold)
    both = (kept.partkey == partsupp.partkey, kept.suppkey == partsupp.suppkey)
    profit = kept.revenue - partsupp.supplycost * kept.quantity * 100
    earned = kept.join(partsupp, *both).select(kept.orderkey, kept.suppkey, profit=profit)
    dated = earned.join(orders, earned.orderkey == orders.orderkey).select(
        earned.suppkey, earned.profit, year=orders.orderdate // 10_000
    )
    nations = supplier.join(nation, supplier.nationkey == nation.nationkey).select(supplier.suppkey, nation.name)
    found = dated.join(nations, dated.suppkey == nations.suppkey).select(nations.name, dated.year, dated.profit)
    return found.groupby(found.name, found.year).reduce(found.name, found.year, profit=pw.reducers.sum(found.profit))


def q18(customer: Table, orders: Table, lineitem: Table) -> Table:
    """Customers of large orders."""
    totals = lineitem.groupby(lineitem.orderkey).reduce(lineitem.orderkey, quantity=pw.reducers.sum(lineitem.quantity))
    large = totals.filter(totals.quantity > 300)
    ordered = large.join(orders, large.orderkey == orders.orderkey).select(
        *large, orders.custkey, orders.totalprice, orders.orderdate
    )
    named = ordered.join(customer, ordered.custkey == customer.custkey)
    return named.select(
        customer.name, ordered.custkey, ordered.orderkey, ordered.orderdate, ordered.totalprice, ordered.quantity
    )


QUERIES = {q.__name__: q for q in (q1, q3, q5, q6, q9, q18)}
TEXTS = {"nation.name": 16, "region.name": 16, "customer.name": 24, "customer.mktsegment": 16, "part.name": 40}


def frame(folder: Path, table: str, size: int) -> Any:
    """A table's rows, each with the instant of its transaction."""
    columns: dict[str, Any] = {}
    for path in sorted(folder.glob(f"{table}.*")):
        name = path.suffix[1:]
        width = TEXTS.get(f"{table}.{name}")
        lane = np.fromfile(path, "<i8") if width is None else np.fromfile(path, f"S{width}").astype(str)
        if name == "epoch":
            columns["__time__"] = 2 * (lane // size) + 2  # instants of inputs are even
        else:
            columns[name] = lane if width is None else np.char.strip(lane)
    return pd.DataFrame({**columns, "__diff__": 1})


def main() -> None:
    """One query over all rows: rows, processor seconds from the streams to the last output, and what is there in the end."""
    folder, query, size = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    names = sorted({path.name.split(".")[0] for path in folder.iterdir()})
    frames = {name: frame(folder, name, size) for name in names}
    tables = {name: pw.debug.table_from_pandas(rows) for name, rows in frames.items()}
    there: dict[Any, Any] = {}

    def changed(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            there[key] = row
        elif there.get(key) == row:
            del there[key]

    pw.io.subscribe(QUERIES[query](**tables), on_change=changed)
    began = time.process_time()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    spent = time.process_time() - began
    rows = sorted([str(v) if isinstance(v, str) else int(v) for v in row.values()] for row in there.values())
    print(json.dumps({"rows": sum(map(len, frames.values())), "cpu": spent, "answer": rows}))


if __name__ == "__main__":
    main()
